"""Which operations have ordinary exchanges, and which requests are such."""

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.crypto.keyset import Keyset
from proxy.redactor.exchange.fast_path_plan import FastPathPlan, fast_path_plan
from proxy.redactor.exchange.runtime import Runtime, VaultRules, bind_rules
from proxy.redactor.load import load_text
from proxy.redactor.message import Request
from proxy.redactor.rules import Match
from proxy.redactor.views import OUTSIDE_VIEW, view_of
from proxy.storage.base import Hooks, Store
from proxy.storage.sqlite.store import open_sqlite
from proxy.telemetry.metrics import Metrics
from proxy.vault.vault import VaultOptions, new_vault
from tests.support.audit import Kept, audit_services
from tests.support.clock import ManualClock
from tests.support.exchanges import JSON, rule_text
from tests.support.memory import MemoryStore

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
