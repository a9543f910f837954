"""One gateway with its vault and application, and random exchanges for two of them: one goes the
fast path where it can, the other always the general one.

Each *house* has an engine, keys, a clock and an application of its own, which behaves as the
exchange says. What differs by chance (tokens, of which each house draws its own) is told by labels:
the how manieth it is.
"""

import asyncio
import gzip
import json
import random
import re
import socket
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proxy.clock import Clock
from proxy.crypto.keyset import Keyset
from proxy.gateway.callers import Callers
from proxy.gateway.fast_path_request import FastPathRequest
from proxy.gateway.forwarded import CallerFields
from proxy.gateway.gateway import Gateway, GatewayOptions
from proxy.gateway.metrics import MeteredAccessLog
from proxy.net.client import HttpUpstream
from proxy.net.listener import listen
from proxy.net.reply import LATER, CallLimits
from proxy.offload import SMALL
from proxy.redactor.exchange.front import FrontRules
from proxy.redactor.exchange.owner import OwnerTerms, VaultOwner
from proxy.redactor.exchange.owner_protocol import Reveal
from proxy.redactor.exchange.runtime import VaultRules, bind_rules
from proxy.redactor.select import _compile
from proxy.storage.base import Hooks
from proxy.storage.sqlite.store import open_sqlite
from proxy.telemetry.metrics import Metrics
from proxy.vault.vault import Vault, VaultOptions, new_vault
from tests.support.audit import Kept, audit_services
from tests.support.clock import ManualClock
from tests.support.gateway import keyed
from tests.support.patience import PATIENCE
from tests.support.rawclient import RawClient
from tests.support.rules import loaded
from tests.support.stores import vault_down
from tests.support.viewers import Badges, Register, with_views

FIELDS = ("name", "email", "phone", "note")
RULES = """\
version: 1
endpoint: {{name: app, upstream: "{upstream}"}}
entities:
  person:
    fields:
      name: {{kind: name}}
      email: {{kind: email, token: {{shape: email, same: true}}, find: [exact]}}
      phone: {{kind: phone}}
      note: {{kind: text, stored: plain}}
operations:
  - {{match: POST /p, create: person}}
  - {{match: "GET /p/{{id}}", read: person}}
  - {{match: GET /p, read: person, query: {{email: {{field: email}}}}, response: {{each: "$[*]"}}}}
  - {{match: "PUT /p/{{id}}", update: person}}
  - {{match: "PATCH /p/{{id}}", update: person}}
  - {{match: "DELETE /p/{{id}}", delete: person}}
"""
JSON = "Content-Type: application/json"
_WORD = re.compile(rb"\+?[0-9][0-9 -]{5,}[0-9](?![0-9A-Za-z@._])|[0-9A-Za-z@.+_-]{6,}")
#: The hash of a body in a tag of ours, and what depends on the number of the record.
_TAG = re.compile(rb"((?:ETag|etag): [^\r]*-domicile\.[swu])([0-9a-f]{32})(\.[0-9a-f]{16})?")
#: An id of a request, or of a trace, and that of a span.
_IDENT, _SPAN = re.compile(rb"\b[0-9a-f]{32}\b"), re.compile(rb"(?<=-)[0-9a-f]{16}(?=-)")
#: In a request: the tag of the last answer from its path.
LAST_TAG = b"{tag}"
#: In a request: what the application was sent last for a field of the record of that id.
_TOKEN = re.compile(rb"\{(\w+) of (\w+)\}")
_GZIP, _LENGTH = b"\x1f\x8b", re.compile(rb"Content-Length: \d+")
#: Metrics that both ways have to count alike.
COUNTED = (
    "domicile_protected_values_total",
    "domicile_restored_values_total",
    "domicile_masked_values_total",
    "domicile_vault_events_total",
    "domicile_requests_total",
    "domicile_altered_tokens_total",
    "domicile_undecided_updates_total",
    "domicile_upstream_errors_total",
    "domicile_refused_requests_total",
)


