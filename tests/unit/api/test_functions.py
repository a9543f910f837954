from typing import Any

import pytest

from proxy.api.wire import api_status
from proxy.functions.runner import Bounds, Runner
from tests.support.api import Interface, Said, interface
from tests.support.examples import CONTACT
from tests.support.functions import NAMES, install, isolated


@pytest.fixture
async def here(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(install(tmp_path / "site")))
    targets = {name: f"sample_functions:{name}" for name in NAMES}
    bounds = Bounds(60.0, 512 << 20, 4, isolated=isolated())
    runner = Runner(targets, bounds, lambda error: api_status("", error.code))
    async with interface(tmp_path, functions=runner) as made:
        await made.declare(
            "contact", {"fields": {"id": {"type": "primary_key"}, "name": {"type": "string"}}}
        )
        await made.client("POST", "/api/models/contact", json={"id": "k", "name": "Ann"})
        yield made
    await runner.close()


async def call(here: Interface, name: str, arguments: Any = None) -> Said:
    return await here.client("POST", f"/api/functions/{name}", json={"arguments": arguments or {}})


async def test_a_function_reads_what_its_caller_may_read(here):
    record, meta = (await call(here, "found", {"key": "k"})).json["result"]
    assert (record["id"], record["name"], meta["total"]) == ("k", "Ann", 1)


async def test_a_function_writes_in_the_name_of_its_caller(here):
    assert (await call(here, "written")).json["result"] == ["Fia Ek", None]


async def test_a_refusal_reaches_the_function_as_over_http(here):
    assert (await call(here, "refused")).json["result"] == ["RefusedError", 400, "unknown_schema"]


@pytest.mark.parametrize(
    ("name", "status", "code"),
    [
        ("raises", 500, "function_failed"),
        ("hungry", 503, "function_limit"),
        ("not_json", 500, "function_failed"),
        ("none", 400, "unknown_function"),
    ],
)
async def test_what_goes_wrong_says_no_more_than_its_code(here, name, status, code):
    answer = await call(here, name, {"secret": "4711-0815"})
    assert (answer.status, answer.json["code"]) == (status, code)
    assert b"4711-0815" not in answer.body


async def test_all_functions_are_listed_and_nobody_calls_one_without_a_token(here):
    answer = await here.client("GET", "/api/functions")
    assert [entry["name"] for entry in answer.json["data"]] == list(NAMES)
    assert (await here.client("POST", "/api/functions/echo", "", json={})).status == 401


async def test_a_call_with_a_key_is_carried_out_once(here):
    await here.declare("note", CONTACT)
    headers = {"Idempotency-Key": "one"}
    for replayed in (None, "true"):
        answer = await here.client("POST", "/api/functions/surroundings", json={}, headers=headers)
        assert (answer.status, answer.headers.get("Idempotent-Replayed")) == (200, replayed)
