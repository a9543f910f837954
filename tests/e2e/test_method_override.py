"""Browsers send forms by POST alone; frameworks then take the method out of the body.

So does the rule of that method.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from tests.e2e.conftest import World
from tests.support.application import Application
from tests.support.instance import running
from tests.support.people import ANN, MARKERS, rules
from tests.support.serving import serving

NAME, EMAIL = "Quibblethwaite", "Zorbina.Q@Wexlomere.example"

#: The same update as the application's forms have it, for a form whose member ``_method`` names
#: PUT.
FORM_RULE = """
  - match: "PUT /clients/{id}"
    update: person
    id: path id
    request: {form: {name: name, email: email}, absent: keep}
    response: {success: [200], form: {name: name, email: email}}
"""


@pytest.fixture
async def clients(tmp_path: Path) -> AsyncIterator[World]:
    application = Application()
    async with (
        serving(application.app()) as upstream,
        running(tmp_path, rules(upstream) + FORM_RULE) as instance,
        aiohttp.ClientSession() as caller,
    ):
        yield World(application, upstream, instance, caller)


async def echoed(world: World, path: str, data: Any, **options: Any) -> tuple[int, str]:
    async with world.caller.post(world.instance.proxy + path, data=data, **options) as answer:
        return answer.status, await answer.text()


async def test_a_form_that_names_put_is_redacted_and_its_answer_restored(clients):
    status, text = await echoed(
        clients, "/clients/17", {"_method": "put", "name": NAME, "email": EMAIL}
    )
    assert status == 200
    assert NAME in text
    assert not clients.application.holds(NAME)
    assert not clients.application.holds(EMAIL)
    assert b"POST /clients/17" in clients.application.seen
    assert b"_method=put&name=" in clients.application.seen


async def test_json_that_names_patch_is_redacted(world):
    created = await world.call("POST", "/people", 201, json=ANN)
    body = json.dumps({"name": NAME, "_method": "PATCH"})
    await echoed(
        world, f"/people/{created['id']}", body, headers={"Content-Type": "application/json"}
    )
    assert b"_method" in world.application.seen
    assert not any(world.application.holds(marker) for marker in MARKERS)


@pytest.mark.parametrize(
    ("method", "path", "override"),
    [
        ("OPTIONS", "/people/1", "DELETE"),
        ("OPTIONS", "/people/1", "PUT"),
        ("DELETE", "/files/..%2fpeople%2f1", ""),
        ("PUT", "/files/..%2fpeople%2f1", ""),
        ("DELETE", "//files/people/1", ""),
    ],
)
async def test_the_success_of_another_request_ends_no_values(world, method, path, override):
    """The application answers each of these with 200, and changes nothing of the record."""
    created = await world.call("POST", "/people", 201, json=ANN)
    assert created["id"] == 1
    headers = {"Content-Type": "application/json"}
    headers |= {"X-HTTP-Method-Override": override} if override else {}
    body = b"" if "DELETE" in (method, override) else json.dumps({"name": NAME}).encode()
    url = URL(world.instance.proxy + path, encoded=True)
    async with world.caller.request(method, url, headers=headers, data=body) as answer:
        assert answer.status == 400
    assert await world.call("GET", "/people/1", 200) == created
