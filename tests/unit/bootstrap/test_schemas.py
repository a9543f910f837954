import asyncio
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.bootstrap import schemas
from proxy.bootstrap.schemas import declare, measure_schemas, open_schemas, redeclare
from proxy.errors import Code, VaultError
from proxy.model.schema import HASHED
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.reloads import Reload
from proxy.vault.schema_store import Origin
from proxy.vault.schemas.catalog import open_catalog
from tests.support.catalogs import make_shelf
from tests.support.memory import MemoryStore
from tests.support.patience import PATIENCE
from tests.support.stores import FailingStore
from tests.support.vaults import make_bench

CONTACT = "name: contact\nfields:\n  id: {type: primary_key}\n  age: {type: TYPE}\n"


def written(folder: Path, kind: str = "string") -> Path:
    (folder / "contact.yaml").write_text(CONTACT.replace("TYPE", kind))
    return folder


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """The log."""
    stream = io.StringIO()
    logs.configure(logs.Style("info", "json"), stream)
    yield stream
    logs.configure(logs.Style())


async def test_what_files_declare_is_in_force_at_start(tmp_path: Path) -> None:
    bench = await make_bench()
    catalog = await open_schemas(bench.vault, written(tmp_path), HASHED)
    assert catalog.declared("contact").origin is Origin.FILE
    await catalog.close()
    assert (await open_schemas(bench.vault, None, HASHED)).records("contact").name == "contact"


async def test_files_with_faults_prevent_a_start(tmp_path: Path) -> None:
    bench = await make_bench()
    with pytest.raises(VaultError) as refused:
        await open_schemas(bench.vault, written(tmp_path, "text"), HASHED)
    assert refused.value.code is Code.INVALID_SCHEMA
    assert refused.value.details[0].source.endswith("contact.yaml:4:9")


async def test_a_change_of_files_takes_effect_or_changes_nothing(
    tmp_path: Path, stream: io.StringIO
) -> None:
    shelf = await make_shelf()
    await declare(shelf.catalog, written(tmp_path, "json"))
    state = Reload(Metrics(), "schemas", "a fault")
    assert not await redeclare(shelf.catalog, written(tmp_path), state)
    assert await state.check() == "a fault"
    said = [json.loads(line) for line in stream.getvalue().splitlines()]
    told = [line for line in said if line["event"] == "a fault in a file with schemas"]
    assert [line["source"].rpartition("/")[2] for line in told] == ["contact.yaml:4:9"]
    assert shelf.catalog.declared("contact").schema.field("age").type == "json"
    (tmp_path / "contact.yaml").write_text(
        CONTACT.replace("TYPE", "json") + "  more: {type: date}\n"
    )
    assert await redeclare(shelf.catalog, tmp_path, state)
    assert await state.check() is None
    assert shelf.catalog.declared("contact").schema.field("more").type == "date"


async def test_gauges_tell_how_far_a_migration_is() -> None:
    shelf, metrics = await make_shelf(), Metrics()
    await shelf.apply(age={"type": "string"})
    measure_schemas(shelf.catalog, metrics)
    assert b"domicile_schema_migration_records{" not in metrics.render()
    await shelf.add("a", age="old")
    await shelf.apply(age={"type": "integer"})
    measure_schemas(shelf.catalog, metrics)
    for state in ("done", "total", "failed"):
        assert (
            f'domicile_schema_migration_records{{schema="contact",state="{state}"}} 1.0'.encode()
            in metrics.render()
        )


def counted(metrics: Metrics, event: str) -> float:
    return metrics.cell("domicile_vault_events_total", "person", event).value


@pytest.mark.parametrize("event", schemas.WARNINGS)
def test_what_somebody_must_know_of_is_counted_and_logged(event, lines):
    metrics = Metrics()
    schemas.observer(metrics)(event, "person", 3)
    assert counted(metrics, event) == 3
    (line,) = lines()
    assert (line["level"], line["room"], line["entity"], line["count"]) == (
        "warning",
        "bootstrap",
        "person",
        3,
    )
    assert line["event"] == schemas.WARNINGS[event]


def test_what_happens_every_day_is_counted_only(lines):
    metrics = Metrics()
    for _ in range(2):
        schemas.observer(metrics)("staged", "person", 2)
    assert counted(metrics, "staged") == 4
    assert lines() == []


def test_schemas_of_other_environments_bear_its_name():
    metrics = Metrics()
    schemas.observer(metrics, "acme")("staged", "person", 2)
    assert metrics.cell("domicile_vault_events_total", "acme:person", "staged").value == 2
    metrics.forget("acme:")
    assert b"acme:person" not in metrics.render()


def test_upkeep_that_failed_is_logged_with_its_code(lines):
    schemas.report(VaultError(Code.VAULT_DOWN, "The disk is full."))
    (line,) = lines()
    assert (line["level"], line["code"], line["text"]) == (
        "error",
        "vault_down",
        "The disk is full.",
    )


async def test_readiness_tells_why_the_vault_cannot_be_read(monkeypatch):
    class Broken:
        def collections(self) -> list[object]:
            return []

    async def pending(_collections: object) -> None:
        raise VaultError(Code.VAULT_DOWN, "The database was moved.")

    check = schemas.vault_check(Broken())  # type: ignore[arg-type]  # only its collections are asked for
    assert await check() is None
    monkeypatch.setattr(schemas, "pending", pending)
    assert await check() == "The database was moved."


async def test_gauges_are_fresh_again_after_the_vault_was_down(lines):
    store = FailingStore(MemoryStore())
    bench = await make_bench(store)
    catalog = await open_catalog(bench.vault, lambda error: None)
    store.fail("count", times=2)
    metrics = Metrics()
    task = asyncio.create_task(schemas.measure(lambda: [(bench.vault, catalog)], metrics, 0.005))
    for _ in range(int(PATIENCE / 0.005)):
        if (
            b'domicile_records{schema="test:person",state="live"}' in metrics.render()
            or task.done()
        ):
            break
        await asyncio.sleep(0.005)
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    told = [
        line
        for line in lines()
        if line["event"] == "the vault could not be measured and will be measured again"
    ]
    assert [line["code"] for line in told] == ["vault_down", "vault_down"]
