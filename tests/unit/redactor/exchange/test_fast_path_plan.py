"""Which operations have ordinary exchanges, and which requests are such."""

import json
import random
import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from proxy.crypto.keyset import Keyset
from proxy.redactor.exchange import fast_path_plan as fast_path_plan_module
from proxy.redactor.exchange.fast_path_plan import FastPathPlan, _LeafPlan, fast_path_plan
from proxy.redactor.exchange.runtime import Runtime, VaultRules, bind_rules
from proxy.redactor.guard import CutBody
from proxy.redactor.json.native import NativeCode
from proxy.redactor.load import load_text
from proxy.redactor.message import Request
from proxy.redactor.rules import Match
from proxy.redactor.views import OUTSIDE_VIEW, view_of
from proxy.storage.base import Hooks, Store
from proxy.storage.sqlite.store import open_sqlite
from proxy.telemetry.metrics import Metrics
from proxy.vault.body import TokenizedValue
from proxy.vault.vault import VaultOptions, new_vault
from tests.support.audit import Kept, audit_services
from tests.support.clock import ManualClock
from tests.support.effort import rounds
from tests.support.exchanges import JSON, rule_text
from tests.support.memory import MemoryStore
from tests.support.native import compiled
from tests.support.unavailable import Unavailable

FLAT = ("name: {kind: name}", "email: {kind: email}")
CREATE = "{match: POST /p, create: p}"
READ = '{match: "GET /p/{id}", read: p}'
UPDATE = '{match: "PUT /p/{id}", update: p}'


async def bound(
    store: Store,
    *operations: str,
    fields: tuple[str, ...] = FLAT,
    more: str = "",
    expires: str = "",
    versions: str = "current",
) -> Runtime:
    vault = new_vault(
        Keyset.create("test"),
        store,
        ManualClock(),
        lambda _event, _schema, _count: None,
        VaultOptions("test", "SE", pending_keep=1),
    )
    text = rule_text(*operations, fields=fields, more=more)
    text = text.replace("    fields:", f"    versions: {versions}\n    fields:", 1)
    rules = load_text(
        text.replace("    fields:", f"    expires: {expires}\n    fields:", bool(expires))
    )
    return await bind_rules(rules, vault, Metrics(), audit_services(Kept()))


def plan_of(runtime: Runtime) -> FastPathPlan | None:
    return fast_path_plan(runtime.joined[id(runtime.rules.operations[0])], runtime.vault)


@pytest.mark.parametrize("operation", [CREATE, READ, UPDATE])
async def test_one_flat_record_of_json_is_ordinary(tmp_path: Path, operation: str) -> None:
    store = await open_sqlite(str(tmp_path / "vault.db"), Hooks())
    try:
        runtime = await bound(store, operation)
        plan = plan_of(runtime)
        assert plan is not None
        assert plan is plan_of(runtime)
    finally:
        await store.close()


@pytest.mark.parametrize(("operation", "ordinary"), [(CREATE, True), (READ, True), (UPDATE, False)])
async def test_an_update_is_not_where_earlier_values_are_kept(
    tmp_path: Path, operation: str, ordinary: bool
) -> None:
    store = await open_sqlite(str(tmp_path / "vault.db"), Hooks())
    try:
        plan = plan_of(await bound(store, operation, versions="keep"))
        assert (plan is not None) is ordinary
    finally:
        await store.close()


@pytest.mark.parametrize("operation", [CREATE, READ, UPDATE])
async def test_so_is_one_that_expires(tmp_path: Path, operation: str) -> None:
    store = await open_sqlite(str(tmp_path / "vault.db"), Hooks())
    try:
        assert plan_of(await bound(store, operation, expires="90d")) is not None
    finally:
        await store.close()


@pytest.mark.parametrize(
    ("operation", "fields"),
    [
        ('{match: "DELETE /p/{id}", delete: p}', FLAT),
        ('{match: GET /p, read: p, response: {each: "$[*]"}}', FLAT),
        (CREATE, ('street: {kind: text, at: "$.address.street"}',)),
        (CREATE, ("email: {kind: email, check: true}",)),
        (CREATE, ("name: {kind: name, token: {shape: plain}, stored: plain}",)),
        ('{match: POST /p, create: p, response: {id: "header Location /p/{id}"}}', FLAT),
        ('{match: "PUT /p", update: p, id: $.id}', FLAT),
        ('{match: "PATCH /p/{id}", update: p, request: {patch: json}}', FLAT),
    ],
)
async def test_others_are_not(tmp_path: Path, operation: str, fields: tuple[str, ...]) -> None:
    store = await open_sqlite(str(tmp_path / "vault.db"), Hooks())
    try:
        assert plan_of(await bound(store, operation, fields=fields)) is None
    finally:
        await store.close()


