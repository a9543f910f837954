import asyncio
import re
import time
from typing import Any

from proxy.api.context import Access, ApiOperation, ApiResponse, Takes
from proxy.api.operation_table import OPERATIONS
from proxy.audit.events import RECORD_PARAMETERS, SUBJECTS, AuditContext, EventKind
from proxy.errors import Code, VaultError
from proxy.model.rights import FULL, Redactor, Rights
from proxy.offload import FEW
from tests.support.api import Interface, services, serving
from tests.support.audit import Kept, audit_context, auditing
from tests.support.examples import CONTACT

#: Parameters of paths that lines leave out: they are told otherwise, or tell nothing.
OTHERS = ("schema", "country", "file_id", "file")


def test_every_parameter_of_a_path_is_known_to_name_a_record_or_not():
    named = {name for operation in OPERATIONS for name in re.findall(r"\{(\w+)\}", operation.path)}
    assert named <= {*RECORD_PARAMETERS, *SUBJECTS, *OTHERS}


def test_only_what_is_the_same_for_everybody_is_quiet():
    quiet = [operation for operation in OPERATIONS if operation.quiet]
    assert {operation.name for operation in quiet} == {
        "openapi",
        "docs",
        "docs_file",
        "jwks",
        "metadata",
    }
    assert all(operation.access is Access.OPEN for operation in quiet)


async def test_the_lines_of_many_records_are_made_between_turns_of_the_loop():
    sink, audit = Kept(), audit_context()
    of, turns = auditing(sink), 0
    named = of.services.record_id
    keys = [f"key {number}" for number in range(3 * FEW)]
    for kind in (EventKind.WRITE, EventKind.REVEAL):
        audit.add(kind, "p", keys, ["a"])

    def slow(*record: str) -> str:
        time.sleep(0.00002)
        return named(*record)

    of.services.record_id = slow
    answered = asyncio.ensure_future(of.answered(audit, 200, lambda _schema: FULL))
    while not answered.done():
        turns += 1
        await asyncio.sleep(0)
    await answered
    assert turns > 5
    assert [ident for line in sink.lines for ident in line["records"]] == [
        named(audit.environment, "p", key) for key in keys
    ]


async def nothing(_call: Any) -> ApiResponse:
    return ApiResponse(204)


async def failing(call: Any) -> ApiResponse:
    call.audit.add(EventKind.WRITE, "p", ["1"], ["a"])
    raise RuntimeError


async def test_an_operation_that_tells_nothing_has_a_coarse_line():
    kept = Kept()
    operations = (
        ApiOperation(
            "fresh",
            "DELETE",
            "/api/p/{schema}/{record_key}/x/{unheard}",
            nothing,
            204,
            (),
            Takes.NOTHING,
        ),
        ApiOperation(
            "chiefs",
            "PUT",
            "/api/q/{client_id}",
            nothing,
            204,
            (),
            Takes.NOTHING,
            access=Access.ADMIN,
        ),
    )
    async with serving(services(audit=auditing(kept)), *operations) as client:
        assert (await client("DELETE", "/api/p/people/4711-0815/x/astrid")).status == 204
        assert (await client("PUT", "/api/q/k7", "chief")).status == 204
    first, second = kept.lines
    assert (first["event"], first["by"], first["schema"], len(first["records"])) == (
        "delete",
        "writer",
        "people",
        1,
    )
    assert (second["event"], second["subject"], second["status"]) == ("admin", "k7", 204)
    assert b"astrid" not in b"".join(kept.raw)
    assert b"4711-0815" not in b"".join(kept.raw)


async def test_what_was_changed_before_a_failure_has_its_line():
    kept = Kept()
    operations = (ApiOperation("fail", "POST", "/api/fail", failing, 200, (), Takes.NOTHING),)
    async with serving(services(audit=auditing(kept)), *operations) as client:
        assert (await client("POST", "/api/fail")).status == 500
    assert [line["event"] for line in kept.lines] == ["write", "refused"]
    kept.lines.clear()
    context = audit_context()
    context.add(EventKind.WRITE, "p", ["1"])
    auditing(kept).broken(context)
    assert [line["event"] for line in kept.lines] == ["write"]


