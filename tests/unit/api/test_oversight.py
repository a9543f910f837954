import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import FormData

from proxy.api.context import Access, ApiOperation
from proxy.api.operation_table import OPERATIONS
from proxy.audit.events import EventKind, encode_event
from proxy.audit.verify import Auditor
from proxy.auth.clients import Grant
from proxy.model.rights import Role
from tests.support.api import Desk, Interface, Said, interface
from tests.support.audit import auditor
from tests.support.examples import CONTACT
from tests.support.rehashing import DTK
from tests.support.table import table

#: What each role may call, and nothing else: to add to it is a decision.
MAY = {
    Role.KEY_OFFICER: {"list_keys", "rotate_key"},
    Role.ACCESS_OFFICER: {
        "create_client", "list_clients", "show_client", "remove_client", "put_policy",
        "list_policies", "show_policy", "remove_policy", "list_schemas", "show_schema",
        "list_environments",
    },
    Role.AUDITOR: {
        "list_audit", "verify_audit", "list_clients", "show_client", "list_policies", "show_policy",
        "list_schemas", "show_schema", "list_environments", "list_keys",
    },
    Role.OPERATOR: {"show_rehash", "stop_rehash", "reload"},
}  # fmt: skip


#: What every client may call: it looks by itself at what that one may decide, or was prepared for.
FOR_ALL = {"list_approvals", "decide_approval", "take_role", "end_role"}


async def ask(here: Interface, operation: ApiOperation, as_: str) -> Any:
    return await here.client(operation.method, re.sub(r"\{\w+\}", "x", operation.path), as_)


@pytest.mark.parametrize("role", Role)
async def test_a_role_may_what_its_duty_needs_and_sees_no_record(here, role):
    admitted = set()
    for operation in OPERATIONS:
        if operation.access is not Access.OPEN:
            answer = await ask(here, operation, str(role))
            if answer.status == 403:
                assert answer.json["code"] == "forbidden"
            else:
                admitted.add(operation.name)
    assert admitted == MAY[role] | FOR_ALL


def test_auditors_change_nothing():
    methods = {operation.method for operation in OPERATIONS if operation.name in MAY[Role.AUDITOR]}
    assert methods == {"GET"}


LINES = (
    encode_event(EventKind.LOG, reason="started"),
    encode_event(
        EventKind.REVEAL, by="shop", environment="default", schema="contact", records=["r-1"]
    ),
    encode_event(EventKind.WRITE, by="shop", environment="acme", schema="contact", records=["r-1"]),
    encode_event(EventKind.ALARM, by="desk", environment="default"),
    encode_event(
        EventKind.REVEAL, by="desk", environment="default", schema="contact", records=["r-2"]
    ),
)


@pytest.fixture
def reading(here, tmp_path):
    """A log of five lines, an hour apart."""
    log = auditor(tmp_path / "log", *LINES)
    log = log._replace(record_id=lambda environment, schema, key: {"c-1": "r-1"}.get(key, "none"))

    async def opened() -> Auditor:
        return log

    here.services.auditor = opened
    return log


async def numbers(here: Interface, query: str, as_: str = "auditor") -> list[int]:
    answer = await here.client("GET", f"/api/audit?{query}", as_)
    assert answer.status == 200, answer.json
    return [line["n"] for line in answer.json["data"]]


@table(
    ("query", "wanted"),
    [
        ("", [1, 2, 3, 4, 5]),
        ("by=shop", [2, 3]),
        ("event=reveal", [2, 5]),
        ("event=reveal&by=shop", [2]),
        ("environment_id=acme", [3]),
        ("from=2026-05-04T02:00:00Z", [3, 4, 5]),
        ("from=2026-05-04T03:00:00%2B02:00&to=2026-05-04T03:00:00.000Z", [2, 3]),
        ("schema=contact&record=c-1", [2]),
        ("schema=contact&record=c-1&environment_id=acme", [3]),
        ("after=3", [4, 5]),
    ],
)
@pytest.mark.usefixtures("reading")
async def test_lines_are_read_by_time_client_record_and_event(here, query, wanted):
    assert await numbers(here, query) == wanted


@pytest.mark.usefixtures("reading")
async def test_pages_hold_together_and_reading_leaves_a_line(here):
    read, after, more = [], 0, True
    while more:
        page = (await here.client("GET", f"/api/audit?limit=2&after={after}", "auditor")).json
        read += [line["n"] for line in page["data"]]
        after, more = page["meta"]["after"], page["meta"]["more"]
    assert read == [1, 2, 3, 4, 5]
    (first, *_) = [line for line in here.audit.lines if line["operation"] == "list_audit"]
    assert (first["event"], first["by"]) == ("admin", "auditor")


