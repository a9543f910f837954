import pytest

from proxy.api.openapi.clients import DESCRIBED


@pytest.mark.parametrize(("name", "described"), DESCRIBED.items())
def test_every_description_says_what_why_and_what_comes_back(name, described):
    assert described.summary
    assert described.text.endswith(".")
    assert described.answered.endswith(".")
