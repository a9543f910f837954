"""``remote.vault``: an instance without a vault uses that of another one, over mutual TLS."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from proxy.errors import VaultError
from proxy.redactor.exchange.owner_protocol import (
    PROTOCOL,
    Hello,
    PartDirection,
    Redact,
    RestoreAnswer,
    Settle,
    StreamPart,
)
from proxy.redactor.message import Request, Response
from tests.e2e.test_restart import CALLERS
from tests.e2e.test_workers import Patient, write_rules
from tests.support.application import Application
from tests.support.certificates import Authority
from tests.support.certificates import Pair as Certified
from tests.support.instance import Instance
from tests.support.patience import PATIENCE
from tests.support.people import ANN, rules
from tests.support.ports import closed_port
from tests.support.scraping import FIELD
from tests.support.serving import serving

SIDECAR = "sidecar.contacts.internal"


@dataclass
class Pair:
    """The instance that has the vault, one that uses it, and the application behind the latter."""

    application: Application
    owner: Instance
    front: Instance
    authority: Authority

    async def begin(self) -> None:
        """Start the front, again where the owner was too slow for it, as a supervisor would."""
        for left in range(9, -1, -1):
            try:
                await self.front.start()
                break
            except VaultError:
                if not left:
                    raise

    async def ready(self, status: int = 200) -> dict[str, Any]:
        """What the front tells of itself, once it answers so."""
        async with asyncio.timeout(PATIENCE), aiohttp.ClientSession() as caller:
            while True:
                async with caller.get(self.front.admin + "/readyz", headers=FIELD) as answer:
                    if answer.status == status:
                        data: dict[str, Any] = await answer.json()
                        return data
                await asyncio.sleep(0.05)


def side(authority: Authority, name: str) -> dict[str, str]:
    """The settings of one side, whose certificate is for that name."""
    own = authority.issue(name)
    return {
        "DOMICILE__REMOTE__AUTHORITIES": str(authority.certificate),
        "DOMICILE__REMOTE__CERTIFICATE": str(own.certificate),
        "DOMICILE__REMOTE__KEY": str(own.key),
    }


@asynccontextmanager
async def prepared(folder: Path, name: str = SIDECAR) -> AsyncIterator[Pair]:
    """Both, not started; the front shows a certificate for ``name``."""
    application, authority = Application(), Authority(folder)
    async with serving(application.app()) as upstream, AsyncExitStack() as stack:
        port = stack.enter_context(closed_port())
        owner = Instance(folder / "owner", environment={
            "DOMICILE__REMOTE__LISTEN": f"127.0.0.1:{port}",
            "DOMICILE__REMOTE__CLIENTS": f"[{SIDECAR}]",
            **side(authority, "localhost"),
        })  # fmt: skip
        front = Instance(folder / "front", environment={
            "DOMICILE__REMOTE__VAULT": f"localhost:{port}",
            "DOMICILE__FORWARDING__REQUEST_ID": "true",
            **side(authority, name),
        }, listeners=frozenset({"proxy", "admin"}))  # fmt: skip
        for one in (owner, front):
            one.rules.mkdir(parents=True)
            (one.rules / "rules.yaml").write_text(rules(upstream))
        try:
            yield Pair(application, owner, front, authority)
        finally:
            for one in (front, owner):
                await one.kill()


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Pair]:
    async with prepared(folder) as pair:
        await pair.owner.start()
        await pair.begin()
        yield pair


async def visit(at: Instance, ident: int | None = None) -> tuple[int, Any]:
    """Create a person, or read one."""
    async with aiohttp.ClientSession() as caller:
        people = at.proxy + "/people"
        asked = caller.post(people, json=ANN) if ident is None else caller.get(f"{people}/{ident}")
        async with asked as answer:
            return answer.status, await answer.json(content_type=None)


async def test_values_are_in_the_vault_of_the_other_one_and_nothing_is_kept_here(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as pair:
        status, made = await visit(pair.front)
        assert status == 201
        assert {name: made[name] for name in ANN} == ANN
        assert not pair.application.holds(str(ANN["name"]))
        for at in (pair.front, pair.owner):  # whoever asks that vault
            assert await visit(at, made["id"]) == (200, made)
        assert (await pair.ready())["checks"]["owner"] == "ok"
        assert not (pair.front.data / "vault.db").exists()
        assert not (pair.front.data / "keys.json").exists()
        refused = await pair.front.command("init", status=1)
        assert "This instance has no vault" in refused["message"]
        checked = await pair.front.command("check")
        assert checked["ok"], checked
        assert await pair.front.stop() == 0
        assert await pair.owner.stop() == 0
        assert (await pair.owner.command("audit", "verify"))["ok"]
        lines = [json.loads(line) for file in (pair.owner.data / "audit").glob("audit-*") for line in file.read_text().splitlines()]  # fmt: skip
        written = [line for line in lines if line["event"] == "write"]
        assert [bool(line.get("request")) for line in written] == [True], lines


async def test_it_begins_while_the_vault_has_two_hash_roots_and_needs_no_folder(
    tmp_path: Path,
) -> None:
    async with prepared(tmp_path) as pair:
        await pair.owner.command("init")
        told = (await pair.owner.command("keys", "rotate", "hash"))["data"][0]["hash"]
        assert len(told["keys"]) == 2
        await pair.owner.start()
        await pair.begin()
        status, made = await visit(pair.front)
        assert status == 201
        assert await visit(pair.front, made["id"]) == (200, made)
        assert await pair.front.stop() == 0
        assert not pair.front.data.exists()
        assert not pair.front.events("the coverage file could not be written")


async def test_only_named_certificates_may_use_the_vault(tmp_path: Path) -> None:
    async with prepared(tmp_path, "somebody.else") as pair:
        await pair.owner.start()
        with pytest.raises(VaultError, match="owner of the vault cannot be reached"):
            await pair.front.start()
        await pair.owner.logged("a certificate was shown that is not for a name in remote.clients")
        port = int(pair.owner.environment["DOMICILE__REMOTE__LISTEN"].rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x00\x00\x00\x10" + b"x" * 16)  # no TLS
        with suppress(ConnectionResetError):  # what was sent may not have been read
            assert await reader.read() in (b"", *(b"\x15\x03" + bytes([v]) + b"\x00\x02\x02" + bytes([k]) for v in range(5) for k in range(256)))  # fmt: skip
        writer.close()


async def test_another_country_or_other_rules_are_told(tmp_path: Path) -> None:
    async with prepared(tmp_path) as pair:
        await pair.owner.start()
        pair.front.environment["DOMICILE__COUNTRY"] = "no"
        with pytest.raises(VaultError, match="the vault keeps the data of se"):
            await pair.front.start()
        del pair.front.environment["DOMICILE__COUNTRY"]
        file = pair.front.rules / "rules.yaml"
        same = file.read_text()
        file.write_text(same + "\n# another version\n")
        await pair.begin()
        told = (await pair.ready(503))["checks"]["owner"]
        assert told == "The owner of the vault has other rules: give both the same files."
        assert (await visit(pair.front))[0] == 503
        file.write_text(same)
        await pair.ready()
        assert (await visit(pair.front))[0] == 201


@pytest.mark.slow
async def test_rules_come_to_one_after_the_other_and_each_may_be_killed_in_between(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as pair:
        callers = Patient(pair.front)
        async with asyncio.TaskGroup() as group:
            for number in range(CALLERS):
                group.create_task(callers.work(keep=bool(number % 2)))
            for fields in (1, 2):
                await callers.further(60)
                write_rules(pair.owner, fields)
                await pair.owner.logged("rules are active")
                await pair.owner.kill()
                await pair.owner.start()  # it has read nothing but the new ones
                pair.front.log.clear()
                await callers.further(60)
                assert b"has other rules than" not in pair.front.log
                write_rules(pair.front, fields)
                await pair.front.logged("rules are active")
                sent = {**ANN, f"nick{fields - 1}": f"Flumpergatan nick {fields}"}
                async with aiohttp.ClientSession() as caller:
                    async with caller.post(pair.front.proxy + "/people", json=sent) as answer:
                        assert (answer.status, await answer.json()) == (
                            201,
                            await answer.json() | sent,
                        )
                assert not pair.application.holds(f"Flumpergatan nick {fields}")
            callers.over = True
        assert callers.broken == []
        assert not pair.front.events("rules rejected; previous rules stay active")
        for ident in callers.made:
            status, seen = await visit(pair.front, ident)
            assert (status, seen.get("name")) == (200, ANN["name"])
        assert await pair.front.stop() == 0
        assert await pair.owner.stop() == 0
        for command in ("audit", "store"):
            assert (await pair.owner.command(command, "verify"))["ok"]


@pytest.mark.slow
async def test_while_the_owner_is_away_writes_are_refused_and_reads_show_tokens(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as pair:
        callers = Patient(pair.front)
        async with asyncio.TaskGroup() as group:
            for number in range(CALLERS):
                group.create_task(callers.work(keep=bool(number % 2)))
            await callers.further(100)
            await pair.owner.kill()
            await asyncio.sleep(6)  # longer than anybody waits for it
            took = []
            for _ in range(5):
                began = asyncio.get_running_loop().time()
                status, data = await visit(pair.front)
                assert (status, data["code"]) == (503, "vault_down")
                status, seen = await visit(pair.front, callers.made[0])
                assert status == 200, seen
                assert seen["name"] != ANN["name"], "a token"
                assert seen["vip"] == ANN["vip"], "what no rule names"
                took.append(asyncio.get_running_loop().time() - began)
            assert min(took) < 2, "nobody waits"
            assert "owner" in (await pair.ready(503))["checks"]
            await pair.owner.start()
            back = asyncio.get_running_loop().time()
            await callers.further(60)
            assert asyncio.get_running_loop().time() - back < PATIENCE / 2
            callers.over = True
        assert callers.broken == []
        for ident in callers.made:
            status, seen = await visit(pair.front, ident)
            assert (status, seen.get("name")) == (200, ANN["name"])


@pytest.mark.slow
async def test_a_front_that_is_killed_leaves_in_doubt_what_it_had_begun(tmp_path: Path) -> None:
    async with running(tmp_path) as pair:
        made: list[int] = []
        for _ in range(3):
            callers = Patient(pair.front)
            async with asyncio.TaskGroup() as group:
                for number in range(CALLERS):
                    group.create_task(callers.work(keep=bool(number % 2)))
                await callers.further(60)
                await pair.front.kill()
                callers.over = True
            made += callers.made
            await pair.begin()
        for ident in {*made, *pair.application.records}:
            status, seen = await visit(pair.front, ident)
            assert (status, seen.get("name")) == (200, ANN["name"]), (
                "the answer tells what was kept"
            )
        assert await pair.front.stop() == 0
        assert await pair.owner.stop() == 0
        assert (await pair.owner.command("store", "verify"))["ok"]


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"REMOTE__VAULT": "vault:1"}, "remote.vault needs remote.authorities"),
        ({"REMOTE__LISTEN": "127.0.0.1:1"}, "remote.listen needs remote.clients"),
        ({"REMOTE__AUTHORITIES": "ca.pem"}, "does nothing without remote.listen or remote.vault"),
        ({"REMOTE__VAULT": "vault:1", "REMOTE__LISTEN": "127.0.0.1:1"}, "set one"),
    ],
)
async def test_half_a_way_to_a_vault_is_refused(
    tmp_path: Path, environment: dict[str, str], told: str
) -> None:
    instance = Instance(
        tmp_path, environment={f"DOMICILE__{k}": text for k, text in environment.items()}
    )
    said = json.dumps(await instance.command("check", status=1))
    assert told in said


async def peer(pair: Pair, own: Certified) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the owner that shows that certificate."""
    context = ssl.create_default_context(cafile=str(pair.authority.certificate))
    context.load_cert_chain(own.certificate, own.key)
    port = int(pair.owner.environment["DOMICILE__REMOTE__LISTEN"].rpartition(":")[2])
    return await asyncio.open_connection("localhost", port, ssl=context)


