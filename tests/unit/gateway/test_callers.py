import asyncio
import json
import sys
import time
from dataclasses import replace
from email.utils import formatdate
from types import FrameType, SimpleNamespace
from typing import Any, cast

import pytest

from proxy.errors import Code, VaultError
from proxy.gateway.callers import Callers, authorization_token, certified_roles
from proxy.gateway.ports import ActiveRules
from proxy.net.response import RequestContext
from proxy.redactor.message import RawHeaders
from proxy.redactor.rules import Endpoint, Match, Operation, Position, Stream, Verb
from proxy.redactor.views import OUTSIDE_VIEW, UNKNOWN_VIEW, CallerRule, CallerSource, View
from tests.support.clock import ManualClock
from tests.support.gateway import endpoint, operation
from tests.support.issuer import (
    AUDIENCE,
    ISSUER,
    AskedIssuer,
    claims,
    document,
    made,
    public,
    token,
)
from tests.support.patience import slowness
from tests.support.table import table

KEY, NEXT = made("ES256"), made("ES256")
SALES = View("sales", frozenset({"sales"}), {})
JWT = CallerRule(CallerSource.JWT, "https://id.example/keys")
ASKED = CallerRule(CallerSource.INTROSPECTION, "https://id.example/ask", credentials="a:b")


class Door:
    """Callers of one endpoint."""

    def __init__(self, rule: CallerRule | None) -> None:
        self.issuer, self.clock = AskedIssuer(document(public(KEY, kid="one"))), ManualClock()
        self.callers = Callers(self.issuer, self.clock)
        self.endpoint = endpoint("http://app", caller=rule, views=(SALES,))
        self.certificate: dict[str, Any] = {}
        self.transports: list[Any] = []

    def token(self, key: Any = KEY, **more: Any) -> str:
        return token(key, claims(self.clock(), roles=["sales"], **more), kid="one")

    async def view(self, *fields: str, verb: Verb = Verb.READ, outside: bool = False) -> View:
        raw = tuple((b"Authorization", field.encode("latin-1")) for field in fields)
        transport = Transport(self.certificate)
        self.transports.append(transport)
        incoming = SimpleNamespace(
            head=SimpleNamespace(common={}),
            raw=raw,
            endpoint=self.endpoint,
            match=Match(operation(self.endpoint, verb), {}),
            connection=SimpleNamespace(transport=transport),
        )
        return await self.callers.view(cast(RequestContext, incoming), outside)