VIEWS = """\
views:
  - {who: [all], p: clear}
  - {who: [some], p: clear, except: {email: mask}}
  - {who: [few], p: token, except: {name: clear}}
  - {who: [none], p: token}
"""


@pytest.mark.parametrize(
    ("operation", "roles"),
    [
        (READ, ["all", "some", "few"]),
        (CREATE, ["all", "some", "few"]),
        (UPDATE, ["all"]),
    ],
)
async def test_callers_are_ordinary_who_see_something_and_send_back_no_mask(
    tmp_path: Path, operation: str, roles: list[str]
) -> None:
    store = await open_sqlite(str(tmp_path / "vault.db"), Hooks())
    try:
        runtime = await bound(store, operation, more=VIEWS)
        in_force, rule = VaultRules(runtime), runtime.rules.operations[0]
        match = Match(rule, {}, runtime)
        planned = {
            role: in_force.fast_path(match, (), view_of(rule.endpoint.views, {role}))
            for role in ("all", "some", "few", "none", "nobody")
        }
        assert [role for role in planned if planned[role] is not None] == roles
        assert in_force.fast_path(match, ()) is None, "nobody has no view"
    finally:
        await store.close()


async def test_no_view_counts_where_the_rules_have_none(tmp_path: Path) -> None:
    store = await open_sqlite(str(tmp_path / "vault.db"), Hooks())
    try:
        runtime = await bound(store, READ)
        match = Match(runtime.rules.operations[0], {}, runtime)
        assert VaultRules(runtime).fast_path(match, ()) is not None
        assert VaultRules(runtime).fast_path(match, (), OUTSIDE_VIEW) is None
    finally:
        await store.close()


async def test_nor_is_any_where_the_store_has_to_be_waited_for() -> None:
    assert plan_of(await bound(MemoryStore(), CREATE)) is None


@pytest.mark.parametrize(
    ("body", "ordinary"),
    [
        ({"name": "Ann Lee", "email": "ann@example.com", "age": 7}, True),
        ({"name": "Ann Lee", "email": None, "age": 7}, True),
        ({"name": "Ann Lee", "email": "", "age": 7}, True),
        ({"name": None, "email": "", "age": 7}, False),
        ({"name": 12, "email": "ann@example.com", "age": 7}, False),
        ({"name": 'Ann "A" Lee', "email": "ann@example.com", "age": 7}, False),
        ({"name": "Ann Lee", "email": "ann@example.com", "age": "Ann Lee"}, False),
        ([{"name": "Ann Lee", "email": "ann@example.com", "age": 7}], False),
    ],
)
async def test_a_request_is_ordinary_that_holds_texts_and_these_nowhere_else(
    tmp_path: Path, body: Any, ordinary: bool
) -> None:
    store = await open_sqlite(str(tmp_path / "vault.db"), Hooks())
    try:
        runtime = await bound(store, CREATE)
        plan, operation = plan_of(runtime), runtime.rules.operations[0]
        assert plan is not None
        selection = runtime.joined[id(operation)].plan.request
        assert selection is not None
        assert selection.selection is not None
        for number in range(5):  # objects that come again are looked at by patterns
            met = {"name": f"Bo {number}", "email": f"bo{number}@example.com", "age": 7}
            selection.selection.find(json.dumps(met).encode())
        request = Request("POST", b"/p", JSON, json.dumps(body).encode())
        exchange = plan.begin(Match(operation, {}, runtime), request)
        assert (exchange is not None) is ordinary
        if exchange is not None:
            assert b"Ann Lee" not in exchange.sent
    finally:
        await store.close()


@pytest.mark.parametrize("keeps", ["nulls", "empty"])
async def test_what_keeps_the_value_of_a_record_by_being_empty_is_not(
    tmp_path: Path, keeps: str
) -> None:
    store = await open_sqlite(str(tmp_path / "vault.db"), Hooks())
    try:
        create = f"{{match: POST /p, create: p, request: {{{keeps}: keep}}}}"
        runtime = await bound(store, create)
        plan, operation = plan_of(runtime), runtime.rules.operations[0]
        assert plan is not None
        selection = runtime.joined[id(operation)].plan.request
        assert selection is not None
        assert selection.selection is not None
        for number in range(5):
            met = {"name": f"Bo {number}", "email": "bo@example.com"}
            selection.selection.find(json.dumps(met).encode())
        for email, ordinary in ((None, False), ("", False), ("eve@example.com", True)):
            body = json.dumps({"name": "Ann Lee", "email": email}).encode()
            match = Match(operation, {}, runtime)
            begun = plan.begin(match, Request("POST", b"/p", JSON, body))
            assert (begun is not None) is ordinary
    finally:
        await store.close()