def frame(*messages: object) -> bytes:
    content = msgspec.msgpack.encode(messages)
    return len(content).to_bytes(4) + content


HELLO = Hello(PROTOCOL, "0")


async def answered(pair: Pair, own: Certified, content: bytes, enough: bytes = b"") -> bytes:
    """What the owner says to that until it has said enough or ends the connection, or says nothing
    for a while.
    """
    got = b""
    try:
        reader, writer = await peer(pair, own)
    except OSError:  # of TLS as well
        return got
    writer.write(content)
    try:
        while some := await asyncio.wait_for(reader.read(1 << 16), PATIENCE):
            got += some
            if enough and enough in got:
                break
    except TimeoutError:
        got += b"waits"
    except OSError:
        pass
    writer.close()
    return got


async def let_in(pair: Pair, own: Certified) -> bool:
    return b"se" in await answered(pair, own, frame(HELLO), b"se")


async def stale(pair: Pair) -> str:
    """Why the owner's files for this way are not the newest ones."""
    async with (
        aiohttp.ClientSession() as caller,
        caller.get(pair.owner.admin + "/readyz", headers=FIELD) as answer,
    ):
        assert answer.status == 200, "such a fault is no outage"
        data = await answer.json()
        return data["checks"]["remote_certificates"] if "remote_certificates" in data["stale"] else ""  # fmt: skip


