import pytest

from proxy.cli import main


def test_a_schema_has_to_be_named(capsys):
    assert main(["import", "a.jsonl"]) == 2
    assert "--schema" in capsys.readouterr().err


@pytest.mark.parametrize("existing", ["overwrite", ""])
def test_what_becomes_of_records_that_exist_is_one_of_three(existing, capsys):
    assert main(["import", "--schema", "contact", "--existing", existing, "a.jsonl"]) == 2
    assert "skip" in capsys.readouterr().err
