import asyncio
import base64
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.audit.events import NEW_RULES
from proxy.bootstrap import instance
from proxy.bootstrap.instance import Running, prepare_instance, running
from proxy.bootstrap.open_vault import check_keys, check_store
from proxy.bootstrap.rules import Overrides
from proxy.config import KeySettings, Settings, embedded_files, embedded_store, load_settings
from proxy.crypto.key_sources import open_source
from proxy.errors import Code, VaultError
from proxy.net.sockets import open_sockets
from proxy.storage import engine_of
from tests.support.audit import lines as audit_lines
from tests.support.patience import PATIENCE
from tests.support.people import rules
from tests.support.scraping import bearer
from tests.support.tree import ROOT

KEY = base64.b64encode(bytes(range(32))).decode()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Everything below a folder of its own, which only the rule file is in; free ports."""
    (tmp_path / "rules.yaml").write_text(rules("http://127.0.0.1:9"))
    return load_settings(
        None,
        {
            "DOMICILE__COUNTRY": "se",
            "DOMICILE__DATA": str(tmp_path / "data"),
            "DOMICILE__RULES": str(tmp_path / "rules.yaml"),
            "DOMICILE__LISTEN__PROXY": "127.0.0.1:0",
            "DOMICILE__LISTEN__VAULT": "127.0.0.1:0",
            "DOMICILE__LISTEN__ADMIN": "127.0.0.1:0",
        },
    )


def files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder; locks say nothing and are left out."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(".lock")
    }


def key_file(settings: Settings) -> Path:
    return Path(settings.keys.locator)


def foreign(settings: Settings) -> None:
    """Put the key of another vault in place of this one's."""
    key_file(settings).unlink()
    open_source(settings.keys.uri).create()


async def test_a_reload_reads_everything_that_can_change(settings):
    async with running(settings) as started:
        read: list[str] = []

        async def note(name: str) -> bool:
            read.append(name)
            return True

        started.renew = partial(read.append, "certificates")
        started.redeclare = partial(note, "schemas and policies")
        settings.rules.write_text("version: 1\n")
        await started.reload()
        assert read == ["certificates", "schemas and policies"]
        assert "rules" in str(await started.reloader.state.check())


async def test_the_audit_log_tells_which_rules_were_in_force_since_when(settings):
    versions: list[str] = []
    async with running(settings) as started:
        for text in ("", "# another version\n", "# another version\n", "no rules\n"):
            if text:
                settings.rules.write_text(rules("http://127.0.0.1:9") + text)
                await started.reload()
            versions.append(started.rules.runtime.rules.version)
    first, second = dict.fromkeys(versions)
    told = [line for line in audit_lines(settings.audit.folder) if "subject" in line]
    assert [(line["reason"], line["subject"]) for line in told] == [
        ("started", first),
        (NEW_RULES, second),
    ]


# ---------------------------------------------------------------------- prepare


async def test_a_first_start_makes_everything_and_a_second_one_nothing(settings):
    assert await prepare_instance(settings) is True
    made = files(settings.data)
    assert set(made) == {"files/owner", "keys.json", "vault.db"}
    assert await prepare_instance(settings) is False
    assert files(settings.data) == made


async def test_a_lost_key_is_not_replaced(settings):
    await prepare_instance(settings)
    key_file(settings).unlink()
    before = files(settings.data)
    with pytest.raises(VaultError, match=r"keys\.json from its backup") as fault:
        await prepare_instance(settings)
    assert fault.value.code is Code.BAD_KEYS
    assert files(settings.data) == before
    assert await again_with_another_store(settings)


async def again_with_another_store(settings: Settings) -> bool:
    return await prepare_instance(
        replace(settings, store=embedded_store(settings.data / "other.db"))
    )


async def test_a_key_of_another_vault_is_refused(settings):
    await prepare_instance(settings)
    foreign(settings)
    before = files(settings.data)
    with pytest.raises(VaultError) as fault:
        await prepare_instance(settings)
    assert fault.value.code is Code.BAD_KEYS
    assert files(settings.data) == before


async def test_a_key_that_is_there_before_the_vault_is_the_one_used(settings):
    settings.data.mkdir()
    open_source(settings.keys.uri).create()
    key = key_file(settings).read_bytes()
    assert await prepare_instance(settings) is True
    assert key_file(settings).read_bytes() == key
    assert await prepare_instance(settings) is False


async def test_a_key_that_is_no_good_leaves_no_vault_behind(settings):
    settings.data.mkdir()
    key_file(settings).write_text("{}")
    key_file(settings).chmod(0o600)
    with pytest.raises(VaultError) as fault:
        await prepare_instance(settings)
    assert fault.value.code is Code.BAD_KEYS
    assert set(files(settings.data)) == {"keys.json"}


