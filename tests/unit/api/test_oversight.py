import re
from typing import Any

import pytest

from proxy.api.context import Access, ApiOperation
from proxy.api.operations import OPERATIONS
from proxy.audit.events import EventKind, encode_event
from proxy.audit.verify import Auditor
from proxy.model.record import Role
from tests.support.audit import auditor
from tests.support.examples import CONTACT
from tests.support.world import World, world

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


@pytest.fixture
async def here(tmp_path):
    async with world(tmp_path) as made:
        await made.declare("contact", CONTACT)
        yield made


async def ask(here: World, operation: ApiOperation, as_: str) -> Any:
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


async def numbers(here: World, query: str, as_: str = "auditor") -> list[int]:
    answer = await here.client("GET", f"/api/audit?{query}", as_)
    assert answer.status == 200, answer.json
    return [line["n"] for line in answer.json["data"]]


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    "query",
    [
        "event=nothing",
        "from=yesterday",
        "record=c-1",
        "schema=contact",
        "limit=0",
        "after=x",
        "who=me",
    ],
)
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