@dataclass
class Exchange:
    """What one exchange is to be: the same for both houses."""

    request: bytes
    #: what the application does: (its stored records, the number of the next one, body) -> bytes
    act: str
    fault: str = ""  #: of the store by kind of change, or ``audit``
    behind: bytes = b""  #: a request that is sent in the same breath
    seed: int = 0


class Even(random.Random):
    """An application that writes the same always."""

    def random(self) -> float:
        return 0.7


@dataclass
class House:
    """One of the two."""

    vault: Vault
    clock: ManualClock
    metrics: Metrics
    audit: Kept
    writer: Any
    port: int = 0
    fast_path: Counter[str] = field(default_factory=Counter)
    labels: dict[bytes, bytes] = field(default_factory=dict)
    learned: int = 0  #: tokens that have labels
    records: dict[str, dict[str, Any]] = field(default_factory=dict)  #: of the application
    known: dict[str, dict[str, Any]] = field(default_factory=dict)  #: the same, and deleted ones
    number: int = 0
    seen: list[bytes] = field(default_factory=list)
    script: deque[str] = field(default_factory=deque)
    dice: random.Random = field(default_factory=random.Random)
    fault: str = ""
    spelling: bytes | None = None  #: fields of its answers, in place of those that are drawn
    tags: dict[bytes, bytes] = field(default_factory=dict)  #: by target the last one
    #: labels of ids of requests that were drawn; ``None``: requests have none
    ids: dict[bytes, bytes] | None = None
    hashes: set[bytes] = field(default_factory=set)  #: of bodies, in all of them

    # ------------------------------------------------ what is compared

    def plain(self, data: bytes) -> bytes:
        """Bytes with labels in place of tokens, and of ids."""
        ids = self.ids
        if ids is not None:
            data = _IDENT.sub(lambda hit: ids.setdefault(hit[0], b"<id %d>" % len(ids)), data)
            data = _SPAN.sub(b"<span>", data)
        return _WORD.sub(lambda hit: self.labels.get(hit[0], hit[0]), data)

    def checked(self, target: bytes, head: bytes, body: bytes) -> bytes:
        """The head of an answer with words in place of the hash in its tag, if that is the one of
        the body, and of a mark.
        """
        tag = _TAG.search(head)
        if tag is None:
            return head
        coding = b"gzip" if b"Content-Encoding: gzip" in head else b""
        right = self.hashes
        if not head.startswith(b"HTTP/1.1 304"):
            right = {keyed(b"%b\0%b" % (coding, body)).hex().encode()}
            self.hashes |= right
        self.tags[target] = head[tag.start() + 6 :].partition(b"\r\n")[0]
        words = b"<hash>" if tag[2] in right else tag[2], b".<mark>" if tag[3] else b""
        return head[: tag.end(1)] + b"".join(words) + head[tag.end() :]

    def learn(self, body: bytes) -> None:
        """Give what stands in the fields of a redacted body labels."""
        try:
            document = json.loads(body)
        except ValueError:
            return
        for one in document if isinstance(document, list) else [document]:
            for name in FIELDS if isinstance(one, dict) else ():
                token = one.get(name)
                if not isinstance(token, str) or not _WORD.fullmatch(token.encode()):
                    continue
                if token.encode() not in self.labels:  # upper case may be the same: by chance
                    label, self.learned = b"%d>" % self.learned, self.learned + 1
                    self.labels[token.encode()] = b"<" + label
                    self.labels.setdefault(token.upper().encode(), b"<^" + label)

    def with_tokens(self, request: bytes) -> bytes:
        """A request with tokens where it names them, also of records that are no more."""

        def token(hit: re.Match[bytes]) -> bytes:
            of = self.known.get(json.dumps(int(hit[2])), {})
            return str(of.get(hit[1].decode()) or "nobody").encode()

        new = _TOKEN.sub(token, request)
        grown = len(new) - len(request)
        return _LENGTH.sub(lambda hit: b"Content-Length: %d" % (int(hit[0][16:]) + grown), new, 1)

    def told(self) -> list[dict[str, Any]]:
        """The lines of the audit log."""
        lines: list[dict[str, Any]] = [
            {**one, "request": self.plain(one["request"].encode())} if "request" in one else one
            for one in self.audit.lines
        ]
        return lines

    async def stored(self, key: str) -> object:
        """What the vault has under a key."""
        collection = next(iter(self.vault.collections()))
        row = (await collection.by_key([key])).get(key)
        if row is None:
            return None
        versions = await collection.versions(row)
        texts = [
            {
                name: [
                    (one.number, one.text, one.json, self.plain(one.token.encode()))
                    for one in values
                ]
                for name, values in version.values.items()
            }
            for version in versions
        ]
        at = row.updated_at, row.expires_at
        return row.version, row.state, at, row.staged, row.cells, texts

    async def counts(self) -> dict[object, object]:
        """Rows by state, who is under way, and what was counted."""
        collection = next(iter(self.vault.collections()))
        cells: dict[object, object] = {
            (name, labels): value
            for name in COUNTED
            for labels, value in self.metrics.samples(name)
            if value
        }
        steps: dict[object, object] = {
            labels: sum(one.counts)
            for labels, one in self.metrics._buckets["domicile_request_seconds"].items()
            if sum(one.counts)
        }
        store = collection.store
        busy = len(collection.state.locks), len(collection.state.in_flight)
        return {"rows": await store.count(collection.table), "busy": busy, **cells, "steps": steps}

    # ------------------------------------------------ the application

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection as the script says."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = re.search(rb"(?i)content-length: *(\d+)", head)
                body = await reader.readexactly(int(length[1])) if length else b""
                self.seen.append(head + body)
                self.learn(body)
                act = self.script.popleft() if self.script else "take"
                answer = self.answer(head, body, act)
                for number, piece in enumerate(answer):
                    if number:
                        await asyncio.sleep(0.002)
                    writer.write(piece)
                await writer.drain()
                if act in ("hang up", "cut", "cut chunks", "close", "bye"):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def answer(self, head: bytes, body: bytes, act: str) -> list[bytes]:
        """The pieces of an answer."""
        method, target, _ = head.split(b" ", 2)
        ident = target.partition(b"?")[0].rpartition(b"/")[2].decode("latin-1")
        try:
            sent = json.loads(body) if body else {}
        except ValueError:
            sent = {}
        if act == "hang up":
            return [b""]
        if act in REFUSALS:
            status = REFUSALS[act]
            told = json.dumps({"error": act, "input": sent, "raw": body.decode("latin-1")}).encode()
            location = b"Location: /login\r\n" if status == 302 else b""
            return [written(status, told, location)]
        record = self.act(method, ident, sent if isinstance(sent, dict) else {}, act)
        return self.spelled(record, method, act)

    def act(self, method: bytes, ident: str, sent: dict[str, Any], act: str) -> dict[str, Any]:
        """Do what a request asks for; the record as it is shown."""
        if method == b"POST":
            self.number += 1
            key: Any = self.number
            if act == "text id":
                key = f"k-{self.number}-Ab"
            if act == "same id" and self.records:
                key = json.loads(min(self.records, key=json.dumps))
            record = {**sent, "id": key}
            self.records[json.dumps(key)] = self.known[json.dumps(key)] = record
            return record
        keys = json.dumps(_int(ident)), json.dumps(ident)
        key = next((one for one in keys if one in self.records), "")
        known = self.records.get(key, {"id": _int(ident)})
        if method in (b"GET", b"HEAD"):
            return known
        if method == b"DELETE":
            self.records.pop(key, None)
            return {}
        if act == "not taken":
            return known
        if act == "declined":
            return {**known, **sent}
        record = {**(known if method == b"PATCH" else {"id": known["id"]}), **sent}
        if key:
            self.records[key] = self.known[key] = record
        return record

    def spelled(self, record: dict[str, Any], method: bytes, act: str) -> list[bytes]:
        """A record as the application writes it."""
        dice, shown = self.dice, shown_as(record, act)
        spaced = dice.random() < 0.5
        text = json.dumps(
            shown, ensure_ascii=dice.random() < 0.3, separators=None if spaced else (",", ":")
        ).encode()
        if act == "list":
            text = b"[%b]" % text
        if act == "bom":
            text = b"\xef\xbb\xbf" + text
        status = 201 if method == b"POST" else 200
        if act == "nothing":
            return [b"HTTP/1.1 204 No Content\r\n\r\n"]
        if method == b"HEAD":
            return [written(status, text)[: -len(text)]]
        drawn = dice.choice((TAGS[0], *TAGS)) if dice.random() < 0.4 else b""
        more = drawn if self.spelling is None else self.spelling
        return framed(act, status, text, more + EXTRA.get(act, b""))