async def test_a_key_of_the_environment_is_used_and_never_made(settings, monkeypatch):
    from_outside = replace(settings, keys=KeySettings("env", "VAULT_KEY"))
    monkeypatch.delenv("VAULT_KEY", raising=False)
    with pytest.raises(VaultError, match="VAULT_KEY") as fault:
        await prepare_instance(from_outside)
    assert fault.value.code is Code.BAD_KEYS
    assert not settings.data.exists()
    monkeypatch.setenv("VAULT_KEY", KEY)
    assert await prepare_instance(from_outside) is True
    assert set(files(settings.data)) == {"files/owner", "vault.db"}


async def test_folders_may_have_any_name(settings, tmp_path):
    data = tmp_path / "50% d\u00e5ta? #1 \u2603"
    odd = load_settings(None, {"DOMICILE__COUNTRY": "se", "DOMICILE__DATA": str(data)})
    assert await prepare_instance(odd) is True
    assert set(files(data)) == {"files/owner", "keys.json", "vault.db"}
    assert await prepare_instance(odd) is False


# ---------------------------------------------------------------------- check


def test_before_the_first_start_nothing_is_missing_and_nothing_is_made(settings):
    check_keys(settings)
    check_store(settings)
    assert not settings.data.exists()


async def test_checks_of_a_sound_vault_change_nothing(settings):
    await prepare_instance(settings)
    before = files(settings.data)
    await in_thread(check_keys, settings)
    await in_thread(check_store, settings)
    assert files(settings.data) == before


async def in_thread(check: Callable[[Settings], object], settings: Settings) -> None:
    """Checks are called where no loop runs."""
    await asyncio.to_thread(check, settings)


async def test_checks_tell_of_a_lost_and_of_a_foreign_key(settings):
    await prepare_instance(settings)
    foreign(settings)
    await in_thread(check_keys, settings)
    with pytest.raises(VaultError) as fault:
        await in_thread(check_store, settings)
    assert fault.value.code is Code.BAD_KEYS
    key_file(settings).unlink()
    before = files(settings.data)
    with pytest.raises(VaultError, match="from its backup"):
        await in_thread(check_store, settings)
    assert files(settings.data) == before


async def test_a_key_that_others_may_read_is_told(settings):
    await prepare_instance(settings)
    key_file(settings).chmod(0o644)
    with pytest.raises(VaultError, match="chmod 600"):
        check_keys(settings)


def test_a_variable_that_is_not_set_is_told(settings, monkeypatch):
    monkeypatch.delenv("VAULT_KEY", raising=False)
    with pytest.raises(VaultError, match="VAULT_KEY"):
        check_keys(replace(settings, keys=KeySettings("env", "VAULT_KEY")))


def test_what_is_no_database_is_told_and_left_alone(settings):
    settings.data.mkdir()
    settings.store.file.write_text("shopping list")
    with pytest.raises(VaultError) as fault:
        check_store(settings)
    assert fault.value.code is Code.BAD_STORE
    assert settings.store.file.read_text() == "shopping list"


# ---------------------------------------------------------------------- a running instance


async def measured(started: Running, caller: aiohttp.ClientSession) -> str:
    """The metrics, as soon as the records have been counted."""
    headers = {"Authorization": f"Bearer {await bearer(started)}"}
    async with asyncio.timeout(PATIENCE):
        while True:
            async with caller.get(f"http://{started.admin}/metrics", headers=headers) as answer:
                text = await answer.text()
            if 'domicile_records{schema="person",state="live"} 0.0' in text:
                return text
            await asyncio.sleep(0.01)


async def test_a_running_instance_listens_answers_and_closes(settings, lines):
    async with running(settings) as started, aiohttp.ClientSession() as caller:
        async with caller.get(f"http://{started.admin}/readyz") as answer:
            assert answer.status == 200
        text = await measured(started, caller)
        async with caller.get(f"http://{started.proxy}/people/1") as answer:
            assert (answer.status, (await answer.json())["code"]) == (502, "upstream_unreachable")
        async with caller.get(f"http://{started.interface}/docs") as answer:
            assert answer.status == 200
        async with caller.post(
            f"http://{started.interface}/api/find", json={"schema": "person"}
        ) as answer:
            assert answer.status == 401
        addresses = {"admin": started.admin, "proxy": started.proxy, "vault": started.interface}
    assert "domicile_vault_writer_queue 0.0" in text
    assert {
        line["listener"]: line["address"] for line in lines() if line["event"] == "listening"
    } == addresses
    assert len([line for line in lines() if line["event"] == "listening"]) == 3
    async with aiohttp.ClientSession() as caller:
        for address in addresses.values():
            with pytest.raises(aiohttp.ClientConnectorError):
                await caller.get(f"http://{address}/")
    assert await prepare_instance(settings) is False  # the store is free again