@table(
    ("rule", "began", "later", "code"),
    [
        (JWT, {"exp": 30}, None, None),
        (JWT, {"exp": 90}, 61, None),
        (JWT, {"exp": 30}, 31, Code.UNAUTHORIZED),
        (JWT, {"exp": 90}, "down", Code.ISSUER_UNREACHABLE),
        (ASKED, {"active": True}, 61, None),
        (ASKED, {"active": True}, {"active": False}, Code.UNAUTHORIZED),
        (ASKED, {"active": True}, {"active": True, "roles": []}, Code.UNAUTHORIZED),
    ],
)
async def test_a_stream_is_confirmed_as_long_as_its_view_is_proven(rule, began, later, code):
    door = Door(rule)
    shown = "opaque"
    if rule is JWT:
        shown = door.token(exp=door.clock() // 1000 + began["exp"])
    else:
        door.issuer.body = json.dumps({"roles": ["sales"], **began}).encode()
    incoming = asking(door, ((b"Authorization", f"Bearer {shown}".encode()),))
    view = await door.callers.view(incoming)
    rules = Rules(door.endpoint)
    assert view is SALES
    assert door.callers.confirming(incoming, view, rules.active) is None
    streaming(incoming, door.endpoint)
    confirm = door.callers.confirming(incoming, view, rules.active)
    assert confirm is not None
    await confirm()
    door.issuer.down = later == "down"
    if isinstance(later, dict):
        door.issuer.body = json.dumps({"roles": ["sales"], **later}).encode()
    door.clock.advance(later * 1000 if isinstance(later, int) else 61_000 if later else 0)
    if code is None:
        await confirm()
        return
    with pytest.raises(VaultError) as caught:
        await confirm()
    assert caught.value.code is code


class Rules:
    """Rules in force: of an endpoint with one stream, or with none."""

    def __init__(self, at: Endpoint) -> None:
        self.edition: object = at
        self.operation: Operation | None = operation(at, Verb.READ, Stream.SSE)

    def match(self, *_: object) -> tuple[object, Match | None]:
        one = self.operation
        return self.edition, None if one is None else Match(one, {})

    @property
    def active(self) -> ActiveRules:
        return cast(ActiveRules, self)


def streaming(incoming: RequestContext, at: Endpoint) -> None:
    """Have the request match a stream."""
    incoming.match = Match(operation(at, Verb.READ, Stream.SSE), {})


MOVED = Position("rules.yaml", 7, 3)


@table(
    ("change", "goes_on"),
    [
        (lambda one: replace(one, position=MOVED), True),
        (lambda one: replace(one, endpoint=replace(one.endpoint, views=(again(SALES),))), True),
        (lambda _: None, False),
        (lambda one: replace(one, response=replace(one.response, stream=Stream.NDJSON)), False),
        (lambda one: replace(one, endpoint=replace(one.endpoint, views=())), False),
        (
            lambda one: replace(
                one, endpoint=replace(one.endpoint, views=(View("sales", SALES.who, {"p": {}}),))
            ),
            False,
        ),
    ],
)
@table("view", [UNKNOWN_VIEW, None])
async def test_a_stream_ends_once_its_rule_says_something_else(change, goes_on, view):
    door = Door(JWT)
    incoming, rules = asking(door, ()), Rules(door.endpoint)
    streaming(incoming, door.endpoint)
    confirm = door.callers.confirming(incoming, view, rules.active)
    assert confirm is not None
    assert rules.operation is not None
    rules.operation, before = change(rules.operation), rules.operation
    await confirm()  # the same rules
    rules.edition = object()
    if goes_on:
        await confirm()
        rules.operation = None
        await confirm()  # it was looked at
        rules.edition = object()
    for _ in range(2):
        with pytest.raises(VaultError) as caught:
            await confirm()
        assert caught.value.code is Code.OPERATION_DENIED
        assert before.label in caught.value.message


def again(view: View) -> View:
    """The same view, read from its file again."""
    return View(view.name, view.who, view.levels)


def asking(door: Door, raw: RawHeaders) -> RequestContext:
    """A request with these fields."""
    head = SimpleNamespace(common={}, route=None, method="GET", host="app")
    request = SimpleNamespace(
        head=head, raw=raw, target=b"/", endpoint=door.endpoint, match=None, connection=None
    )
    return cast(RequestContext, request)


@table(
    ("role", "first", "again", "outside"),
    [
        ("dpo", False, True, False),  # the issuer is not asked for that
        ("sales", False, False, False),
        ("", False, False, False),
    ],
)
async def test_only_who_sees_everything_may_have_searches_in_addresses(role, first, again, outside):
    """An application that leads back to an address would tell others the token of a guess."""
    door, told = Door(JWT), ((b"Referer", b"/p?email=guess"),)
    whole = View("dpo", frozenset({"dpo"}), {}, whole=True)
    views = (whole, SALES)
    door.endpoint = replace(door.endpoint, views=views, searched=True, viewed=True)
    shown = token(KEY, claims(door.clock(), roles=[role]), kid="one")
    incoming = asking(door, ((b"Authorization", f"Bearer {shown}".encode()),))
    rules = cast(
        ActiveRules, SimpleNamespace(bare_addresses=lambda host, _: [(b"Host", host.encode())])
    )

    def passes(*, abroad: bool = False) -> bool:
        return door.callers.bare(rules, incoming, told, abroad) is told

    assert passes() is first
    await door.callers.view(incoming)
    assert passes() is again
    assert passes(abroad=True) is outside
    assert [*door.callers.bare(rules, incoming, told, True)] == [(b"Host", b"app")]
    incoming.endpoint = replace(door.endpoint, viewed=False)
    assert passes()
    assert not passes(abroad=True)
    incoming.endpoint = replace(door.endpoint, searched=False)
    assert passes(abroad=True)


class Transport:
    def __init__(self, certificate: dict[str, Any]) -> None:
        self.certificate, self.looks = certificate, 0

    def get_extra_info(self, name: str) -> Any:
        self.looks += 1
        return self.certificate if name == "peercert" else None


# ---------------------------------------------------------------------- tokens


async def test_a_signed_token_gives_its_roles_and_is_verified_once():
    door = Door(JWT)
    shown = door.token()
    assert await door.view(f"Bearer {shown}") is SALES
    assert await door.view(f"bearer  {shown} ") is SALES
    assert [(method, url) for method, url, *_ in door.issuer.asked] == [
        ("GET", "https://id.example/keys")
    ]


async def test_a_token_that_was_verified_costs_a_request_hardly_anything():
    door = Door(JWT)
    shown = f"Bearer {door.token()}"
    assert await door.view(shown) is SALES
    raw = ((b"Host", b"a"), (b"Authorization", shown.encode()))
    request = asking(door, raw)
    calls: list[str] = []

    def count(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and "/proxy/" in frame.f_code.co_filename:
            calls.append(frame.f_code.co_name)

    sys.setprofile(count)
    try:
        view = await door.callers.view(request)
    finally:
        sys.setprofile(None)
    assert view is SALES
    assert len(calls) <= 9, calls
    assert len(set(calls)) == 7, calls
    calls.clear()
    sys.setprofile(count)
    try:
        known = door.callers.cached_view(request)
    finally:
        sys.setprofile(None)
    assert known is SALES
    assert calls == ["cached_view", "_credential", "remembered", "view_of"]


async def test_who_a_caller_is_costs_a_request_under_3_microseconds():
    door = Door(JWT)
    shown = f"Bearer {door.token()}"
    assert await door.view(shown) is SALES
    raw = ((b"Host", b"a"), (b"Accept", b"*/*"), (b"Authorization", shown.encode()))
    request = asking(door, raw)
    best, most = 1.0, 3e-6 * slowness()  # 1.7 where this was written, for both
    for _ in range(200):  # the machine is shared: what counts is the quickest round
        began = time.thread_time()
        for _ in range(1000):
            door.callers.cached_view(request)
            await door.callers.view(request)
        best = min(best, (time.thread_time() - began) / 1000)
        if best < most:
            break
    assert best < most


async def test_requests_that_come_together_ask_once():
    door = Door(JWT)
    shown = f"Bearer {door.token()}"
    assert await asyncio.gather(*(door.view(shown) for _ in range(5))) == [SALES] * 5
    assert len(door.issuer.asked) == 1


@table(
    "fields",
    [
        (), ("",), ("Basic c2FsZXM6eA==",), ("Bearer",), ("Bearer ",), ("Bearer sales",),
        ("Bearer é",),
    ],
)  # fmt: skip
async def test_nothing_that_proves_a_role_is_a_caller_without_one(fields):
    door = Door(JWT)
    assert await door.view(*fields) is UNKNOWN_VIEW


async def test_two_tokens_prove_nothing():
    door = Door(JWT)
    shown = f"Bearer {door.token()}"
    assert await door.view(shown, shown) is UNKNOWN_VIEW


@table(
    "more",
    [
        {"exp": 1}, {"exp": None}, {"nbf": 9_999_999_999}, {"roles": ["Sales"]}, {"roles": None},
        {"key": NEXT},
    ],
)  # fmt: skip
async def test_a_token_that_does_not_count_is_a_caller_without_a_role(more):
    door = Door(JWT)
    said = claims(
        door.clock(), **{"roles": ["sales"], **{k: v for k, v in more.items() if k != "key"}}
    )
    shown = token(more.get("key", KEY), said, kid="one")
    assert await door.view(f"Bearer {shown}") is UNKNOWN_VIEW


async def test_issuer_and_audience_count_where_the_rule_names_them():
    rule = CallerRule(CallerSource.JWT, "https://id", issuer=ISSUER, audience=frozenset({AUDIENCE}))
    door = Door(rule)
    assert await door.view(f"Bearer {door.token()}") is SALES
    assert await door.view(f"Bearer {door.token(aud=['x', AUDIENCE])}") is SALES
    for wrong in ({"iss": "https://evil.example"}, {"iss": None}, {"aud": "x"}, {"aud": None}):
        assert await door.view(f"Bearer {door.token(**wrong)}") is UNKNOWN_VIEW
    assert await Door(JWT).view(f"Bearer {door.token(aud=None, iss=None)}") is SALES


async def test_a_token_ends_and_keys_are_rotated():
    door = Door(JWT)
    shown = f"Bearer {door.token()}"
    assert await door.view(shown) is SALES
    door.issuer.body = document(public(NEXT, kid="two"))
    door.clock.advance(61_000)
    assert await door.view(shown) is UNKNOWN_VIEW, "the key is gone"
    fresh = token(
        NEXT, claims(door.clock(), roles=["sales"], exp=door.clock() // 1000 + 30), kid="two"
    )
    assert await door.view(f"Bearer {fresh}") is SALES
    door.clock.advance(31_000)
    assert await door.view(f"Bearer {fresh}") is UNKNOWN_VIEW


async def test_an_issuer_that_cannot_be_asked_refuses_and_shows_no_other_view():
    door = Door(JWT)
    door.issuer.down = True
    with pytest.raises(VaultError) as caught:
        await door.view(f"Bearer {door.token()}")
    assert caught.value.code is Code.ISSUER_UNREACHABLE
    assert await door.view() is UNKNOWN_VIEW, "who shows no token is not in need of it"


async def test_a_token_may_be_asked_about():
    rule = CallerRule(
        CallerSource.INTROSPECTION, "https://id/ask", ("scope",), credentials="proxy:secret"
    )
    door = Door(rule)
    door.issuer.body = json.dumps({"active": True, "scope": "openid sales"}).encode()
    assert await door.view("Bearer opaque") is SALES
    assert await door.view("Bearer opaque") is SALES
    ((method, url, headers, body),) = door.issuer.asked
    assert (method, url, b"token=opaque" in body) == ("POST", "https://id/ask", True)
    assert headers["Authorization"].startswith("Basic ")
    door.issuer.body = b'{"active": false, "scope": "sales"}'
    assert await door.view("Bearer ended") is UNKNOWN_VIEW
    door.clock.advance(61_000)
    assert await door.view("Bearer opaque") is UNKNOWN_VIEW


async def test_without_a_way_to_ask_no_token_proves_anything():
    door = Door(JWT)
    door.callers = Callers()
    assert await door.view(f"Bearer {door.token()}") is UNKNOWN_VIEW
    assert await Door(None).view(f"Bearer {door.token()}") is UNKNOWN_VIEW


async def test_rules_that_come_and_go_leave_no_heap():
    door = Door(JWT)
    for number in range(250):
        door.endpoint = endpoint(
            "http://app",
            caller=CallerRule(CallerSource.JWT, f"https://id/{number}"),
            views=(SALES,),
        )
        assert await door.view(f"Bearer {door.token()}") is SALES
    assert len(door.callers._readers) <= 100


def test_one_field_names_one_token():
    def read(*fields: tuple[bytes, bytes]) -> str | None:
        headers: RawHeaders = ((b"Host", b"a"), *fields)
        return authorization_token(headers)

    assert read((b"AUTHORIZATION", b"BEARER a.b")) == "a.b"
    assert read((b"Authorisation!", b"Bearer a")) is None
    assert read((b"X-Authorized!", b"Bearer a")) is None


# ---------------------------------------------------------------------- certificates

CERTIFICATE = {
    "subject": (
        (("commonName", "ann"),),
        (("organizationalUnitName", "sales"), ("organizationalUnitName", "web")),
    ),
    "subjectAltName": (("DNS", "a.example"), ("URI", "role:sales"), ("DNS", "b.example")),
    "notAfter": "Jan  1 00:00:00 2099 GMT",
}


@table(
    ("part", "roles"),
    [
        (("subject", "organizationalUnitName"), {"sales", "web"}),
        (("subject", "commonName"), {"ann"}),
        (("subject", "organizationName"), set()),
        (("subjectAltName", "DNS"), {"a.example", "b.example"}),
        (("subjectAltName", "URI"), {"role:sales"}),
    ],
)
def test_roles_stand_in_a_part_of_a_certificate(part, roles):
    assert certified_roles(CERTIFICATE, part) == roles
    assert certified_roles({}, part) == frozenset()


async def test_a_verified_certificate_gives_its_roles_and_a_header_none():
    door = Door(CallerRule(CallerSource.CERTIFICATE))
    assert await door.view(f"Bearer {door.token()}") is UNKNOWN_VIEW
    door.certificate = CERTIFICATE
    assert await door.view() is SALES
    assert door.issuer.asked == []


async def test_a_certificate_that_ends_proves_nothing_on_a_connection_that_stays():
    """The handshake looked at its time; streams and requests that follow may last longer."""
    door = Door(CallerRule(CallerSource.CERTIFICATE))
    ends = formatdate(door.clock() // 1000 + 60, usegmt=True).split()
    door.certificate = {**CERTIFICATE, "notAfter": f"{ends[2]} {ends[1]} {ends[4]} {ends[3]} GMT"}
    incoming = asking(door, ())
    incoming.connection = cast(Any, SimpleNamespace(transport=Transport(door.certificate)))
    streaming(incoming, door.endpoint)
    view = await door.callers.view(incoming)
    confirm = door.callers.confirming(incoming, view, Rules(door.endpoint).active)
    assert view is SALES
    assert confirm is not None
    door.clock.advance(59_000)
    await confirm()
    door.clock.advance(1_000)
    assert await door.callers.view(incoming) is UNKNOWN_VIEW
    with pytest.raises(VaultError) as caught:
        await confirm()
    assert caught.value.code is Code.UNAUTHORIZED


async def test_a_certificate_is_looked_at_once_a_connection():
    door = Door(CallerRule(CallerSource.CERTIFICATE))
    door.certificate = CERTIFICATE
    transport = Transport(CERTIFICATE)
    incoming = SimpleNamespace(
        raw=(), endpoint=door.endpoint, match=None, connection=SimpleNamespace(transport=transport)
    )
    for _ in range(3):
        assert await door.callers.view(cast(RequestContext, incoming)) is SALES
    assert transport.looks == 1
    incoming.connection.transport = None
    assert await door.callers.view(cast(RequestContext, incoming)) is UNKNOWN_VIEW


# ---------------------------------------------------------------------- outside the country


@table("verb", list(Verb))
async def test_whoever_is_outside_may_only_read(verb):
    door = Door(JWT)
    shown = f"Bearer {door.token()}"
    if verb is Verb.READ:
        assert await door.view(shown, outside=True) is OUTSIDE_VIEW
        return
    with pytest.raises(VaultError) as caught:
        await door.view(shown, verb=verb, outside=True)
    assert (caught.value.code, door.issuer.asked) == (Code.OUTSIDE_COUNTRY, [])