def framed(act: str, status: int, text: bytes, more: bytes) -> list[bytes]:
    """An answer with that body and these fields, as an act has it."""
    kind = b"HTTP/1.1 %d OK\r\nContent-Type: application/json\r\n%b" % (status, more)
    whole = written(status, text, more)
    at, half = whole.index(b"\r\n\r\n") + 2, len(text) // 2
    sizes = half, text[:half], len(text) - half, text[half:]
    acts: dict[str, list[bytes]] = {
        "chunked": [
            kind + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % sizes
        ],
        "chunks": [
            kind + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b" % sizes[:2],
            b"\r\n%x\r\n%b\r\n" % sizes[2:],
            b"0\r\nX-Sum: 1\r\n\r\n",
        ],
        "close": [kind + b"\r\n" + text],
        "bye": [written(status, text, more + b"Connection: close\r\n")],
        "cut": [whole[:-7]],
        "cut chunks": [
            kind + b"Transfer-Encoding: chunked\r\n\r\n",
            b"%x\r\n%b\r\n%x\r\n%b" % sizes,
        ],
        "bad chunks": [
            kind + b"Transfer-Encoding: chunked\r\n\r\n",
            b"%x\r\n%b\r\nx\r\n%b" % (*sizes[:2], text),
        ],
        "split": [whole[:-9], whole[-9:]],
        "two writes": [whole[:at], whole[at:]],
        "interim": [b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + whole],
        "continue": [b"HTTP/1.1 100 Continue\r\n\r\n", whole],
        "zipped": [
            written(status, gzip.compress(text, mtime=0), more + b"Content-Encoding: gzip\r\n")
        ],
        "page": [whole.replace(b"application/json", b"text/html")],
        "not http": [b"garbage\r\n\r\n"],
    }
    return acts.get(act, [whole])


