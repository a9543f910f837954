"""Faults of a start: one sentence that says what to do, exit status 1, nothing changed; ``check``
tells the same.
"""

import base64
import json
import os
import socket
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from shutil import copytree

import aiohttp
import pytest

from proxy.crypto.master_key import MasterKey
from tests.support.application import Application, found_in
from tests.support.crowd import MARKERS, Crowd
from tests.support.lives import Installation, nursery
from tests.support.log_lines import parsed
from tests.support.patience import PATIENCE
from tests.support.people import rules
from tests.support.serving import serving
from tests.support.unavailable import Unavailable


@pytest.fixture
async def crowd(tmp_path: Path) -> AsyncIterator[Crowd]:
    """Callers before an installation that holds one record and is stopped."""
    application = Application()
    async with (
        serving(application.app()) as upstream,
        nursery() as cradle,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(2 * PATIENCE)) as caller,
    ):
        installation = Installation(cradle, tmp_path)
        installation.rules.mkdir()
        (installation.rules / "rules.yaml").write_text(rules(upstream))
        crowd = Crowd(application, caller, installation)
        assert await installation.start()
        assert await crowd.create(0) == 201
        assert await installation.stop() == 0
        yield crowd
        await installation.kill()


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Mode and content of everything below a folder."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mode,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted(folder.rglob("*"))
    }


def told(installation: Installation) -> list[str]:
    """What a command wrote for people on standard error: everything but log lines."""
    return [line.decode() for line in installation.log.splitlines() if not parsed(line)]


async def refused(installation: Installation, *phrases: str) -> None:
    """A start says one sentence with these phrases, exits with status 1, and changes nothing."""
    before = contents(installation.folder / "data") if installation.data.is_dir() else {}
    assert await installation.run("serve") == 1, installation.log.decode()
    lines = told(installation)
    assert lines, "nothing was said"
    assert lines[0].startswith("domicile: ")
    assert all(line.startswith("  ") for line in lines[1:]), lines
    for phrase in phrases:
        assert phrase in lines[0], lines[0]
    assert "Traceback" not in installation.log.decode()
    for marker in MARKERS:
        assert not found_in(installation.log, marker)
    after = contents(installation.folder / "data") if installation.data.is_dir() else {}
    assert after == before


async def checked(installation: Installation) -> dict[str, str]:
    """What ``domicile check`` says: fault by part. It changes nothing either."""
    before = contents(installation.folder / "data") if installation.data.is_dir() else {}
    status = await installation.run("check", "--json")
    found = json.loads(installation.output)
    assert status == (0 if found["ok"] else 1)
    assert (contents(installation.folder / "data") if installation.data.is_dir() else {}) == before
    return {name: fault["message"] for name, fault in found["faults"].items() if fault}


# ---------------------------------------------------------------------- keys and store


def _edit(name: str, change: Callable[[bytes], bytes]) -> Callable[[Installation], None]:
    def damage(installation: Installation) -> None:
        path = installation.data / name
        mode = path.stat().st_mode
        path.write_bytes(change(path.read_bytes()))
        path.chmod(mode)

    return damage


def _newer(installation: Installation) -> None:
    with sqlite3.connect(installation.data / "vault.db") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()


def _other_program(installation: Installation) -> None:
    with sqlite3.connect(installation.data / "vault.db") as connection:
        connection.execute("PRAGMA application_id = 7")
    connection.close()


def _flip(content: bytes) -> bytes:
    """One bit in the first byte of the fourth page: its kind."""
    at = 3 * int.from_bytes(content[16:18], "big")
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def _log_alone(installation: Installation) -> None:
    (installation.data / "vault.db").rename(installation.data / "vault.db-wal")


def _in_place_of_the_database(make: Callable[[Path], None]) -> Callable[[Installation], None]:
    def damage(installation: Installation) -> None:
        (installation.data / "vault.db").unlink()
        make(installation.data / "vault.db")

    return damage


