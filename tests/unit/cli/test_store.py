import asyncio
import json
from pathlib import Path

import pytest

from proxy.bootstrap.instance import prepare_instance, running
from proxy.cli import main
from proxy.config import load_settings
from proxy.errors import Code, VaultError
from tests.support.people import rules


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_new_vault_is_in_order(elsewhere, capsys):
    asyncio.run(prepare_instance(load_settings(None, {"DOMICILE__COUNTRY": "se"})))
    assert main(["store", "verify"]) == 0
    assert "in order" in capsys.readouterr().out
    assert main(["store", "verify", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["ok"], told["records"], told["faults"], told["left"]) == (
        True,
        0,
        [],
        {"doomed": 0, "orphaned": 0},
    )


def test_without_a_vault_nothing_is_made(elsewhere, capsys):
    assert main(["store", "verify"]) == 1
    assert "There is no vault" in capsys.readouterr().err
    assert list(elsewhere.iterdir()) == []


def test_faults_are_listed_and_end_with_status_1(elsewhere, capsys, monkeypatch):
    from proxy.vault import maintenance as module
    from proxy.vault.maintenance.verify import VaultFault, VaultFindings

    async def broken(*_: object) -> VaultFindings:
        text = "The record does not open."
        return VaultFindings(
            faults=[VaultFault("contact", 17, text), VaultFault("contact", 18, text, "acme")]
        )

    asyncio.run(prepare_instance(load_settings(None, {"DOMICILE__COUNTRY": "se"})))
    monkeypatch.setattr(module, "verify_vault", broken)
    assert main(["store", "verify"]) == 1
    out = capsys.readouterr().out
    assert "contact, record 17: The record does not open." in out
    assert "acme:contact, record 18: The record does not open." in out
    assert "2 faults" in out
    assert main(["store", "verify", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["faults"] == [
        {
            "environment": "default",
            "schema": "contact",
            "record": 17,
            "text": "The record does not open.",
        },
        {
            "environment": "acme",
            "schema": "contact",
            "record": 18,
            "text": "The record does not open.",
        },
    ]


def test_a_running_instance_is_left_alone(elsewhere, monkeypatch):
    from proxy.cli.store import _verify

    (elsewhere / "rules").mkdir()
    (elsewhere / "rules/rules.yaml").write_text(rules("http://127.0.0.1:9"))
    listen = {f"DOMICILE__LISTEN__{name}": "127.0.0.1:0" for name in ("PROXY", "ADMIN", "VAULT")}
    settings = load_settings(None, {"DOMICILE__COUNTRY": "se", **listen})

    async def both() -> VaultError:
        async with running(settings):
            with pytest.raises(VaultError) as caught:
                await _verify(settings)
            return caught.value

    fault = asyncio.run(both())
    assert fault.code is Code.STORE_BUSY
    assert "Another process owns" in fault.message