def shown_as(record: dict[str, Any], act: str) -> dict[str, Any]:
    """What an application shows of a record."""
    name = record.get("name")
    changes: dict[str, dict[str, Any]] = {
        "only id": {"id": record.get("id")},
        "no id": {name: value for name, value in record.items() if name != "id"},
        "turned": dict(reversed(record.items())),
        "upper": {**record, "name": name.upper() if isinstance(name, str) else name},
        "null": {**record, "phone": None},
        "large": {**record, "padding": "x" * 20_000},
        "other": {**record, "email": "somebody.else@example.org"},
        "declined": {**record, "errors": ["too short"]},
        "warned": {"ok": False, **record},
        "no errors": {"success": True, **record, "errors": []},
    }
    return changes.get(act, record)


REFUSALS = {"refused": 422, "missing": 404, "broken": 500, "moved": 302, "conflict": 409}
#: Fields that applications give each answer.
TAGS = (
    b'ETag: W/"6b-Vq3x"\r\nDate: Sat, 28 Nov 2026 10:00:00 GMT\r\nVary: Accept-Encoding\r\n',
    b'etag: "v7"\r\nLast-Modified: Sat, 28 Nov 2026 10:00:00 GMT\r\nVary: Origin\r\n',
    b"ETag: v2\r\nCache-Control: max-age=0, must-revalidate\r\n",
    b'ETag: "v3"\r\nETag: "v4"\r\n',
    b'ETag: "v"5"\r\nContent-MD5: x\r\n',
)
EXTRA = {
    "tagged": b'ETag: "v1"\r\n',
    "cookie": b"Set-Cookie: sid=1\r\n",
    "cached": b"Cache-Control: public, max-age=60\r\nX-Cache-Key: k\r\nExpires: 0\r\n",
    "twice": b"Content-Type: application/json\r\n",
}