def _folder_for_a_key(installation: Installation) -> None:
    (installation.data / "keys.json").unlink()
    (installation.data / "keys.json").mkdir(0o700)


def _wrong_key(installation: Installation) -> None:
    raw = json.loads((installation.data / "keys.json").read_text())
    other = "".join(reversed(raw["key"].rstrip("="))) + "="
    key = base64.b64encode(base64.b64decode(other)).decode()
    raw.update(key=key, id=MasterKey(base64.b64decode(key)).id)
    (installation.data / "keys.json").write_text(json.dumps(raw))


#: What was done to the data folder: which part is at fault, and what has to be said.
DAMAGES: dict[str, tuple[Callable[[Installation], None], str, tuple[str, ...]]] = {
    "key open to others": (lambda one: (one.data / "keys.json").chmod(0o644), "keys", ("keys.json", "open to others", "chmod 600")),
    "key damaged": (
        _edit("keys.json", lambda text: text[:-20]),
        "keys",
        ("keys.json", "damaged", "backup"),
    ),
    "key is a folder": (_folder_for_a_key, "keys", ("keys.json", "not a regular file")),
    "key of another vault": (_wrong_key, "store", ("key",)),
    "key missing": (lambda one: (one.data / "keys.json").unlink(), "store", ("keys.json", "restore", "backup")),
    "database newer": (_newer, "store", ("vault.db", "newer version")),
    "database of another program": (_other_program, "store", ("vault.db", "another program")),
    "header garbage": (
        _edit("vault.db", lambda content: b"\xff" * 100 + content[100:]),
        "store",
        ("vault.db", "not a database", "backup"),
    ),
    "half a header": (
        _edit("vault.db", lambda content: content[:16] + b"\xa5" * 40 + content[56:]),
        "store",
        ("vault.db", "damaged", "backup"),
    ),
    "truncated": (
        _edit("vault.db", lambda content: content[: len(content) // 2]),
        "store",
        ("vault.db", "damaged", "backup"),
    ),
    "a flipped bit": (_edit("vault.db", _flip), "store", ("vault.db", "damaged", "backup")),
    "not a database": (
        _edit("vault.db", lambda _: b"dear diary\n" * 50),
        "store",
        ("vault.db", "not a database"),
    ),
    "a folder in its place": (
        _in_place_of_the_database(Path.mkdir), "store", ("vault.db", "is a folder", "backup")
    ),
    "a pipe in its place": (
        _in_place_of_the_database(os.mkfifo), "store", ("vault.db", "no regular file", "backup")
    ),
    "a log without its database": (_log_alone, "store", ("vault.db", "log", "backup")),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
async def test_a_damaged_data_folder_is_refused_and_left_as_it_is(crowd: Crowd, name: str) -> None:
    damage, part, phrases = DAMAGES[name]
    installation = crowd.installation
    kept = installation.folder / "kept"
    copytree(installation.data, kept)
    damage(installation)
    await refused(installation, *phrases)
    sentence = told(installation)[0].removeprefix("domicile: ")
    found = await checked(installation)
    assert found[part] == sentence
    assert set(found) <= {"keys", "store"}
    installation.environment["DOMICILE__DATA"] = str(kept)
    assert await installation.start()
    await crowd.judge()


async def test_every_fault_is_told_at_once_by_check(crowd: Crowd) -> None:
    installation = crowd.installation
    (installation.rules / "rules.yaml").write_text("version: 1\nendpoints: 3\nentity: {}\n")
    (installation.data / "keys.json").chmod(0o644)
    _edit("vault.db", lambda _: b"dear diary\n" * 50)(installation)
    assert set(await checked(installation)) == {"rules", "keys", "store", "upstream"}


# ---------------------------------------------------------------------- the surroundings


async def test_a_port_in_use_is_named_with_its_setting(crowd: Crowd) -> None:
    for listener in ("proxy", "vault", "admin"):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            crowd.installation.environment = {f"DOMICILE__LISTEN__{listener.upper()}": address}
            await refused(crowd.installation, address, f"listen.{listener}")
    crowd.installation.environment = {}
    assert await crowd.installation.start()
    await crowd.judge()


@pytest.mark.parametrize("place", ["a file", "below a file", "/proc/domicile"])
async def test_a_data_folder_that_cannot_be_written_is_refused(crowd: Crowd, place: str) -> None:
    file = crowd.installation.folder / "in-the-way"
    file.write_text("precious")
    data = {"a file": str(file), "below a file": str(file / "data")}.get(place, place)
    crowd.installation.environment = {"DOMICILE__COUNTRY": "se", "DOMICILE__DATA": data}
    await refused(crowd.installation, data, "cannot be written")
    sentence = told(crowd.installation)[0].removeprefix("domicile: ")
    found = await checked(crowd.installation)
    if not place.startswith("/proc"):  # whose modes tell nothing
        assert found["store"] == sentence
        assert set(found) <= {"store", "audit"}  # the audit log lies in the data folder, too
    assert file.read_text() == "precious"


async def test_a_data_folder_without_the_right_to_write_is_refused(
    crowd: Crowd, unavailable: Unavailable
) -> None:
    if os.geteuid() == 0:
        unavailable("a data folder whose mode forbids writing", "root may write everywhere")
    crowd.installation.data.chmod(0o500)
    try:
        await refused(crowd.installation, str(crowd.installation.data), "cannot be written")
        assert "store" in await checked(crowd.installation)
    finally:
        crowd.installation.data.chmod(0o700)


async def test_a_second_process_on_one_vault_is_refused_and_the_first_goes_on(crowd: Crowd) -> None:
    first = crowd.installation
    assert await first.start()
    second = Installation(
        first.nursery,
        first.folder / "second",
        {"DOMICILE__COUNTRY": "se", "DOMICILE__DATA": str(first.data)},
    )
    second.folder.mkdir()
    copytree(first.rules, second.rules)
    assert await second.run("serve") == 1
    assert "Another process owns the vault" in told(second)[0]
    assert await second.run("init") == 1
    assert await crowd.create(0) == 201
    await crowd.judge()


@pytest.mark.parametrize(
    ("environment", "phrase"),
    [
        ({"DOMICILE__FOO": "1"}, "DOMICILE__FOO"),
        ({"DOMICILE__LISTEN__PROXI": "127.0.0.1:0"}, "DOMICILE__LISTEN__PROXI"),
        ({"DOMICILE__COUNTRY": "Sweden"}, "country"),
        ({"DOMICILE__LISTEN__PROXY": "0.0.0.0:0"}, "insecure"),
        ({"DOMICILE__KEYS": "env:NO_SUCH_NAME"}, "NO_SUCH_NAME"),
    ],
)
async def test_settings_that_do_not_fit_are_refused(
    crowd: Crowd, environment: dict[str, str], phrase: str
) -> None:
    crowd.installation.environment = environment
    await refused(crowd.installation)
    assert phrase in "\n".join(told(crowd.installation))
    assert await checked(crowd.installation)


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("version: 1\nendpoint: {name: people, upstream: nonsense}\n", "rules.yaml:2"),
        ("version: 1\nendpoint: {name: people\n", "rules.yaml:"),
        ("", "rules"),
    ],
)
async def test_broken_rules_at_a_start_are_refused_and_make_no_vault(
    crowd: Crowd, text: str, phrase: str
) -> None:
    file = crowd.installation.rules / "rules.yaml"
    file.write_text(text)
    await refused(crowd.installation)
    assert phrase in "\n".join(told(crowd.installation))
    assert set(await checked(crowd.installation)) == {"rules", "upstream"}
    new = crowd.installation.folder / "new"
    crowd.installation.environment = {"DOMICILE__COUNTRY": "se", "DOMICILE__DATA": str(new)}
    await refused(crowd.installation)
    assert not new.exists()
