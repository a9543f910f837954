import pytest

from proxy.cli import main


def test_without_credentials_it_says_what_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DOMICILE_CLIENT_ID", raising=False)
    assert main(["token", "--url", "http://127.0.0.1:9"]) == 1
    assert "DOMICILE_CLIENT_SECRET" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["127.0.0.1", "http://127.0.0.1/api"])
def test_an_address_that_is_none_is_refused(url, capsys):
    assert main(["token", "--url", url]) == 2
    assert "scheme, host and port" in capsys.readouterr().err


def test_an_address_that_is_none_is_wrong_usage(capsys):
    assert main(["reload", "--url", "vault"]) == 2
    assert "write scheme, host and port" in capsys.readouterr().err


@pytest.mark.parametrize("words", [
    ["reload"],
    ["emergency", "take", "auditor", "--reason", "fire"], ["emergency", "end"],
    ["approval", "list"], ["approval", "approve", "x"], ["approval", "refuse", "x"],
])  # fmt: skip
def test_without_credentials_it_says_which_are_missing(told, words):
    refused = told(*words, status=1)
    assert refused["code"] == "bad_settings"
    assert "DOMICILE_CLIENT_ID" in refused["message"]


@pytest.mark.parametrize("words", [["take", "auditor"], ["take", "chief", "--reason", "fire"]])
def test_a_role_that_is_none_or_has_no_reason_is_wrong_usage(words, capsys):
    assert main(["emergency", *words]) == 2
    assert "usage" in capsys.readouterr().err
