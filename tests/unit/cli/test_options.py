import pytest

from proxy.cli import main


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8081", "ftp://a", "http://a/path", "http://:80", "http://a b"]
)
def test_an_instance_is_named_by_a_whole_address(url, capsys):
    assert main(["import", "--url", url, "--schema", "contact", "a.jsonl"]) == 2
    assert "write scheme, host and port alone" in capsys.readouterr().err


@pytest.mark.parametrize("noun", ["policy", "schema"])
def test_what_is_declared_stands_in_files(noun, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([noun, "apply"]) == 2
    assert "FILE" in capsys.readouterr().err
    assert main([noun, "apply", "--environment", "acme", "none.yaml"]) == 1
    assert "none.yaml" in capsys.readouterr().err
