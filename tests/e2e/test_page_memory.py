"""Pages of large records: however many are asked for at once, the process stays within the
container that is shipped.
"""

import asyncio
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.office import Office, opened
from tests.support.patience import PATIENCE
from tests.support.tree import ROOT

#: The attack of the report: records of such a body, several pages of them, asked for by so many at
#: once.
RECORDS = 12
BODY = 3_900_000
CALLERS = 8

FIND = "/api/records/find"


def shipped_limit() -> int:
    """The memory that the container of the vault may take, in bytes."""
    documents: Iterable[Any] = yaml.safe_load_all(
        (ROOT / "k8s" / "base" / "statefulset.yaml").read_text()
    )
    (vault,) = [one for one in documents if one["kind"] == "StatefulSet"]
    containers = vault["spec"]["template"]["spec"]["containers"]
    (found,) = [
        one["resources"]["limits"]["memory"] for one in containers if one["name"] == "domicile"
    ]
    match = re.fullmatch(r"(\d+)Mi", found)
    assert match is not None
    return int(match[1]) * 2**20


def memory(office: Office, name: str) -> int:
    """What the kernel says of the process: ``VmRSS`` now, ``VmHWM`` at most."""
    assert office.instance.process is not None
    text = Path(f"/proc/{office.instance.process.pid}/status").read_text()
    match = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    assert match is not None
    return int(match[1]) * 1024


async def filled(office: Office) -> None:
    for number in range(RECORDS):
        record = {
            "record_key": f"r{number}",
            "country": "se",
            "body": f"{number:08}" + "x" * (BODY - 8),
        }
        await office.ask("POST", "/api/records", record, status=201)


async def walked(office: Office) -> list[str]:
    """The keys of all records, page by page; what was read of a page is let go."""
    keys: list[str] = []
    options: dict[str, Any] = {"limit": 1000}
    while True:
        page = await office.ask("POST", FIND, {"country": "se", "options": options})
        assert sum(len(one["body"]) for one in page["data"]) <= 16 * 2**20
        keys += [one["record_key"] for one in page["data"]]
        if "next" not in page["meta"]:
            return keys
        options["next"] = page["meta"]["next"]


@pytest.mark.slow
async def test_eight_finds_of_many_large_records_stay_within_the_shipped_container(tmp_path: Path):
    async with opened(tmp_path, {}) as office:
        await filled(office)
        whole = await asyncio.gather(*(walked(office) for _ in range(CALLERS)))
        assert whole == [[f"r{number}" for number in range(RECORDS)]] * CALLERS
        most = memory(office, "VmHWM")
        print(json.dumps({"peak_mib": most >> 20, "limit_mib": shipped_limit() >> 20}))
        assert most < shipped_limit()
        async with asyncio.timeout(PATIENCE):
            while memory(office, "VmRSS") > shipped_limit() // 2:  # noqa: ASYNC110  # what pages took comes back
                await asyncio.sleep(0.2)