@pytest.fixture
def code(unavailable: Unavailable) -> NativeCode:
    return compiled(unavailable)


#: Leaves whose tokens are words, and others; and the same for native code.
_FIELDS = ("first", "", ""), ("last", "Person", ""), ("mail", "", "@a.example")


def spelled_leaves(code: NativeCode) -> tuple[list[Any], list[tuple[Any, ...]]]:
    plans, words = list[Any](), list[tuple[Any, ...]]()
    for name, before, behind in _FIELDS:
        write = code.write32 if behind else code.write62
        plans.append(_LeafPlan(name, write, before, behind, None, None, False))
        words.append((name, 26 if behind else 22, before.encode(), behind.encode()))
    for name in ("phone", "note"):
        plans.append(_LeafPlan(name, None, "", "", None, None, False))
        words.append((name,))
    return plans, words


class Minted:
    """Tokens of other leaves, and what they were made for."""

    def __init__(self, other: str | None) -> None:
        self.other, self.asked = other, list[tuple[Any, ...]]()

    def __call__(self, *of: Any) -> str | None:
        self.asked.append(of)
        return self.other if of[-1] % 2 else "+4672"


_FORM = re.compile("T[0-9]").search


def test_what_is_called_meanwhile_may_change_what_is_read(code):
    _, words = spelled_leaves(code)
    leaves = [3, 3]
    for emptied in (0, 2, 3, 4):
        lists: Any = [[*words], leaves, ["AB", "C"], [b"1", b"2"], [b""] * 5]

        def empty(*_: Any, lists: Any = lists, emptied: int = emptied) -> str:
            lists[emptied].clear()
            return "+4671"

        with pytest.raises((IndexError, SystemError)):
            code.tokens(*lists, b"", TokenizedValue, empty, _FORM, is_token)


def is_token(name: str, text: str) -> bool:
    return text == "T8" and name != "mail"


def test_new_texts_get_their_tokens_as_by_python(code):
    chance, counts, (plans, words) = random.Random(11), [0, 0, 0], spelled_leaves(code)
    for _ in range(rounds(3000)):
        chosen = tuple(chance.sample(range(5), chance.randrange(6)))
        some = ("Ann", "Bo Lee", "é€😀", "T7", None, "+4670", "T8")
        texts = [chance.choice(some if chance.random() < 0.3 else some[:3]) for _ in chosen]
        raws = [f'"{text}"'.encode() for text in texts if text is not None]
        blocks, empty = chance.randbytes(16 * len(texts)), [b"", *[b"", b","] * len(raws)]
        other = chance.choice(("+4671", "+4670", "1", "x", 'a"b', "å", None))
        (one, mine), (two, pieces) = (Minted(other), [*empty]), (Minted(other), [*empty])
        own = code.tokens(
            words, chosen, texts, raws, mine, blocks, TokenizedValue, one, _FORM, is_token
        )
        cut = CutBody(chosen, texts, {}, (), raws, cast("Any", pieces))
        python = created(cut, plans, blocks, two)
        counts[2 if own is None and python is not None else own is None] += 1
        if own is not None and own[1]:
            assert (own, mine, one.asked) == (python, pieces, two.asked)
        elif python is not None:  # the general code does it then
            assert not str(other).isascii() or '"' in str(other)
    assert min(counts) > 30, counts


def created(cut: CutBody, plans: list[Any], blocks: bytes, minted: Minted) -> Any:
    """What a create stores by Python's way, and what it swaps, with the next number."""
    context = SimpleNamespace(sequence=SimpleNamespace(at=lambda _now: 1))
    collection = SimpleNamespace(token_form=_FORM, context=context, clock=lambda: 1)
    plan: Any = SimpleNamespace(_leaves=plans, _is_token=is_token, _signs=(), _declared=5)
    plan.collection, plan.joined, plan.field_absent = collection, SimpleNamespace(guard=None), ""
    plan._minted, plan._blocks = partial(_of, minted), lambda _rid, _numbers: blocks
    stored: list[Any] = []

    def insert(_collection: Any, content: Any, tokens: Any, *_: Any) -> tuple[None, None]:
        stored.extend((tokens, content.following))
        return None, None

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fast_path_plan_module, "_tokens", None)
        patched.setattr(fast_path_plan_module, "insert_at_once", insert)
        exchange = FastPathPlan._create(plan, cast("Any", None), Request("", b"", (), b""), cut)
    if exchange is None:
        return None
    assert exchange.sent == b"".join(cut.pieces)
    return stored[0], exchange.swaps, stored[1]


def _of(minted: Minted, _rid: int, _entries: object, *of: Any) -> str | None:
    return minted(*of)