def replaced_files(pair: Pair, other: Authority) -> None:
    """Both sides have certificates of that authority, in place of the one before."""
    for instance, name in ((pair.owner, "localhost"), (pair.front, SIDECAR)):
        for file, source in side(other, name).items():
            if file != "DOMICILE__REMOTE__AUTHORITIES":
                Path(instance.environment[file]).write_bytes(Path(source).read_bytes())
    pair.authority.certificate.write_bytes(other.certificate.read_bytes())


async def test_new_certificates_of_both_sides_count_without_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as pair:
        (tmp_path / "new").mkdir()
        active, old = "new certificates are active", pair.authority.issue(SIDECAR, file="old")
        assert await let_in(pair, old)
        (tmp_path / "localhost.pem").rename(tmp_path / "kept.pem")
        await pair.owner.logged("TLS files rejected; previous certificates stay active")
        assert "certificate" in await stale(pair)
        assert await let_in(pair, old)
        (tmp_path / "kept.pem").rename(tmp_path / "localhost.pem")
        await pair.owner.logged(active)
        assert await stale(pair) == ""
        await asyncio.to_thread(replaced_files, pair, Authority(tmp_path / "new"))
        await pair.owner.logged(active, 2)
        status, made = await visit(pair.front)
        assert status == 201, "the connection that is there goes on"
        assert not await let_in(pair, old), "of an authority that counts no more"
        await pair.front.kill()
        await pair.begin()
        assert await visit(pair.front, made["id"]) == (200, made)


