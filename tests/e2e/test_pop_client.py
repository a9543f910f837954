"""The official Python client of hosted services of this kind (incountry 5.0.0) against a running
instance, its whole interface in each mode.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from proxy.cli.remote import CLIENT_ID, CLIENT_SECRET
from tests.support.office import Office, opened
from tests.support.patience import PATIENCE
from tests.support.real.installed import POP_CLIENT, environment

DRIVER = Path(__file__).parents[1] / "support/real/popdriver.txt"
FILE = {"filename": "passport å.pdf", "mime_type": "application/pdf"}

#: What each step tells, whoever seals; but for what tells who did.
FIND = {
    "key": ["r-1"],
    "equal": ["r-2", "r-3"],
    "several": ["r-1", "r-3", "r-2"],
    "not": ["r-4", "r-5 &!~'\"%[]^|ö"],
    "profile": ["r-3", "r-2"],
    "service": ["r-1"],
    "parent": ["r-1"],
    "number": ["r-3"],
    "numbers": ["r-2", "r-3"],
    "between": ["r-3", "r-5 &!~'\"%[]^|ö", "r-1"],
    "not a number": ["r-1", "r-4", "r-5 &!~'\"%[]^|ö"],
    "or": ["r-1", "r-2", "r-3"],
    "none": [],
    "made": ["r-4", "r-2"],
    "ends": ["r-1"],
    "version": 5,
}
WRITTEN = {
    "body": '{"name": "Astrid Lind"}', "precommit_body": "draft", "profile_key": "p-1", "parent_key": "top",
    "service_key1": "s-1", "service_key2": None, "service_key5": "s-5", "key1": "Uppsala", "key2": None, "key20": "last",
    "range_key1": 41, "range_key2": None, "range_key10": -7, "expires_at": "2099-01-31 12:00:00+00:00", "attachments": "[]",
}  # fmt: skip
#: (version, is_encrypted) of the first record.
SEALED: dict[str, tuple[int, bool | None]] = {
    "SSE": (1, None), "LOCAL": (2, True), "OFF": (0, False),
}  # fmt: skip


@pytest.fixture(scope="module")
def python() -> Path:
    return environment(POP_CLIENT)


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    settings = {"DOMICILE__AUTH__TOKEN_LIFETIME": "10", "DOMICILE__RECORDS__PLAIN": "[key1]"}
    async with opened(tmp_path, settings) as made:
        yield made


async def drive(office: Office, python: Path, mode: str, *more: str) -> dict[str, Any]:
    """What the client met with, step by step."""
    known = (office.instance.vault, office.variables[CLIENT_ID], office.variables[CLIENT_SECRET])
    process = await asyncio.create_subprocess_exec(
        python,
        DRIVER,
        *known,
        mode,
        *more,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, told = await asyncio.wait_for(process.communicate(), 3 * PATIENCE)
    assert process.returncode == 0, told.decode()
    return dict(json.loads(out))


@pytest.mark.slow
async def test_the_whole_interface_of_the_client_in_every_mode(
    office: Office, python: Path
) -> None:
    for mode in SEALED:
        told = await drive(office, python, mode, *(["expire"] if mode == "SSE" else []))
        judge(told, mode)
        await cross_checked(office, mode)


def judge(told: dict[str, Any], mode: str) -> None:
    """Every step went as it should."""
    for step in ("written", "read", "one"):
        shown = told[step]
        assert WRITTEN.items() <= shown.items()
        assert (shown["record_key"], shown["version"], shown["is_encrypted"]) == (
            "r-1",
            *SEALED[mode],
        )
    assert told["batch"] == ["r-2", "r-3", "r-4"]
    assert (told["odd"], told["absent"], told["none"]) == ("odd", 404, None)
    assert {
        told["overwritten"][name] for name in ("key1", "key2", "range_key1", "profile_key")
    } == {None}
    assert told["find"] == FIND
    keys, meta, errors = told["page"]
    assert (keys, errors) == (["r-3", "r-2"], 0)
    assert meta == {"count": 2, "limit": 2, "offset": 2, "total": 5}
    assert told["like"] == told["search"] == (["r-1"] if mode == "SSE" else ["u-1"])
    assert told.get("sorted", ["u-1"]) == ["u-1"]
    if mode == "LOCAL":
        assert told["migrated"] == {"migrated": 1, "total_left": 0}
        assert (told["after migration"]["body"], told["after migration"]["version"]) == (
            "sealed before",
            2,
        )
    files_of(told)
    assert (told["deleted"], told["deleted again"]) == ({"success": True}, 404)
    assert (told["batch deleted"], told["left"]) == ({"success": True}, ["r-1", "r-4"])
    assert (told["health"], told["elsewhere"]) == ({"result": True}, 409)
    assert told["after a refusal"] == "r-1"
    if mode == "SSE":
        assert (told["after the end"], told["renewed"]) == ("r-1", True)


def files_of(told: dict[str, Any]) -> None:
    """What it met with of attachments."""
    added, replaced, renamed = told["added"], told["replaced"], told["renamed"]
    assert FILE.items() <= added.items()
    assert added["size"] == 20
    assert (replaced["file_id"], replaced["size"]) == (added["file_id"], 13)
    assert told["taken"] == 409
    assert (told["nameless"]["filename"], told["nameless"]["mime_type"]) == (
        "file",
        "application/octet-stream",
    )
    assert (told["got"], told["large"]) == (["passport å.pdf", "a better scan"], True)
    assert told["meta"] == replaced
    assert (renamed["filename"], renamed["mime_type"], renamed["hash"]) == (
        "id.pdf",
        "text/plain",
        replaced["hash"],
    )
    assert (told["attached"], told["file gone"], told["no such file"]) == (
        2,
        {"success": True},
        404,
    )
    assert told["files left"] == ["file"]


async def cross_checked(office: Office, mode: str) -> None:
    """The records are those of the record-based family, what the client has sealed as it sent it;
    then they end.
    """
    page = await office.ask(
        "POST", "/api/records/find", {"country": "se", "options": {"sort": [{"created_at": "asc"}]}}
    )
    first, last = page["data"]
    assert (first["range_key1"], last["range_key2"], len(first["attachments"])) == (41, 1, 1)
    keys = [first["record_key"], last["record_key"]]
    await office.ask(
        "POST", "/api/records/batch/delete", {"filter": {"record_key": keys}}, status=204
    )
    if mode == "SSE":
        assert (first["record_key"], first["key1"], first["body"]) == (
            "r-1",
            "Uppsala",
            '{"name": "Astrid Lind"}',
        )
        return
    assert len(first["record_key"]) == len(first["key1"]) == len(first["service_key5"]) == 64
    assert first["body"].startswith("2:" if mode == "LOCAL" else "pt:")
    assert ("Astrid" in json.dumps(page)) is False
