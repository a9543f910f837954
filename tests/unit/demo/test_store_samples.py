from pathlib import Path

import pytest
from aiohttp import web

from proxy.demo.contacts import STORE, contacts_app
from proxy.demo.store import PEOPLE, plant
from proxy.demo.validation import blank, read_contact
from proxy.errors import Code, VaultError
from tests.support.serving import serving


def test_the_invented_people_pass_the_checks_and_fill_every_field() -> None:
    for person in PEOPLE:
        assert read_contact(person, blank()) == (person, [])
    assert set(PEOPLE[0]) == set(blank())


async def test_they_are_planted_once_and_only_where_nobody_is(tmp_path: Path) -> None:
    app = contacts_app(tmp_path / "contacts.json")
    async with serving(app) as address:
        assert await plant(address) == len(PEOPLE)
        assert await plant(address) == 0
    assert [contact["email"] for contact in app[STORE]] == [person["email"] for person in PEOPLE]


async def test_a_refusal_is_not_swallowed() -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.json_response({"total": 0}, status=200 if request.method == "GET" else 503)

    app = web.Application()
    app.router.add_route("*", "/api/contacts", refuse)
    async with serving(app) as address:
        with pytest.raises(VaultError) as fault:
            await plant(address)
    assert fault.value.code is Code.BAD_RULES
    assert "answered 503" in fault.value.message