@pytest.mark.parametrize("step", ["follow", "open_approvals", "announce_start"])
async def test_a_store_that_goes_away_when_it_listens_already_is_waited_for(
    settings, lines, monkeypatch, step
):
    (own,) = open_sockets("proxy", ("127.0.0.1", 0))
    engine, location = engine_of(settings.store.uri)
    waiting = engine._replace(patience=lambda _: PATIENCE)
    monkeypatch.setattr(instance, "engine_of", lambda _: (waiting, location))
    work, faults = getattr(instance, step), 2

    async def away(*arguments: object) -> object:
        nonlocal faults
        faults -= 1
        if faults >= 0:
            raise VaultError(Code.VAULT_DOWN, "The database went away.")
        return await work(*arguments)

    monkeypatch.setattr(instance, step, away)
    overrides = Overrides({}, sockets=(("proxy", own.fileno()),))
    with own:
        async with running(settings, overrides) as started, aiohttp.ClientSession() as caller:
            assert started.proxy == f"127.0.0.1:{own.getsockname()[1]}"
            async with caller.get(f"http://{started.proxy}/people/1") as answer:
                assert answer.status == 502
            async with caller.get(f"http://{started.admin}/readyz") as answer:
                assert answer.status == 200
    waits = "the start waits for the store, and is tried again"
    assert [line["text"] for line in lines() if line["event"] == waits] == [
        "The database went away."
    ]
    assert await prepare_instance(settings) is False  # the store is free again


async def test_rules_that_are_lost_let_nothing_pass_at_a_reload_or_a_start(settings):
    """With ``--upstream`` an empty folder means that everything passes, as before the first rules."""
    folder, only = settings.data.parent / "rules", Overrides({}, "http://127.0.0.1:9")
    folder.mkdir()
    settings = replace(settings, rules=folder)
    async with running(settings, only) as started:  # nothing is protected yet
        assert not started.rules.runtime.rules.operations
        (folder / "rules.yaml").write_text(rules("http://127.0.0.1:9"))
        assert await started.reloader.reload()
        (folder / "rules.yaml").unlink()
        assert not await started.reloader.reload()
        assert len(started.rules.runtime.rules.operations) == 10
        assert "no rule file any more" in str(await started.reloader.state.check())
    with pytest.raises(VaultError, match="the vault holds what rules have tokenized") as fault:
        async with running(settings, only):
            raise AssertionError("it must not start")
    assert fault.value.code is Code.BAD_RULES
    async with running(settings):  # the vault alone
        pass


async def test_a_port_of_others_ends_the_start_and_frees_the_store(settings):
    async with running(settings) as started:
        host, port = started.proxy.split(":")
        other = replace(
            settings,
            data=settings.data / "other",
            store=embedded_store(settings.data / "other" / "vault.db"),
            files=embedded_files(settings.data / "other" / "files"),
            keys=KeySettings("file", str(settings.data / "other" / "keys.json")),
            audit=replace(settings.audit, folder=settings.data / "other" / "audit"),
            listen=replace(
                settings.listen, proxy=settings.listen.proxy._replace(host=host, port=int(port))
            ),
        )
        with pytest.raises(VaultError) as fault:
            async with running(other):
                raise AssertionError("it must not start")
    assert fault.value.code is Code.PORT_IN_USE
    assert await prepare_instance(other) is False


async def test_a_second_instance_on_the_same_vault_is_refused(settings):
    async with running(settings):
        with pytest.raises(VaultError) as fault:
            async with running(settings):
                raise AssertionError("it must not start")
    assert fault.value.code is Code.STORE_BUSY


async def test_faulty_rules_end_a_first_start_before_anything_is_made(settings):
    settings.rules.write_text("")
    with pytest.raises(VaultError):
        async with running(settings):
            raise AssertionError("it must not start")
    assert not settings.data.exists()


async def test_a_part_of_the_upkeep_that_fails_is_told_of_once_and_takes_nothing_with_it(
    settings: Settings, lines: Callable[[], list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("Zorbina Quibblethwaite")

    monkeypatch.setattr(instance, "measure", broken)
    async with running(settings) as started, aiohttp.ClientSession() as caller:
        async with asyncio.timeout(PATIENCE):
            while not (told := [line for line in lines() if "task failed" in line["event"]]):  # noqa: ASYNC110  # a background task says so
                await asyncio.sleep(0.01)
        assert (await caller.get(f"http://{started.admin}/healthz")).status == 200
    assert [line["exception"] for line in told] == ["RuntimeError"]
    assert "Zorbina" not in json.dumps(lines())


# ---- What a start with no settings beyond the country loads


#: Libraries of settings that are off, or of work that comes later: loaded on demand.
ON_DEMAND = (
    "redis", "throttled", "maxminddb", "jwt", "phonenumbers", "prometheus_client", "tqdm",
    "cryptography.x509", "proxy.edge.geoip", "proxy.edge.shared_limits", "proxy.functions.worker",
    "proxy.demo", "wsgiref", "multiprocessing", "jsonpath_ng", "importlib.metadata", "proxy.objectstore.s3",
    "proxy.redactor.graphql", "proxy.redactor.exchange.rule_test_runner", "proxy.redactor.tools.watched",
    "proxy.redactor.tools.proposal", "proxy.redactor.tools.difference",
)  # fmt: skip


def test_start_loads_no_library_of_settings_that_are_off():
    text = (
        "import sys; import proxy.cli.serve, proxy.bootstrap.instance, proxy.cli.supervisor; "
        f"print([name for name in {ON_DEMAND!r} if name in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"