@pytest.mark.usefixtures("reading")
async def test_a_client_of_another_environment_reads_its_own_lines_alone(here):
    await here.client(
        "POST", "/api/environments", "chief", json={"name": "A", "environment_id": "acme"}
    )
    assert await numbers(here, "", "chief of acme") == [3]
    answer = await here.client("GET", "/api/audit?environment_id=default", "chief of acme")
    assert (answer.status, answer.json["code"]) == (400, "invalid_input")
    assert (await here.client("GET", "/api/audit/verify", "chief of acme")).status == 403


@table(
    "query",
    [
        "event=nothing", "from=yesterday", "record=c-1", "schema=contact", "limit=0", "after=x",
        "who=me",
    ],
)  # fmt: skip
async def test_a_search_that_cannot_be_read_is_refused(here, query):
    answer = await here.client("GET", f"/api/audit?{query}", "auditor")
    assert (answer.status, answer.json["code"]) == (400, "invalid_input")


async def test_a_log_is_verified_and_what_was_done_to_it_is_named(here, reading):
    answer = (await here.client("GET", "/api/audit/verify", "auditor")).json
    assert (answer["ok"], answer["lines"], answer["last"]["n"]) == (True, 5, 5)
    (file,) = reading.folder.glob("*.jsonl")
    file.write_bytes(file.read_bytes().replace(b'"by":"desk"', b'"by":"shop"', 1))
    answer = (await here.client("GET", "/api/audit/verify", "auditor")).json
    assert not answer["ok"]
    assert answer["faults"][0]["line"] == 4


async def test_one_reads_the_whole_log_at_a_time(here):
    async with here.services.audit.verifying:
        answer = await here.client("GET", "/api/audit/verify", "auditor")
    assert (answer.status, answer.json["code"]) == (409, "conflict")


async def test_a_log_that_cannot_be_read_is_told(here, reading):
    (file,) = reading.folder.glob("*.jsonl")
    file.unlink()
    file.mkdir()
    for path in ("/api/audit", "/api/audit/verify"):
        answer = await here.client("GET", path, "auditor")
        assert (answer.status, answer.json["code"]) == (503, "audit_down")


async def test_files_are_loaded_again_and_what_is_stale_is_told(here):
    async def reload() -> dict[str, str | None]:
        return {"rules": "The rules have one fault.", "policies": None}

    here.services.reload = reload
    answer = await here.client("POST", "/api/reload", "operator")
    assert answer.json == {
        "checks": {"rules": "stale: The rules have one fault.", "policies": "ok"}
    }


# ---- What a second person approves, and whose hand a client is


RULES = {"key1": {"strategy": "emailPersistent"}}
ADMINISTRATOR = {"role": "administrator", "reason": "fire"}


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with interface(tmp_path, "sqlite", tokens=True) as here:
        await here.declare("contact", CONTACT)
        await here.policy("red", "contact", "read", "write", rows={"filter": {"city": "Lund"}})
        await here.policy("why", "contact", "read", purpose="any")
        made = Desk(here, {})
        for name in ("chief", "other"):
            await made.hire(name, admin=True)
        for key, city in (("c-1", "Lund"), ("c-2", "Umeå")):
            record = {"id": key, "city": city}
            path = "/api/models/contact"
            answer = await here.client("POST", path, made.tokens["chief"], json=record)
            assert answer.status == 201
        yield made


def hold(desk: Desk, *kinds: str) -> None:
    approvals = desk.here.services.approvals
    assert approvals is not None
    approvals.kinds = frozenset(kinds)


async def ask_for_approval(
    desk: Desk, as_: str, method: str, path: str, body: Any = None, **more: Any
) -> Said:
    content = {} if body is None else {"json": body}
    return await desk.here.client(method, path, desk.tokens[as_], **content, **more)


async def decide(desk: Desk, as_: str, ident: str) -> int:
    body = {"decision": "approve"}
    return (await ask_for_approval(desk, as_, "POST", f"/api/approvals/{ident}", body)).status