async def test_a_search_tells_which_records_and_fields_it_revealed(here: Interface):
    for key in ("1", "2"):
        await here.client("POST", "/api/models/contact", json={"id": key, "name": "Astrid"})
    here.audit.lines.clear()
    await here.client("POST", "/api/models/contact/find", json={})
    (line,) = here.audit.lines
    assert (line["event"], line["by"], line["operation"], line["status"]) == (
        "reveal",
        "writer",
        "find_records",
        200,
    )
    assert (line["schema"], line["count"], len(set(line["records"]))) == ("contact", 2, 2)
    assert set(line["fields"]) == set(CONTACT["fields"])


async def test_while_no_line_can_be_written_nothing_is_revealed_or_changed(here: Interface):
    await here.client("POST", "/api/models/contact", json={"id": "1", "name": "Astrid"})
    here.audit.down = True
    for method, path, body in (
        ("POST", "/api/models/contact/find", {}),
        ("POST", "/api/models/contact", {"id": "2"}),
        ("DELETE", "/api/models/contact/1", None),
    ):
        answer = await here.client(method, path, json=body)
        assert (answer.status, answer.json["code"]) == (503, "audit_down")
        assert answer.headers["Retry-After"] == "1"
        assert b"Astrid" not in answer.body
    here.audit.down = False
    found = (await here.client("POST", "/api/models/contact/find", json={})).json["data"]
    assert [record["id"] for record in found] == ["1"]
    assert (await here.client("GET", "/openapi.json", "")).status == 200


async def test_an_answer_whose_line_fails_is_not_given(here: Interface, monkeypatch):
    await here.client("POST", "/api/models/contact", json={"id": "1", "name": "Astrid"})
    here.audit.down = True
    monkeypatch.setattr(here.audit, "ready", lambda: None)
    monkeypatch.setattr(here.audit, "put", failing_put)
    answer = await here.client("POST", "/api/models/contact/find", json={})
    assert (answer.status, answer.json["code"]) == (503, "audit_down")


def failing_put(*_bodies: bytes) -> None:
    raise VaultError(Code.AUDIT_DOWN, "The audit log cannot be written.")


async def test_refusals_are_told_once_and_then_counted(here: Interface):
    for _ in range(50):
        assert (await here.client("GET", "/api/clients", "writer")).status == 403
        assert (
            await here.client("POST", "/api/models/contact/find", "nobody", json={})
        ).status == 401
    lines = {(line["operation"], line["code"], line.get("by")): line for line in here.audit.lines}
    assert set(lines) == {
        ("list_clients", "forbidden", "writer"),
        ("find_records", "unauthorized", None),
    }
    assert all(line["event"] == "refused" for line in lines.values())
    here.services.audit.refusals.flush()
    assert [line["count"] for line in here.audit.lines] == [1, 1, 49, 49]


async def test_a_repeated_answer_says_so(here: Interface):
    for _ in range(2):
        headers = {"Idempotency-Key": "k"}
        await here.client("POST", "/api/models/contact", json={"id": "1"}, headers=headers)
    first, second = here.audit.lines
    assert "reason" not in first
    assert (second["event"], second["schema"]) == ("write", "contact")
    assert "Idempotency-Key" in second["reason"]


def revealing(*fields: str) -> AuditContext:
    context = audit_context(EventKind.REVEAL)
    context.add(EventKind.REVEAL, "p", ["1"], fields)
    return context


async def test_fields_that_were_covered_or_hidden_are_not_told_as_seen():
    kept = Kept()
    made = auditing(kept)
    from proxy.model.schema import Schema

    veiled = Rights(
        frozenset(),
        Schema("p", ()),
        frozenset({"a", "b"}),
        {"b": Redactor(lambda *_: "x", "x".__eq__)},
    )
    await made.answered(revealing("a", "b", "c"), 200, lambda _schema: veiled)
    await made.answered(revealing("a", "b"), 200, lambda _schema: FULL)

    def gone(_schema: str) -> Rights:
        raise VaultError(Code.UNKNOWN_SCHEMA, "gone")

    await made.answered(revealing("a", "b"), 200, gone)
    assert [(line["fields"], line.get("covered")) for line in kept.lines] == [
        (["a"], ["b"]),
        (["a", "b"], None),
        (["a", "b"], None),
    ]


async def test_where_lines_are_flushed_the_answer_waits_for_it():
    flushed = asyncio.Event()

    class Flushing(Kept):
        flushes = True

        async def flushed(self) -> None:
            flushed.set()

    await auditing(Flushing()).answered(revealing(), 200, lambda _schema: FULL)
    assert flushed.is_set()
