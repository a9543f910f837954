"""Somebody writes to the database without a key: an older note is put back, and what it would give
is refused.
"""

import contextlib
import json
import shutil
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.audit.events import NOTES_OLDER
from proxy.audit.files import log_segments
from proxy.audit.verify import ROLLED_BACK
from tests.support.audit import lines
from tests.support.lives import Installation, Nursery, nursery
from tests.support.patience import PATIENCE
from tests.support.people import rules
from tests.support.scraping import FIELD

CREATE = ("client", "create", "--environment", "default")


class Thief:
    """Somebody with the database file of an installation, whose operator is with him."""

    def __init__(self, here: Installation) -> None:
        self.here = here

    def notes(self) -> dict[str, bytes]:
        with contextlib.closing(sqlite3.connect(self.here.data / "vault.db")) as connection:
            return dict(connection.execute("SELECT name, content FROM notes"))

    def put(self, notes: dict[str, bytes | None]) -> None:
        """Put notes back; ``None``: remove them."""
        with contextlib.closing(
            sqlite3.connect(self.here.data / "vault.db", timeout=10, isolation_level=None)
        ) as connection:
            for name, content in notes.items():
                connection.execute("DELETE FROM notes WHERE name = ?", (name,))
                if content is not None:
                    connection.execute("INSERT INTO notes VALUES (?, ?)", (name, content))

    def older_clients(self, before: dict[str, bytes]) -> tuple[str, bytes | None]:
        """The one note with clients that was written since, as it was."""
        (name,) = (
            name
            for name, content in self.notes().items()
            if name.startswith("clients/") and before.get(name) != content
        )
        return name, before.get(name)

    async def command(self, *argv: str, status: int = 0) -> dict[str, Any]:
        """What the operator's command says."""
        assert await self.here.run(*argv, "--json") == status, self.here.output + self.here.log
        return json.loads(self.here.output or b"{}")  # type: ignore[no-any-return]  # an object

    def alarms(self) -> list[tuple[str, str]]:
        """Kind of reason and subject of the alarm lines in the audit log."""
        told = [line for line in lines(self.here.data / "audit") if line["event"] == "alarm"]
        return [(line["reason"].split()[1], line.get("subject", "")) for line in told]


@pytest.fixture
async def cradle() -> AsyncIterator[Nursery]:
    async with nursery() as made:
        yield made


@pytest.fixture
async def thief(cradle: Nursery, tmp_path: Path) -> AsyncIterator[Thief]:
    here = Installation(cradle, tmp_path)
    here.rules.mkdir()
    (here.rules / "rules.yaml").write_text(rules("http://127.0.0.1:9"))
    made = Thief(here)
    await made.command("init")
    yield made
    await here.kill()


async def test_a_deleted_administrator_does_not_come_back_with_an_older_note(
    thief: Thief, tmp_path: Path
) -> None:
    left = await thief.command(*CREATE, "--admin", "who left")
    before = thief.notes()
    await thief.command("client", "disable", left["client_id"])
    shutil.copytree(thief.here.data, tmp_path / "whole")
    clients, older = thief.older_clients(before)
    for notes, named in (
        ({clients: older}, clients),
        ({clients: older, "root": None}, "root"),
        ({clients: older, "root": before["root"]}, "audit:default"),
    ):
        shutil.rmtree(thief.here.data)
        shutil.copytree(tmp_path / "whole", thief.here.data)
        thief.put(notes)
        assert await thief.here.run("store", "verify", "--json") == 1
        assert not await thief.here.start()
        assert f"The note {named} of the store is not the one".encode() in thief.here.log
        if named == clients:
            assert ("note", clients) in thief.alarms()
    shutil.rmtree(thief.here.data)
    shutil.copytree(tmp_path / "whole", thief.here.data)
    assert await thief.here.start(), "as it was, everything goes on"


async def test_the_operator_takes_notes_as_they_are_and_the_log_says_so(thief: Thief) -> None:
    before = thief.notes()
    await thief.command(*CREATE, "one more")
    clients, older = thief.older_clients(before)
    thief.put({clients: older})
    assert (await thief.command("store", "accept-notes"))["accepted"] == [clients]
    assert (await thief.command("store", "accept-notes"))["accepted"] == []
    assert (await thief.command("store", "verify"))["notes"] == []
    told = [line for line in lines(thief.here.data / "audit") if line.get("subject") == clients]
    assert [(line["event"], line["operation"], line["via"]) for line in told] == [
        ("admin", "accept_notes", "command")
    ]
    thief.put({"root": None})
    assert not await thief.here.start()
    assert (await thief.command("store", "accept-notes"))["accepted"] == ["root"]
    assert await thief.here.start()


async def test_a_note_that_is_changed_under_a_running_instance_raises_the_alarm(
    thief: Thief,
) -> None:
    before = thief.notes()
    await thief.command(*CREATE, "one more")
    assert await thief.here.start(upkeep=0.05)
    clients, older = thief.older_clients(before)
    thief.put({clients: older})
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(PATIENCE)) as caller:
        stale: list[str] = []
        while stale != ["notes"]:
            async with caller.get(thief.here.admin + "/readyz") as answer:
                stale = (await answer.json())["stale"]
                assert answer.status == 200, "what was read before stays in force"
        async with caller.get(thief.here.admin + "/metrics", headers=FIELD) as answer:
            assert 'domicile_alarms_total{kind="notes"} 1' in await answer.text()
    assert thief.alarms() == [("note", clients)]
    assert (
        len(thief.here.events("a note of the store was changed, rolled back, added or removed"))
        == 1
    )