def _int(text: str) -> Any:
    return int(text) if text.isdigit() else text


def written(status: int, body: bytes, more: bytes = b"") -> bytes:
    """An answer of JSON."""
    head = b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n"
    return head % (status, more, len(body)) + body


@asynccontextmanager
async def house(
    folder: Path,
    keyset: Keyset,
    *,
    fast_path: bool,
    fronted: bool = False,
    remote: bool = False,
    caller: tuple[str, Badges] | None = None,
    fields: CallerFields | None = None,
    expires: str = "",
) -> AsyncIterator[House]:
    """A house in that folder; ``fronted``: its gateway has no vault, and uses that of an owner,
    ``remote`` without a clock of both; ``caller``: how callers prove their roles; ``fields``: what the application is told of them;
    ``expires``: how long records live.
    """
    _compile.cache_clear()  # shapes of objects that other tests have taught are not those of this
    clock, metrics, audit = ManualClock(), Metrics(), Kept()
    store = await open_sqlite(str(folder / "vault.db"), Hooks())

    def observe(event: str, schema: str, count: int) -> None:
        metrics.cell("domicile_vault_events_total", schema, event).value += count

    vault = new_vault(
        keyset, store, clock, observe, VaultOptions("test", "SE", pending_keep=7 * 86_400_000)
    )
    made = House(vault, clock, metrics, audit, store._writer)
    made.ids = None if fields is None or fields.steady else {}
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    upstream = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    text = RULES if caller is None else with_views(RULES, caller[0])
    if expires:
        text = text.replace("  person:\n", f"  person:\n    expires: {expires}\n")
    rules = loaded(text.format(upstream=upstream))
    runtime = VaultRules(await bind_rules(rules, vault, metrics, audit_services(audit)))
    issuer = None if caller is None else Register(caller[1])
    options = GatewayOptions(
        HttpUpstream(CallLimits(head=20.0, idle=20.0, keep=60.0)),
        keyed,
        fast_path=fast_path,
        callers=Callers(issuer, clock),
        caller_fields=fields,
    )
    async with AsyncExitStack() as stack:
        in_use = (
            await stack.enter_async_context(_front(runtime, made, None if remote else clock))
            if fronted
            else runtime
        )
        gateway = Gateway(in_use, MeteredAccessLog(metrics, rules), options)
        if not fronted:
            _count_ways(gateway, made.fast_path)
        _arm(made)
        stack.push_async_callback(store.close)
        stack.callback(server.close)
        stack.push_async_callback(gateway.close)
        async with listen("proxy", ("127.0.0.1", 0), gateway.server) as place:
            made.port = int(place.rpartition(":")[2])
            yield made


@asynccontextmanager
async def _front(
    in_force: VaultRules, made: House, clock: Clock | None
) -> AsyncIterator[FrontRules]:
    """The rules of a front before an owner, with a real socket between them."""
    owner, loop = VaultOwner(in_force, OwnerTerms("SE", b"secret")), asyncio.get_running_loop()

    async def connect(make: Callable[[], asyncio.Protocol]) -> None:
        here, there = socket.socketpair()
        await loop.create_unix_connection(lambda: owner.connection(lambda _: True), sock=there)
        await loop.create_unix_connection(make, sock=here)

    begin = owner.begin

    def begun(way: Any, job: Any) -> Any:
        one, counts = begin(way, job), made.fast_path
        counts["revealed" if isinstance(job, Reveal) else "kept"] += one is not None
        counts["fast_path"] += one is not None
        return one

    owner.begin = begun  # type: ignore[method-assign]  # counted there
    rules = FrontRules(connect, 5.0, clock)
    rules.begin(in_force.runtime.rules)
    work = asyncio.create_task(rules.link.run())
    await rules.link.channel()
    yield rules
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    await owner.drain(0)
    await asyncio.sleep(0.01)  # until sockets are closed


