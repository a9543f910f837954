import os
import socket
from pathlib import Path

import pytest

from proxy.audit.chain import CHAIN_START
from proxy.audit.events import EventKind, encode_event
from proxy.audit.verify import log_lines, verify_log
from proxy.bootstrap.audit import AuditKeys, OpenAudit, auditor, open_audit
from proxy.bootstrap.instance import prepare_instance
from proxy.bootstrap.open_vault import open_environments, open_with_key
from proxy.clock import system_clock
from proxy.config import Settings, load_settings
from proxy.crypto.keyset import Keyset
from proxy.errors import Code, VaultError
from proxy.telemetry.metrics import Metrics
from tests.support.audit import lines, signatures, told
from tests.support.clock import ManualClock
from tests.support.memory import MemoryStore
from tests.support.patience import PATIENCE

KEYSET = Keyset.create("default")


async def opened(
    folder: Path, metrics: Metrics, store: MemoryStore | None = None, **environ: str
) -> OpenAudit:
    given = {f"DOMICILE__{name}": text for name, text in {"DATA": str(folder), **environ}.items()}
    audit = await open_audit(
        load_settings(None, given), store or MemoryStore(), KEYSET, ManualClock(), metrics
    )
    await audit.log.begin()
    return audit


async def test_the_log_goes_on_over_starts_and_its_keys_are_those_of_the_keyset(tmp_path):
    store, metrics = MemoryStore(), Metrics()
    for _ in range(2):
        audit = await opened(tmp_path, metrics, store)
        audit.log.put(encode_event(EventKind.WRITE))
        assert await audit.check() is None
        await audit.close()
    assert [line["n"] for line in lines(tmp_path / "audit")] == [1, 2, 3, 4, 5, 6]
    for keyset, whole in ((KEYSET, True), (Keyset.create("default"), False)):
        keys = (await AuditKeys(MemoryStore(), keyset).load()).listed()
        read = verify_log(log_lines(tmp_path / "audit"), signatures(), keys)
        assert (read.faults == []) is whole, "the first key is that of logs of earlier versions"
    assert "domicile_audit_line 6.0" in metrics.render().decode()


async def test_what_is_wrong_is_told_by_probe_and_metrics(tmp_path, monkeypatch):
    metrics = Metrics()
    audit = await opened(tmp_path, metrics)

    def full(_descriptor: int, _lines: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(VaultError) as raised:
        audit.log.put(encode_event(EventKind.WRITE))
    assert raised.value.code is Code.AUDIT_DOWN
    assert "No space left on device" in (await audit.check() or "")
    assert "domicile_audit_down 1.0" in metrics.render().decode()
    monkeypatch.undo()
    await audit.close()


async def test_a_log_that_was_cut_raises_an_alarm_that_is_counted(tmp_path):
    store, metrics = MemoryStore(), Metrics()
    await (await opened(tmp_path, metrics, store)).close()
    for path in (tmp_path / "audit").iterdir():
        path.unlink()
    await (await opened(tmp_path, metrics, store)).close()
    assert len(told(tmp_path / "audit", "alarm")) == 1
    assert 'domicile_alarms_total{kind="log"} 1.0' in metrics.render().decode()
    assert 'domicile_alarms_total{kind="bait"} 0.0' in metrics.render().decode()


async def test_the_settings_hold(tmp_path, capfdbinary):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(PATIENCE)
        audit = await opened(
            tmp_path,
            Metrics(),
            AUDIT__FOLDER=str(tmp_path / "elsewhere"),
            AUDIT__SYNC="true",
            AUDIT__SEGMENT="64KiB",
            AUDIT__KEEP="30d",
            AUDIT__STDOUT="true",
            AUDIT__SYSLOG=f"udp://127.0.0.1:{server.getsockname()[1]}",
        )
        assert b'"reason":"started"' in server.recv(65_536)
        await audit.close()
    options = audit.log._options
    assert (options.sync, options.segment, options.keep) == (True, 65_536, 30 * 86_400_000)
    assert len(lines(tmp_path / "elsewhere")) == 2
    assert capfdbinary.readouterr().out.count(b'"event":"log"') == 2


@pytest.fixture
def settings(tmp_path) -> Settings:
    return load_settings(
        None, {"DOMICILE__COUNTRY": "se", "DOMICILE__DATA": str(tmp_path / "data")}
    )


async def test_without_a_vault_there_is_nothing_to_look_at(settings):
    with pytest.raises(VaultError) as raised:
        await auditor(settings)
    assert raised.value.code is Code.BAD_STORE


async def test_the_log_is_looked_at_beside_the_instance_that_writes_it_and_after_it(settings):
    await prepare_instance(settings)
    assert (await auditor(settings)).checkpoint.checkpoint == CHAIN_START
    store, _ = await open_with_key(settings)
    _, keysets = await open_environments(settings, store)
    audit = await open_audit(settings, store, keysets["default"], system_clock, Metrics())
    await audit.log.begin()
    beside = await auditor(settings)
    assert beside.checkpoint.checkpoint.n == 1
    assert beside.record_id("default", "p", "1") == audit.services.record_id("default", "p", "1")
    assert beside.verify().faults == []
    await audit.close()
    await store.close()
    after = await auditor(settings)
    assert after.checkpoint.checkpoint.n == 2
    findings = after.verify()
    assert (findings.faults, findings.proven) == ([], [(1, 2)])
    assert 0 < findings.notes <= after.notes
