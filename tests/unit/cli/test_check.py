import json
from pathlib import Path

import pytest

from proxy.cli import check, main
from proxy.config import Settings, load_settings
from proxy.errors import Code, Detail, VaultError
from tests.support.people import rules


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def broken(code: Code) -> check.SettingsCheck:
    def part(_settings: Settings) -> str:
        raise VaultError(code, f"Mend {code}.", (Detail("here:1", "write it so"),))

    return part


def test_settings_without_fault_are_in_order(capsys):
    assert check.run_checks(lambda: load_settings(None, {}), {}) == {}


def test_a_fault_of_the_settings_is_told_with_its_places_and_ends_the_look(
    elsewhere, capsys, monkeypatch
):
    (elsewhere / "domicile.yaml").write_text("contry: se\n")
    monkeypatch.setattr(check, "PARTS", {"rules": broken(Code.BAD_RULES)})
    assert main(["check"]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("settings: The settings have one fault")
    assert "  domicile.yaml:1:1: contry is not a setting: did you mean country?\n" in shown
    assert "rules" not in shown.splitlines()[-1].split(":")[0]


def test_the_file_that_config_names_is_the_one_looked_at(elsewhere, capsys):
    (elsewhere / "other.yaml").write_text("contry: se\n")
    assert main(["check", "--config", "other.yaml"]) == 1
    assert "other.yaml:1:1" in capsys.readouterr().out


def test_one_part_with_a_fault_does_not_hide_another(monkeypatch, capsys):
    parts = {
        "rules": broken(Code.BAD_RULES),
        "keys": lambda _settings: "",
        "store": broken(Code.BAD_STORE),
    }
    monkeypatch.setattr(check, "PARTS", parts)
    assert main(["check"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "settings: in order",
        "rules: Mend bad_rules.",
        "  here:1: write it so",
        "keys: in order",
        "store: Mend bad_store.",
        "  here:1: write it so",
    ]


def test_what_cannot_be_looked_at_for_another_fault_names_that_one(elsewhere, capsys):
    assert main(["init"]) == 0
    (elsewhere / "data" / "keys.json").chmod(0o644)
    capsys.readouterr()
    assert main(["check"]) == 1
    shown = capsys.readouterr().out
    assert shown.count("is open to others") == 1
    assert "store: cannot be looked at; fix keys first\n" in shown


def test_an_application_is_not_in_order_while_its_rules_cannot_be_read(elsewhere, capsys):
    (elsewhere / "rules").mkdir(exist_ok=True)
    (elsewhere / "rules" / "crm.yaml").write_text("version: 1\nendpiont: {}\n", "utf-8")
    assert main(["check"]) == 1
    assert "upstream: cannot be looked at; fix rules first\n" in capsys.readouterr().out


def test_as_json_every_part_is_null_or_its_fault(monkeypatch, capsys):
    monkeypatch.setattr(
        check, "PARTS", {"rules": broken(Code.BAD_RULES), "keys": lambda _settings: ""}
    )
    assert main(["check", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is False
    assert told["faults"]["settings"] is None
    assert told["faults"]["keys"] is None
    assert told["faults"]["rules"]["code"] == "bad_rules"


def test_every_part_gets_the_settings_that_were_read(monkeypatch):
    seen: list[str] = []

    def part(settings: Settings) -> str:
        seen.append(settings.country)
        return ""

    monkeypatch.setattr(check, "PARTS", {"rules": part})
    monkeypatch.setenv("DOMICILE__COUNTRY", "fr")
    assert main(["check"]) == 0
    assert seen == ["fr"]


def test_every_part_says_what_it_looked_at_and_what_a_start_would_make(elsewhere, capsys):
    (elsewhere / "rules.yaml").write_text(rules("http://127.0.0.1:9"))
    (elsewhere / "domicile.yaml").write_text("rules: rules.yaml\n")
    assert main(["check"]) == 0
    shown = capsys.readouterr().out
    assert f"rules: in order ({elsewhere}/rules.yaml)\n" in shown
    assert f"keys: in order ({elsewhere}/data/keys.json, made at the first start)\n" in shown
    assert f"store: in order ({elsewhere}/data/vault.db, made at the first start)\n" in shown
    assert f"audit: in order ({elsewhere}/data/audit, made at the first start)\n" in shown
    assert main(["init"]) == 0
    capsys.readouterr()
    assert main(["check", "--json"]) == 0
    places = json.loads(capsys.readouterr().out)["places"]
    assert places["keys"] == f"{elsewhere}/data/keys.json"
    assert places["upstream"] == "whether it answers was not tried: http://127.0.0.1:9"


def test_a_vault_whose_key_file_is_gone_is_not_in_order(elsewhere, capsys):
    assert main(["init"]) == 0
    (elsewhere / "data" / "keys.json").unlink()
    capsys.readouterr()
    assert main(["check"]) == 1
    shown = capsys.readouterr().out
    assert "keys: in order" not in shown
    assert "keys.json" in shown


def test_files_for_tls_and_names_of_applications_are_looked_at(elsewhere, capsys):
    (elsewhere / "rules.yaml").write_text(rules("https://127.0.0.1:9"))
    file = elsewhere / "domicile.yaml"
    file.write_text("rules: rules.yaml\nupstream: {tls: {ca: none.pem, certificate: rules.yaml}}\n")
    assert main(["check"]) == 1
    shown = capsys.readouterr().out
    assert "upstream: The files for TLS towards the application cannot be used." in shown
    assert (
        f"upstream.tls.ca: {elsewhere}/none.pem cannot be read (No such file or directory)" in shown
    )
    file.write_text("rules: rules.yaml\napplications: {crm: {head: 1s}}\n")
    assert main(["check"]) == 1
    assert (
        "applications.crm: no rule file has an endpoint of that name: there are people"
        in capsys.readouterr().out
    )
    file.write_text("rules: rules.yaml\napplications: {people: {head: 1s}}\n")
    assert main(["check"]) == 0
    # the part that looks at rules tells that there are none
    file.write_text("applications: {people: {head: 1s}}\n")
    assert main(["check"]) == 1
    assert "upstream: in order" in capsys.readouterr().out


def test_a_secret_that_cannot_be_used_is_a_fault_of_access_and_of_nothing_else(
    elsewhere, capsys, monkeypatch
):
    monkeypatch.setenv("SCRAPER", "short")
    (elsewhere / "domicile.yaml").write_text("admin: {metrics_token: env:SCRAPER}\n")
    assert main(["check"]) == 1
    shown = capsys.readouterr().out
    assert (
        "access: A secret that the settings name cannot be used.\n  admin.metrics_token: " in shown
    )
    assert "upstream: in order" in shown


def test_rules_that_the_settings_for_records_do_not_fit_are_told(elsewhere, capsys, monkeypatch):
    kept = (
        rules("http://127.0.0.1:9")
        .replace("  person:\n", "  person:\n    schema: records\n")
        .replace("find: [exact]", "keep_as: key3")
    )
    (elsewhere / "rules.yaml").write_text(kept)
    monkeypatch.setattr(check, "PARTS", {"records": check.PARTS["records"]})
    monkeypatch.setenv("DOMICILE__RULES", "rules.yaml")
    assert main(["check"]) == 0
    monkeypatch.setenv("DOMICILE__RECORDS__PLAIN", "[key3]")
    assert main(["check"]) == 1
    assert "person.email: is kept as key3" in capsys.readouterr().out
    (elsewhere / "rules.yaml").write_text("no rules")
    assert main(["check"]) == 0  # another part tells
