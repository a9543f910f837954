import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.bootstrap.schemas import declare, measure_schemas, open_schemas, redeclare
from proxy.errors import Code, VaultError
from proxy.model.schema import HASHED
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.reloads import Reload
from proxy.vault.schema_store import Origin
from tests.support.catalogs import make_shelf
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
