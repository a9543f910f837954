import pytest


@pytest.mark.parametrize("words", [["list"], ["approve", "x"], ["refuse", "x"]])
def test_without_credentials_it_says_which_are_missing(told, words):
    refused = told("approval", *words, status=1)
    assert refused["code"] == "bad_settings"
    assert "DOMICILE_CLIENT_ID" in refused["message"]