HELD: dict[str, tuple[str, str, Any]] = {
    "create_environment": ("POST", "/api/environments", {"name": "A", "environment_id": "acme"}),
    "remove_environment": ("DELETE", "/api/environments/beta", None),
    "remove_schema": ("DELETE", "/api/schemas/contact?records=delete", None),
    "remove_bait": ("DELETE", "/api/models/contact/c-1/bait", None),
    "reload": ("POST", "/api/reload", None),
    "create_client": ("POST", "/api/clients", {"name": "x", "environment_id": "default"}),
    "remove_client": ("DELETE", "/api/clients/{desk}", None),
    "put_policy": ("PUT", "/api/policies/new", {"schema": "contact", "actions": ["read"]}),
    "remove_policy": ("DELETE", "/api/policies/red", None),
    "rotate_key": ("POST", "/api/keys/rotate", {"key": "signing"}),
    "begin_rehash": ("POST", "/api/records/rehash/all", {"dtk": DTK, "rules": RULES}),
    "list_tokens": ("GET", "/api/records/rehash/tokens", None),
    "find_person": ("POST", "/api/persons/find", {"value": "Lund"}),
    "erase_person": ("POST", "/api/persons/erase", {"value": "Lund"}),
    "export_records": ("GET", "/api/models/contact/export", None),
}


def test_every_operation_that_waits_is_tried() -> None:
    assert HELD.keys() == {one.name for one in OPERATIONS if one.approval}


@pytest.mark.parametrize("operation", HELD)
async def test_what_waits_changes_nothing_until_another_hand_approves(
    desk: Desk, operation: str
) -> None:
    made = await ask_for_approval(
        desk, "chief", "POST", "/api/environments", {"name": "B", "environment_id": "beta"}
    )
    assert made.status == 201
    await desk.hire("desk")
    (ident,) = [one.id for one in desk.here.office.service.clients.listed() if one.name == "desk"]
    assert (
        await ask_for_approval(desk, "chief", "PUT", "/api/models/contact/c-1/bait")
    ).status == 204
    hold(desk, "keys", "access", "exports")
    method, path, body = HELD[operation]
    path = path.format(desk=ident)
    waits = await ask_for_approval(desk, "chief", method, path, body)
    assert (waits.status, waits.json["state"]) == (202, "pending")
    assert DTK not in waits.body.decode()
    again = await ask_for_approval(desk, "chief", method, path, body)
    assert again.json["approval_id"] == waits.json["approval_id"]
    assert await decide(desk, "chief", waits.json["approval_id"]) == 403
    assert await decide(desk, "other", waits.json["approval_id"]) == 200
    done = await ask_for_approval(desk, "chief", method, path, body)
    (line,) = [one for one in OPERATIONS if one.name == operation]
    assert done.status in (line.success, 201)
    assert "approval_id" not in (done.json or {})
    last = [one for one in desk.here.audit.lines if one.get("operation") == operation][-1]
    assert last["approved"] is not None


async def test_another_key_of_the_caller_is_another_request(desk: Desk) -> None:
    hold(desk, "exports")
    _, path, body = HELD["begin_rehash"]
    first = await ask_for_approval(desk, "chief", "POST", path, body)
    other = await ask_for_approval(desk, "chief", "POST", path, {**body, "dtk": DTK[::-1]})
    assert first.json["approval_id"] != other.json["approval_id"]


async def test_a_client_is_of_its_makers_hand_whoever_approved_it(desk: Desk) -> None:
    hold(desk, "access")
    body = {"name": "puppet", "environment_id": "default", "admin": True}
    waits = await ask_for_approval(desk, "chief", "POST", "/api/clients", body)
    assert await decide(desk, "other", waits.json["approval_id"]) == 200
    made = await ask_for_approval(desk, "chief", "POST", "/api/clients", body)
    client = desk.here.office.service.clients.find(made.json["client_id"])
    (chief,) = [one for one in desk.here.office.service.clients.listed() if one.name == "chief"]
    assert client is not None
    assert client.secret_holder == chief.id
    # one of an external issuer proves itself by that: its maker has no secret of it
    body = {**body, "external_id": "bo@example.com"}
    waits = await ask_for_approval(desk, "chief", "POST", "/api/clients", body)
    assert await decide(desk, "other", waits.json["approval_id"]) == 200
    made = await ask_for_approval(desk, "chief", "POST", "/api/clients", body)
    client = desk.here.office.service.clients.find(made.json["client_id"])
    assert client is not None
    assert client.secret_holder == client.id


async def test_an_approval_of_an_export_counts_for_its_purpose_alone(desk: Desk) -> None:
    hold(desk, "exports")
    await desk.hire("reader", policies=("why",))
    path = "/api/models/contact/export"
    tax, sale = ({"x-purpose": name} for name in ("tax audit", "sale"))
    waits = await ask_for_approval(desk, "reader", "GET", path, headers=tax)
    assert waits.json["request"]["purpose"] == "tax audit"
    assert await decide(desk, "other", waits.json["approval_id"]) == 200
    assert (await ask_for_approval(desk, "reader", "GET", path, headers=tax)).status == 200
    assert (await ask_for_approval(desk, "reader", "GET", path, headers=sale)).status == 202