def _count_ways(gateway: Gateway, ways: Counter[str]) -> None:
    """Count how exchanges go."""
    begin, handle = gateway.server.begin, gateway.server.handler

    def pending(incoming: Any) -> Any:
        one = begin(incoming)
        if one is not LATER:
            ways["fast_path" if isinstance(one, FastPathRequest) else "general"] += 1
        return one

    async def handled(incoming: Any) -> None:
        if isinstance(incoming.pending, FastPathRequest):
            ways["handed over"] += 1
        await handle(incoming)

    gateway.server.begin, gateway.server.handler = pending, handled


def _arm(made: House) -> None:
    """Let commits of a kind of change fail while ``made.fault`` names it."""
    accept: Callable[..., bool] = made.writer.accept

    def accepted(item: Any, *, small: bool = False) -> bool:
        waiter, *rest = item
        kinds = {type(one).__name__ for one in rest[1]} if len(rest) == 2 else set()
        if made.fault in kinds:
            asyncio.get_running_loop().call_soon(waiter.set_exception, vault_down())
            return True
        return accept(item, small=small)

    made.writer.accept = accepted


async def carried(
    one: House, exchange: Exchange, *, whole: bool = False
) -> list[tuple[bytes, bytes] | str]:
    """Have an exchange done, which is sent ``whole`` or in pieces; what its caller sees."""
    one.clock.advance(1000)
    one.script.clear()
    one.script.append(exchange.act)
    one.dice = random.Random(exchange.seed)
    one.fault = exchange.fault
    one.audit.down = exchange.fault == "audit" and exchange.seed % 2 == 0
    shown: list[tuple[bytes, bytes] | str] = []
    sent = [text for text in (exchange.request, exchange.behind) if text]
    asked = [text.split(b" ", 2)[:2] for text in sent]
    async with RawClient(one.port) as client:
        for (_, target), text in zip(asked, sent, strict=True):
            data = one.with_tokens(text).replace(LAST_TAG, one.tags.get(target, b'W/"none"'), 1)
            if one.ids is not None and exchange.seed % 3:  # a trusted proxy in front gave it one
                data = data.replace(b"\r\n", b"\r\nX-Request-Id: r%d\r\n" % (exchange.seed % 50), 1)
            # a refusal of its head ends the connection unless all of the body is there
            cuts = len(data) > SMALL and not whole and f"{JSON}\r\n".encode() in data
            cut = exchange.seed % len(data) if cuts else len(data)
            await client.send(data[:cut])
            if cut < len(data):
                await asyncio.sleep(0.001)
                await client.send(data[cut:])
        for method, target in asked:
            try:
                message = await asyncio.wait_for(client.answer(method.decode()), PATIENCE)
            except (ConnectionError, asyncio.IncompleteReadError, EOFError) as error:
                shown.append(type(error).__name__)
                break
            head, body = message.head, message.body
            if body[:2] == _GZIP:  # it may hold tokens, of which its length depends as well
                head, body = _LENGTH.sub(b"Content-Length: <>", head), gzip.decompress(body)
            if len(exchange.request) > SMALL:
                # whose connection is kept, where it is refused by its head, if its body comes in
                # time: on a machine with much to do it may not
                head = head.replace(b"Connection: close\r\n", b"")
            head = one.checked(target, head, body)
            shown.append((one.plain(head), one.plain(body)))
    await asyncio.sleep(0)
    one.fault, one.audit.down = "", False
    return shown
