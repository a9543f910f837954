import pytest

from proxy.cli import main


@pytest.mark.parametrize("words", [["take", "auditor", "--reason", "fire"], ["end"]])
def test_without_credentials_it_says_which_are_missing(told, words):
    refused = told("emergency", *words, status=1)
    assert refused["code"] == "bad_settings"
    assert "DOMICILE_CLIENT_ID" in refused["message"]


@pytest.mark.parametrize("words", [["take", "auditor"], ["take", "chief", "--reason", "fire"]])
def test_a_role_that_is_none_or_has_no_reason_is_wrong_usage(words, capsys):
    assert main(["emergency", *words]) == 2
    assert "usage" in capsys.readouterr().err