async def test_an_approver_may_what_the_asker_may_in_its_emergency(desk: Desk) -> None:
    """An administrator for some time is approved by administrators, not by clients of its kind."""
    hold(desk, "exports")
    for name in ("night", "clerk"):
        await desk.hire(name, policies=("red",), emergency_roles=("administrator",))
    assert (
        await ask_for_approval(desk, "night", "POST", "/api/emergency", ADMINISTRATOR)
    ).status == 201
    waits = await ask_for_approval(desk, "night", "GET", "/api/models/contact/export")
    assert waits.status == 202
    assert await decide(desk, "clerk", waits.json["approval_id"]) == 403
    assert await decide(desk, "other", waits.json["approval_id"]) == 200


async def test_an_emergency_raises_one_alarm_however_many_ask_at_once(desk: Desk) -> None:
    await desk.hire("night", emergency_roles=("administrator",))
    answers = await asyncio.gather(
        *(
            ask_for_approval(desk, "night", "POST", "/api/emergency", ADMINISTRATOR)
            for _ in range(8)
        )
    )
    assert sorted(answer.status for answer in answers) == [201] + [409] * 7
    assert sum(line["event"] == "alarm" for line in desk.here.audit.lines) == 1


@pytest.mark.parametrize("role", ["administrator", "key_officer"])
async def test_an_officer_ends_nobody_who_may_more_in_an_emergency(desk: Desk, role: str) -> None:
    await desk.hire("officer", roles=(Role.ACCESS_OFFICER,))
    clients = desk.here.office.service.clients
    night = (await clients.create("night", "default", Grant(emergency_roles=(role,)))).client
    day = (await clients.create("day", "default", Grant(policies=("red",)))).client
    assert (
        await ask_for_approval(desk, "officer", "DELETE", f"/api/clients/{night.id}")
    ).status == 403
    assert (
        await ask_for_approval(desk, "officer", "DELETE", f"/api/clients/{day.id}")
    ).status == 204
    assert clients.find(night.id) is not None


async def test_marks_are_seen_and_changed_within_the_rows_of_the_caller(desk: Desk) -> None:
    await desk.hire("bound", admin=True, policies=("red",))
    for key in ("c-1", "c-2"):
        path = f"/api/models/contact/{key}/bait"
        assert (await ask_for_approval(desk, "chief", "PUT", path)).status == 204
    own, beyond, none = (f"/api/models/contact/{key}/bait" for key in ("c-1", "c-2", "c-9"))
    assert (await ask_for_approval(desk, "bound", "GET", own)).json == {"bait": True}
    assert (await ask_for_approval(desk, "bound", "DELETE", own)).status == 204
    assert (await ask_for_approval(desk, "chief", "GET", own)).json == {"bait": False}
    for path in (beyond, none):
        assert (await ask_for_approval(desk, "bound", "GET", path)).json == {"bait": False}
        assert (await ask_for_approval(desk, "bound", "PUT", path)).status == 404
        assert (await ask_for_approval(desk, "bound", "DELETE", path)).status == 204
    assert (await ask_for_approval(desk, "chief", "GET", beyond)).json == {"bait": True}


# ---- honeytokens


ONE = "/api/models/contact/c-1"


@pytest.fixture
async def with_baits(tmp_path):
    async with interface(tmp_path) as made:
        await made.declare("contact", CONTACT)
        for key in ("c-1", "c-2"):
            assert (
                await made.client(
                    "POST", "/api/models/contact", json={"id": key, "city": "Lund", "age": 4}
                )
            ).status == 201
        yield made


def alarms(with_baits: Interface) -> list[str]:
    """The operations that raised an alarm since the last look."""
    found = [line["operation"] for line in with_baits.audit.lines if line["event"] == "alarm"]
    with_baits.audit.lines.clear()
    return found


async def test_a_mark_is_set_seen_and_taken_away(with_baits: Interface):
    assert (await with_baits.client("GET", f"{ONE}/bait", "chief")).json == {"bait": False}
    assert (await with_baits.client("PUT", f"{ONE}/bait", "chief")).status == 204
    assert (await with_baits.client("GET", f"{ONE}/bait", "chief")).json == {"bait": True}
    assert (await with_baits.client("DELETE", f"{ONE}/bait", "chief")).status == 204
    assert (await with_baits.client("GET", f"{ONE}/bait", "chief")).json == {"bait": False}
    assert (await with_baits.client("PUT", "/api/models/contact/c-9/bait", "chief")).status == 404
    assert (await with_baits.client("PUT", "/api/models/nothing/c-1/bait", "chief")).status == 400


