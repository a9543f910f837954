import pytest

from proxy.cli import main


def test_what_it_takes_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rehash", "--rules"]) == 2
    assert "RULES" in capsys.readouterr().err