@pytest.mark.slow
async def test_killed_at_any_write_of_a_note_the_next_start_finds_notes_and_root_agreed(
    thief: Thief,
) -> None:
    steps = [(f"note.{side}", nth) for nth in (1, 2, 3) for side in ("before", "after")]
    for step, nth in steps:
        thief.here.armed.touch()
        status = await thief.here.run(*CREATE, "one more", kill_at=step, nth=nth)
        thief.here.armed.unlink()
        assert status == -9, (step, nth)
        found = await thief.command("store", "verify")
        assert found["notes"] == []
        assert await thief.here.start()
        assert await thief.here.stop() == 0


async def test_a_database_that_was_put_back_whole_shows_against_the_audit_log_once(
    thief: Thief, tmp_path: Path
) -> None:
    shutil.copy(thief.here.data / "vault.db", tmp_path / "vault.db")
    await thief.command(*CREATE, "--admin", "who came later")
    assert await thief.here.start()
    assert await thief.here.stop() == 0
    shutil.copy(tmp_path / "vault.db", thief.here.data / "vault.db")
    found = await thief.command("audit", "verify", status=1)
    assert [fault["text"] for fault in found["faults"]][-1] == ROLLED_BACK
    for _ in range(2):
        assert await thief.here.start(), "a backup that the operator puts back is one, too"
        assert await thief.here.stop() == 0
        reasons = [
            line["reason"] for line in lines(thief.here.data / "audit") if line["event"] == "alarm"
        ]
        assert reasons == [NOTES_OLDER]
    await thief.command("audit", "verify")


async def test_everything_put_back_shows_against_lines_that_were_shipped(
    thief: Thief, tmp_path: Path
) -> None:
    shutil.copytree(thief.here.data, tmp_path / "older")
    await thief.command(*CREATE, "who came later")
    shipped = str(tmp_path / "shipped.log")
    whole = b"".join(path.read_bytes() for path in log_segments(thief.here.data / "audit"))
    (tmp_path / "shipped.log").write_bytes(whole)
    assert (await thief.command("audit", "verify", "--lines", shipped))["faults"] == []
    shutil.rmtree(thief.here.data)
    shutil.copytree(tmp_path / "older", thief.here.data)
    assert (await thief.command("audit", "verify"))["faults"] == []
    assert await thief.here.start(), "nothing in the folder tells it"
    assert await thief.here.stop() == 0
    found = await thief.command("audit", "verify", "--lines", shipped, status=1)
    assert [fault["text"] for fault in found["faults"]] == [ROLLED_BACK]


async def test_who_has_the_public_key_alone_verifies_lines_over_a_rotation(
    thief: Thief, tmp_path: Path
) -> None:
    first = await thief.command("audit", "public-key")
    pem = tmp_path / "audit.pem"
    pem.write_text(first["public_key"])
    keys = (await thief.command("keys", "rotate", "audit"))["audit"]
    assert [one["writes"] for one in keys] == [False, True]
    assert keys[0]["key_id"] == first["key_id"]
    await thief.command(*CREATE, "one more")
    last = max(line["n"] for line in lines(thief.here.data / "audit"))
    verify = ("audit", "verify", "--public-key", str(pem))
    found = await thief.command(*verify)
    assert found["proven"] == [{"first": 1, "last": last}]
    assert (await thief.command("audit", "verify"))["proven"] == found["proven"]
    (path,) = log_segments(thief.here.data / "audit")
    path.write_bytes(path.read_bytes().replace(b'"via":"command"', b'"via":"commend"', 1))
    assert (await thief.command(*verify, status=1))["proven"] != found["proven"]
    pem.write_text("nothing")
    assert await thief.here.run(*verify) == 1
    assert b"holds no public key" in thief.here.log


@pytest.mark.slow
async def test_killed_in_a_rotation_of_the_audit_key_the_log_goes_on_under_one_of_both(
    thief: Thief,
) -> None:
    steps = [(f"note.{side}", nth) for nth in (1, 2, 3, 4) for side in ("before", "after")]
    counts = []
    for step, nth in steps:
        thief.here.armed.touch()
        assert await thief.here.run("keys", "rotate", "audit", kill_at=step, nth=nth) == -9
        thief.here.armed.unlink()
        assert (await thief.command("audit", "verify"))["faults"] == []
        assert await thief.here.start()
        assert await thief.here.stop() == 0
        found = await thief.command("audit", "verify")
        last = max(line["n"] for line in lines(thief.here.data / "audit"))
        assert (found["faults"], found["proven"]) == ([], [{"first": 1, "last": last}])
        counts.append(len((await thief.command("keys", "list"))["audit"]))
        written = [
            line["reason"] for line in lines(thief.here.data / "audit") if "public_key" in line
        ]
        assert len(written) == counts[-1] - 1, "each of them writes, or has written"
    assert thief.alarms() == []
    assert counts[-1] > counts[0] == 1
    assert counts == sorted(counts), "no key that has written is forgotten"