async def test_whatever_shows_a_bait_raises_an_alarm_and_answers_as_ever(with_baits: Interface):
    form = FormData()
    form.add_field("file", b"content", filename="a.txt", content_type="text/plain")
    file = (
        await with_baits.client("POST", f"{ONE}/files", data=form, headers={"x-filename": "a.txt"})
    ).json["file_id"]
    before = (await with_baits.client("POST", "/api/models/contact/find", json={})).json
    await with_baits.client("PUT", f"{ONE}/bait", "chief")
    assert alarms(with_baits) == []
    assert (await with_baits.client("POST", "/api/models/contact/find", json={})).json == before
    assert alarms(with_baits) == ["find_records"]
    update = [{"id": "c-1", "name": "Bo"}]
    clone = {"filter": {"id": "c-1"}, "update_with": {"id": "c-3"}}
    asked = {"arguments": {"city": "Lund"}}
    for operation, method, path, body in (
        ("find_direct", "POST", "/api/find", {"schema": "contact"}),
        ("sf_find_ids", "POST", "/sf/find-ids", {"schema": "contact"}),
        ("record_history", "GET", f"{ONE}/history", None),
        ("export_records", "GET", "/api/models/contact/export", None),
        ("download_attachment", "GET", f"{ONE}/files/{file}", None),
        ("call_function", "POST", "/api/functions/oldest", asked),
        ("update_records", "POST", "/api/models/contact/batch/update", update),
        ("clone_record", "POST", "/api/models/contact/clone", clone),
    ):
        answer = await with_baits.client(method, path, json=body)
        assert answer.status < 300, (operation, answer.body)
        assert alarms(with_baits) == [operation]


async def test_what_leads_to_its_values_by_a_detour_raises_an_alarm(with_baits: Interface):
    form = FormData()
    form.add_field("file", b"content", filename="a.txt", content_type="text/plain")
    file = (
        await with_baits.client("POST", f"{ONE}/files", data=form, headers={"x-filename": "a.txt"})
    ).json["file_id"]
    await with_baits.client("PUT", f"{ONE}/bait", "chief")
    groups = {
        "metrics": {"age": {"func": "max", "key": "age"}},
        "group_by": {"keys": ["city", "id"]},
    }
    for operation, method, path, body in (
        ("aggregate_records", "POST", "/api/models/contact/aggregate", groups),
        ("change_attachment", "PATCH", f"{ONE}/files/{file}", {"mime_type": "text/csv"}),
        ("move_attachments", "POST", f"{ONE}/files/move/c-2", {"attachment_ids": [file]}),
        ("migrate_record", "POST", f"{ONE}/migrate/c-2", None),
    ):
        answer = await with_baits.client(method, path, json=body)
        assert answer.status < 300, (operation, answer.body)
        assert alarms(with_baits) == [operation]


async def test_among_records_of_the_other_family_too(with_baits: Interface):
    record = {"country": "se", "record_key": "c-1", "profile_key": "p", "key1": "secret"}
    assert (await with_baits.client("POST", "/api/records", json=record)).status == 201
    form = FormData()
    form.add_field("file", b"content", filename="a.txt", content_type="text/plain")
    await with_baits.client(
        "POST", "/api/records/se/c-1/files", data=form, headers={"x-filename": "a.txt"}
    )
    await with_baits.client("PUT", "/api/models/records/c-1/bait", "chief")
    rehash = {"dtk": "a1B2" * 24, "keys": ["p"], "rules": {"key1": {"strategy": "plain"}}}
    for operation, path, body in (
        ("rehash_records", "/api/records/rehash", rehash),
        ("records_create", "/api/records", record),  # its answer shows the file
    ):
        answer = await with_baits.client("POST", path, json=body)
        assert answer.status < 300, (operation, answer.body)
        assert alarms(with_baits) == [operation]
    nobody = {**rehash, "keys": ["nobody"]}
    assert (await with_baits.client("POST", "/api/records/rehash", json=nobody)).status == 200
    assert alarms(with_baits) == []


async def test_other_records_raise_none(with_baits: Interface):
    await with_baits.client("PUT", f"{ONE}/bait", "chief")
    with_baits.audit.lines.clear()
    await with_baits.client("POST", "/api/models/contact/find", json={"filter": {"id": "c-2"}})
    count: dict[str, Any] = {"metrics": {"n": {"func": "count"}}}
    for counted in (count, {**count, "group_by": {"keys": ["city"]}}):
        assert (
            await with_baits.client("POST", "/api/models/contact/aggregate", json=counted)
        ).status == 200
    await with_baits.client("DELETE", ONE)
    assert alarms(with_baits) == []
