import pytest

from proxy.api.openapi.records import DESCRIBED


@pytest.mark.parametrize(("name", "described"), DESCRIBED.items())
def test_every_description_says_what_why_and_what_comes_back(name, described):
    assert described.summary
    assert described.text.endswith(".")
    assert described.answered.endswith(".")


def test_examples_of_files_are_those_of_a_record_of_this_family():
    for example in DESCRIBED["records_upload"].examples:
        assert example.path == {"country": "se", "record_key": "r-1"}
    assert DESCRIBED["records_move_files"].examples[0].path == {
        "country": "se",
        "source": "r-1",
        "destination": "r-2",
    }