async def test_whoever_cannot_prove_its_name_is_not_let_in(tmp_path: Path) -> None:
    async with running(tmp_path) as pair:
        (tmp_path / "other").mkdir()
        assert await let_in(pair, pair.authority.issue(SIDECAR, file="good"))
        for own in (
            Authority(tmp_path / "other").issue(SIDECAR),
            pair.authority.issue(SIDECAR, days=-1, file="expired"),
            pair.authority.issue("somebody.else"),
        ):
            assert not await let_in(pair, own), own
        assert (await visit(pair.front))[0] == 201


async def test_a_peer_that_speaks_nonsense_loses_its_connection_and_nobody_else_does(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as pair:
        own = pair.authority.issue(SIDECAR, file="mine")
        request = Request("GET", b"/people/1", (), b"")
        begin = Redact(1, "no such rules", 99, {}, 99, request, ())
        came = RestoreAnswer(1, Response(200, (), b"{}"))
        for nonsense in (
            frame(begin), b"\x00\x00\x00\x00", b"\xff" * 4096, b"\x00\x00\x00\x08garbages",
            frame(Hello(999, "9"), begin), frame(HELLO, came), frame(HELLO, Settle(1, 200, ())),
            frame(HELLO, ["Unknown", 1]), frame(HELLO, StreamPart(1, 1, PartDirection.REDACT, b"{}")),
            frame(HELLO) + b"\x7f\xff\xff\xff",
        ):  # fmt: skip
            assert b"waits" not in await answered(pair, own, nonsense), nonsense
        asked = await answered(pair, own, frame(HELLO, begin), b"other rules")
        assert b"other rules" in asked, "a question that makes sense is answered"
        same = frame(HELLO, begin, begin)
        assert b"internal" not in await answered(pair, own, same + same)
        assert (await visit(pair.front))[0] == 201
        assert pair.owner.process is not None
        assert not pair.owner.events("a request failed inside the proxy")
