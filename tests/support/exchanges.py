"""Exchanges over a rule text and a vault in memory: one call is one request and what the
application answered.
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import parse_qsl, urlencode

from msgspec import structs

from proxy.audit.services import Honeytokens, Misses
from proxy.crypto.keyset import Keyset
from proxy.errors import VaultError
from proxy.gateway.ports import Exchange
from proxy.model.schema import records_schema
from proxy.redactor.exchange.rule_exchange import RuleExchange
from proxy.redactor.exchange.runtime import Runtime, bind_rules
from proxy.redactor.message import RawHeaders, Request, Response
from proxy.redactor.rules import Match
from proxy.redactor.views import View, view_of
from proxy.storage.base import Store
from proxy.telemetry.metrics import Metrics
from proxy.vault.collection import Collection
from proxy.vault.records.repository import Records
from proxy.vault.schemas.catalog import Catalog, open_catalog
from proxy.vault.vault import Vault, VaultOptions, new_vault
from tests.support.audit import Kept, audit_services
from tests.support.clock import ManualClock
from tests.support.memory import MemoryStore
from tests.support.rules import loaded
from tests.support.stores import FailingStore

FIELDS = (
    "name: {kind: name}", "email: {kind: email, token: {shape: email, same: true}, find: [exact]}",
    "phone: {kind: phone, token: {shape: numeric, keep_last: 2}}",
    "born: {kind: date, token: {shape: date}}", 'tags: {kind: text, at: "$.tags[*]"}',
)  # fmt: skip
JSON: RawHeaders = ((b"Content-Type", b"application/json"),)
FORM: RawHeaders = ((b"Content-Type", b"application/x-www-form-urlencoded"),)
HTML: RawHeaders = ((b"Content-Type", b"text/html; charset=utf-8"),)
PLAIN: RawHeaders = ((b"Content-Type", b"text/plain"),)

#: One operation of each verb on one record, and a list.
USUAL = (
    "{match: POST /p, create: p}",
    '{match: GET /p, read: p, query: {email: {field: email}}, response: {each: "$[*]", id: $.id}}',
    '{match: "GET /p/{id}", read: p}',
    '{match: "PATCH /p/{id}", update: p}',
    '{match: "DELETE /p/{id}", delete: p}',
)


def rule_text(
    *operations: str,
    fields: tuple[str, ...] = FIELDS,
    more: str = "",
    entities: tuple[str, ...] = (),
) -> str:
    """A rule file with one entity ``p`` of these fields; ``more`` are further lines at its root,
    ``entities`` further ones.
    """
    caller = ', caller: {from: jwt, jwks: "http://localhost:9"}' if "views:" in more else ""
    lines = [
        "version: 1",
        f'endpoint: {{name: app, upstream: "http://127.0.0.1:3000"{caller}}}',
        more,
        "entities:",
        "  p:",
        "    fields:",
    ]
    lines += [f"      {field}" for field in fields] + list(entities)
    return (
        "\n".join([*lines, "operations:", *(f"  - {operation}" for operation in operations)]) + "\n"
    )


def member_form(**members: str) -> bytes:
    return urlencode(members).encode()


def headers_of(body: bytes, given: RawHeaders | None) -> RawHeaders:
    return (JSON if body else ()) if given is None else given


def written(body: Any) -> bytes:
    """Bytes as they are, anything else as JSON."""
    return body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()


@dataclass
class Call:
    """One request that was redacted and waits for its answer."""

    exchange: RuleExchange
    sent: Request

    @property
    def json(self) -> Any:
        """What the application got."""
        return json.loads(self.sent.body)

    @property
    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.sent.body.decode(), keep_blank_values=True))

    async def answer(
        self, status: int, body: Any = b"", headers: RawHeaders | None = None
    ) -> Response:
        """What the caller gets for this answer, by the way that the proxy goes."""
        raw = written(body)
        answer = Response(status, headers_of(raw, headers), raw)
        if self.exchange.must_buffer(status, answer.headers):
            return await self.exchange.restore_response(answer)
        await self.exchange.settled(status, answer.headers)
        self.exchange.pass_unread(status, answer.headers)
        return answer

    async def seen(self, status: int, body: Any = b"", headers: RawHeaders | None = None) -> Any:
        """The JSON that the caller gets."""
        return json.loads((await self.answer(status, body, headers)).body)


def head_refused(exchange: Exchange, request: Request) -> VaultError | None:
    """What a caller would be told that waits with its body."""
    try:
        exchange.check_head(structs.replace(request, body=b""))
    except VaultError as error:
        return error
    return None


@dataclass
class Desk:
    """Rules in force over a vault in memory, and all that a test of them turns."""

    runtime: Runtime
    vault: Vault
    store: FailingStore
    clock: ManualClock
    keyset: Keyset
    metrics: Metrics
    audit: Kept
    alarms: list[str]
    honeytokens: Honeytokens
    misses: Misses
    catalog: Catalog | None  #: where what the rules collect stands among records
    events: Counter[str] = field(default_factory=Counter)

    @property
    def people(self) -> Collection:
        return next(iter(self.runtime.joined.values())).collection

    async def send(
        self,
        match: str,
        body: Any = b"",
        headers: RawHeaders | None = None,
        view: View | None = None,
    ) -> Call:
        """Redact a request such as ``POST /p``; what is no bytes is sent as JSON.

        It begins a millisecond after all that was answered.
        """
        self.clock.advance(1)
        method, _, target = match.partition(" ")
        raw = written(body)
        request = Request(method, target.encode("latin-1"), headers_of(raw, headers), raw)
        host = next(iter(self.runtime.rules.endpoints[0].hosts), "app")
        _, matched = self.runtime.match(method, host, request.target, request.headers)
        assert isinstance(matched, Match), f"no rule matches {match}"
        # what a fork gives behaves alike
        exchange = cast(RuleExchange, self.runtime.exchange(matched, view))
        early = head_refused(exchange, request) if raw else None
        redacted = await exchange.redact_request(request)
        assert early is None, f"its head was refused, but not the request: {early}"
        return Call(exchange, redacted)

    def view(self, role: str) -> View:
        """What callers of a role see."""
        return view_of(self.runtime.rules.endpoints[0].views, {role})

    async def create(self, body: dict[str, Any], ident: int = 1) -> dict[str, Any]:
        """Create a record by ``POST /p``; what the application has of it."""
        call = await self.send("POST /p", body)
        stored: dict[str, Any] = {**call.json, "id": ident}
        await call.answer(201, {"id": ident})
        return stored

    async def shown(self, stored: Any, match: str = "GET /p/1") -> Any:
        """What a reader sees of what the application has."""
        return await (await self.send(match)).seen(200, stored)

    def records(self, schema: str) -> Records:
        """The records of a schema of the catalog."""
        assert self.catalog is not None
        return self.catalog.records(schema)

    async def counts(self) -> tuple[int, int, int]:
        """(records, of them pending, staged changes)."""
        return await self.store.count(self.people.table)

    @property
    def idle(self) -> bool:
        """Whether nothing is under way and nobody is locked out."""
        return not self.people.state.in_flight and len(self.people.state.locks) == 0


async def desk(
    *operations: str,
    fields: tuple[str, ...] = FIELDS,
    more: str = "",
    entities: tuple[str, ...] = (),
    before: Desk | None = None,
    hosted: bool = False,
    at: tuple[Store, ManualClock, Keyset] | None = None,
) -> Desk:
    """A desk with these operations; without any, ``USUAL``.

    ``before``: what another process left, whose store it takes over.

    ``at``: the store, clock and keys of an instance; a store in memory and fresh ones where nothing
    is said.

    ``hosted``: what the rules collect stands among the records of the program's own schema.
    """
    text = rule_text(*(operations or USUAL), fields=fields, more=more, entities=entities)
    if hosted:
        text = text.replace("    fields:", "    schema: records\n    fields:", 1)
    return await desk_of(text, before=before, hosted=hosted, at=at)


async def desk_of(
    text: str,
    before: Desk | None = None,
    hosted: bool = False,
    at: tuple[Store, ManualClock, Keyset] | None = None,
) -> Desk:
    """A desk with the rules of a text; the rest as above."""
    failing, clock, events, metrics = (
        FailingStore(MemoryStore()),
        ManualClock(),
        Counter[str](),
        Metrics(),
    )
    keyset = Keyset.create("test")
    if at is not None:
        failing, clock, keyset = FailingStore(at[0]), *at[1:]
    if before is not None:
        failing, clock, keyset = before.store, before.clock, before.keyset

    def observe(event: str, _schema: str, count: int) -> None:
        events[event] += count

    vault = new_vault(
        keyset, failing, clock, observe, VaultOptions("test", "SE", pending_keep=7 * 86_400_000)
    )
    rules = loaded(text)
    catalog = await open_catalog(vault, lambda error: None, (records_schema(),)) if hosted else None
    audit, alarms = Kept(), list[str]()
    seen = audit_services(audit, alarms)
    runtime = await bind_rules(rules, vault, metrics, seen, catalog)
    return Desk(
        runtime,
        vault,
        failing,
        clock,
        keyset,
        metrics,
        audit,
        alarms,
        seen.honeytokens,
        seen.misses,
        catalog,
        events,
    )