def test_stored_texts_get_their_tokens_as_by_python(code, monkeypatch):
    chance, taken, (plans, words) = random.Random(12), [0, 0, 0], spelled_leaves(code)
    collection = SimpleNamespace(token_form=_FORM, single=frozenset(), expires=None)
    plan: Any = SimpleNamespace(_leaves=plans, _words=words, _is_token=is_token, _blocks=None)
    plan.collection, plan.joined = collection, SimpleNamespace(guard=None)
    plan._erases, plan._minted, plan._declared = False, lambda *_: None, 5  # whatever is new
    names = [one.field for one in plans]

    def unchanged(*of: Any) -> Any:
        answer = code.unchanged(*of)
        taken[2] += answer is not None
        return answer

    def updated(cut: CutBody, stored: dict[str, Any], native: Any) -> Any:
        monkeypatch.setattr(fast_path_plan_module, "_unchanged", native)
        exchange, row = SimpleNamespace(swaps={}, key="7"), SimpleNamespace(rid=1, salt=b"")
        cut.pieces[1::2] = [b""] * len(cut.raws)
        live: Any = SimpleNamespace(values=stored, following=3)
        if not FastPathPlan._next(plan, cast("Any", exchange), cut, cast("Any", row), live):
            return None
        return exchange.sent, exchange.swaps, exchange.write.tokens

    for _ in range(rounds(3000)):
        chosen = tuple(chance.sample(range(5), chance.randrange(1, 6)))
        some = ("Ann", "é€😀", "T7", "T8", None) if chance.random() < 0.4 else ("Ann", "Bo Lee")
        texts = [chance.choice(some) for _ in chosen]
        tokens = ("tok", "Ann", 'q"', "å") if chance.random() < 0.3 else ("tok", "+46")
        stored: dict[str, Any] = {}
        for leaf, text in zip(chosen, texts, strict=True):
            odd = chance.random() < 0.05
            kept = "other" if text is None or chance.random() < 0.05 else text
            value = TokenizedValue(1, kept, odd, chance.choice(tokens), odd)
            if text is not None or chance.random() < 0.2:
                stored[names[leaf]] = (value,) * chance.choice((1, 1, 1, 1, 1, 1, 1, 1, 2, 0))
        raws = [f'"{text}"'.encode() for text in texts if text is not None]
        pieces: Any = [b"<", *[b"", b","] * len(raws)]
        cut = CutBody(chosen, texts, {}, (), raws, pieces)
        python = updated(cut, stored, None)
        assert updated(cut, stored, unchanged) == python, (texts, stored)
        taken[python is None] += 1
    assert min(taken) > 200, taken


def test_stored_values_of_another_kind_are_errors_or_left_to_python(code):
    _, words = spelled_leaves(code)
    one = TokenizedValue(1, "A", False, "+46", False)
    right = [words, (0,), ["A"], [b'"A"'], [b"", b"", b""], {"first": (one,)}, _FORM, is_token]
    assert code.unchanged(*right) == ({"first": (one,)}, {"first": (b'"+46"', b'"A"')})
    for stored in ({}, {"first": [one]}, {"first": ()}, {"first": (one, one)}):
        assert code.unchanged(*right[:5], stored, *right[6:]) is None
    wrong: list[tuple[int, Any]] = [
        *((0, []), (0, [()]), (1, (9,)), (1, (0, 0)), (1, 7), (2, []), (2, [7]), (3, []), (3, ())),
        *((4, []), (4, ()), (5, []), (5, {"first": (7,)}), (6, 7)),
    ]
    for index, argument in wrong:
        with pytest.raises((TypeError, IndexError, AttributeError, SystemError)):
            code.unchanged(*right[:index], argument, *right[index + 1 :])
    with pytest.raises(TypeError):
        code.unchanged(*right[:-1])


def test_tokens_that_have_no_place_are_errors(code):
    _, words = spelled_leaves(code)
    right = [words, (0,), ["A"], [b'"A"'], [b"", b"", b""], bytes(16), TokenizedValue, 0, _FORM, 0]
    assert code.tokens(*right)[2] == 2
    wrong: list[tuple[int, Any]] = [
        *((0, []), (0, [()]), (0, [("a", 22, b"", "")]), (0, [("a", 22, b"x" * 600, b"")])),
        *((0, [("a", 7, b"", b"")]), (1, (9,)), (1, (0, 0)), (2, ("A",)), (2, []), (2, [7])),
        *((3, []), (4, []), (4, ()), (5, b""), (5, ""), (6, int), (8, 7), (0, [("a",)])),
    ]
    for index, argument in wrong:
        with pytest.raises((TypeError, IndexError, ValueError, SystemError)):
            code.tokens(*right[:index], argument, *right[index + 1 :])
