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
