import asyncio
import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from proxy.bootstrap.instance import prepare_instance
from proxy.cli import main
from proxy.config import load_settings


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_makes_the_vault_and_says_what_to_keep_safe(elsewhere, capsys, monkeypatch):
    monkeypatch.delenv("DOMICILE__COUNTRY")
    assert main(["init", "--country", "no"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown[5:10]] == [
        "environment_id", "client_id", "client_secret", "vault_url", "token_url",
    ]  # fmt: skip
    assert shown[:5] + shown[10:] == [
        "Made the vault.",
        "  country      no",
        f"  store        {elsewhere}/data/vault.db",
        f"  keys         {elsewhere}/data/keys.json",
        "Made the first client, an administrator.",
        "The secret is not shown again: keep it.",
        (
            "Keep a copy of the keys in another place than the copies of the store: without them "
            "nothing can be read again."
        ),
        "Next: domicile serve",
    ]
    assert {path.name for path in (elsewhere / "data").rglob("*") if path.is_file()} >= {
        "vault.db",
        "keys.json",
    }
    assert (elsewhere / "data").stat().st_mode & 0o777 == 0o700


def test_a_second_time_changes_nothing_and_says_so(elsewhere, capsys):
    assert main(["init"]) == 0
    before = {
        path.name: path.read_bytes() for path in (elsewhere / "data").rglob("*") if path.is_file()
    }
    capsys.readouterr()
    assert main(["init"]) == 0
    assert capsys.readouterr().out.startswith("The vault was there already; nothing was changed.\n")
    assert {
        path.name: path.read_bytes() for path in (elsewhere / "data").rglob("*") if path.is_file()
    } == before


def test_the_secret_is_shown_once_and_lies_nowhere(elsewhere, capsys):
    assert main(["init", "--json"]) == 0
    secret = json.loads(capsys.readouterr().out)["client_secret"]
    for path in filter(Path.is_file, (elsewhere / "data").rglob("*")):
        assert secret.encode() not in path.read_bytes()
    assert main(["init", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["made"], "client_id" in again, "client_secret" in again) == (False, False, False)


def test_a_vault_from_before_there_were_clients_gets_its_first_one(elsewhere, capsys):
    asyncio.run(prepare_instance(load_settings(None, {"DOMICILE__COUNTRY": "se"})))
    assert main(["init"]) == 0
    assert capsys.readouterr().out.startswith("The vault was there already.\n")
    assert main(["client", "list", "--json"]) == 0
    (first,) = json.loads(capsys.readouterr().out)["clients"]
    assert (first["name"], first["admin"]) == ("first administrator", True)


def test_a_country_that_the_settings_have_already_needs_no_hint(elsewhere, capsys, monkeypatch):
    monkeypatch.delenv("DOMICILE__COUNTRY")
    (elsewhere / "domicile.yaml").write_text("country: de\n")
    assert main(["init", "--country", "de"]) == 0
    assert capsys.readouterr().out.endswith("\nNext: domicile serve\n")


@pytest.mark.parametrize("country", ["sweden", "xx", "uk"])
def test_a_country_that_is_none_is_told_as_a_fault_of_the_option_and_makes_nothing(
    elsewhere, capsys, country
):
    assert main(["init", "--country", country]) == 2
    assert "argument --country: " in capsys.readouterr().err
    assert list(elsewhere.iterdir()) == []


def test_as_json_it_tells_the_environment_and_no_key(elsewhere, capsys):
    assert main(["init", "--json"]) == 0
    shown = capsys.readouterr().out
    told = json.loads(shown)
    assert (len(told.pop("client_id")), len(told.pop("client_secret"))) == (16, 43)
    assert told == {
        "environment_id": "default",
        "vault_url": "http://127.0.0.1:8081",
        "token_url": "http://127.0.0.1:8081/oauth2/token",
        "country": "se",
        "store": f"{elsewhere}/data/vault.db",
        "keys": f"{elsewhere}/data/keys.json",
        "made": True,
    }
    assert json.loads((elsewhere / "data" / "keys.json").read_text())["key"] not in shown


def test_a_key_of_the_environment_is_named_and_never_shown(elsewhere, capsys, monkeypatch):
    key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
    monkeypatch.setenv("DOMICILE__KEYS", "env:VAULT_KEY")
    monkeypatch.setenv("VAULT_KEY", key)
    assert main(["init"]) == 0
    shown = capsys.readouterr().out
    assert "  keys         the environment variable VAULT_KEY\n" in shown
    assert key not in shown


class Typed(io.StringIO):
    """A terminal at which somebody types."""

    def isatty(self) -> bool:
        return True


def test_no_country_is_taken_without_a_word(elsewhere, capsys, monkeypatch):
    monkeypatch.delenv("DOMICILE__COUNTRY")
    monkeypatch.setattr("sys.stdin", io.StringIO("se\n"))  # no terminal
    assert main(["init"]) == 1
    assert "country: nothing says whose personal data" in capsys.readouterr().err
    assert list(elsewhere.iterdir()) == []


def test_a_terminal_is_asked_for_the_country_until_it_is_one(elsewhere, capsys, monkeypatch):
    monkeypatch.delenv("DOMICILE__COUNTRY")
    monkeypatch.setattr("sys.stdin", Typed("sweden\nSE\n"))
    assert main(["init"]) == 0
    shown = capsys.readouterr()
    assert "no country code" in shown.err
    assert "  country      se\n" in shown.out


def test_the_vault_keeps_its_country_and_refuses_another(elsewhere, capsys, monkeypatch):
    monkeypatch.delenv("DOMICILE__COUNTRY")
    assert main(["init", "--country", "NO"]) == 0
    capsys.readouterr()
    assert main(["init"]) == 0
    assert "  country      no\n" in capsys.readouterr().out
    (elsewhere / "rules").mkdir()
    assert main(["check"]) == 0
    assert "rules: in order (none at" in capsys.readouterr().out
    assert main(["init", "--country", "de"]) == 1
    assert "the vault keeps the data of no and the settings say de" in capsys.readouterr().err
    monkeypatch.setenv("DOMICILE__COUNTRY", "de")
    assert main(["check"]) == 1
    assert "store: The vault is that of another country." in capsys.readouterr().out
    assert main(["serve"]) == 1
    assert "the vault keeps the data of no and the settings say de" in capsys.readouterr().err


def test_a_vault_of_an_earlier_version_counts_as_that_of_its_default_and_says_so(
    elsewhere, capsys, monkeypatch
):
    assert main(["init"]) == 0
    with closing(sqlite3.connect(elsewhere / "data" / "vault.db")) as database:
        database.execute("DELETE FROM notes WHERE name = 'country'")
        database.commit()
    monkeypatch.delenv("DOMICILE__COUNTRY")
    assert main(["init"]) == 0
    assert "an earlier version made it" in capsys.readouterr().err
    assert main(["init"]) == 0
    assert "an earlier version made it" not in capsys.readouterr().err
