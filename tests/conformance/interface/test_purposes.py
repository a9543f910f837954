"""Policies that ask what a request is for: without a purpose nothing is shown, with it it stands in
the line.
"""

from typing import Any

import pytest

from tests.support.api import ENGINES, interface

M = "/api/models/person"
FIELDS = {
    "id": {"type": "primary_key"},
    "name": {"type": "string"},
    "city": {"type": "string", "storage": "indexed"},
}
ANN = {"id": "ann", "name": "Ann Ek", "city": "Lund"}
ACTIONS = ("read", "write", "delete")
#: What shows or changes records: all of it asks.
ASKED: list[tuple[str, str, Any]] = [
    ("POST", f"{M}/find", {}),
    ("POST", f"{M}/find", {"filter": {"id": "nobody"}}),
    ("POST", f"{M}/aggregate", {"group": [], "figures": {"count": "count"}}),
    ("GET", f"{M}/ann", None),
    ("GET", f"{M}/ann/history", None),
    ("GET", f"{M}/export", None),
    ("POST", "/api/find", {"schema": "person"}),
    ("POST", M, {**ANN, "id": "bo"}),
    ("PATCH", f"{M}/ann", {"city": "Malmö"}),
    ("POST", f"{M}/batch/update", [{"id": "ann", "city": "Malmö"}]),
    ("DELETE", f"{M}/ann", None),
    ("GET", f"{M}/ann/files/none", None),
]


@pytest.fixture(params=ENGINES)
async def here(request, tmp_path):
    async with interface(tmp_path, request.param) as made:
        await made.declare("person", {"fields": FIELDS})
        await made.policy("any", "person", *ACTIONS, purpose="any")
        await made.policy("listed", "person", *ACTIONS, purpose=["fraud", "support case"])
        await made.policy("free", "person", *ACTIONS)
        assert (await made.client("POST", M, json=ANN)).status == 201
        yield made


async def ask(here, as_: str, asked: tuple[str, str, Any], *purposes: str):
    method, path, body = asked
    headers = [("Authorization", f"Bearer under:{as_}"), *(("x-purpose", one) for one in purposes)]
    address = here.client.address + path
    async with here.client.session.request(method, address, json=body, headers=headers) as answer:
        return answer.status, (await answer.read()).decode()


@pytest.mark.parametrize("asked", ASKED)
async def test_a_reveal_without_its_purpose_is_refused_and_with_it_stands_in_the_line(here, asked):
    for as_, purposes in (
        ("any", ()),
        ("any", ("",)),
        ("any", ("a", "b")),
        ("any", ("x" * 201,)),
        ("listed", ("fun",)),
        ("free,listed", ()),
        ("listed,any", ("fun",)),
    ):
        status, text = await ask(here, as_, asked, *purposes)
        assert (status, "purpose_required" in text) == (403, True), (as_, text)
        assert "Ann" not in text
    assert not [line for line in here.audit.lines if line["event"] in ("reveal", "delete")]
    status, text = await ask(here, "listed,any", asked, "support case")
    assert status in (200, 201, 204, 400, 404), text
    lines = [line for line in here.audit.lines if line["event"] in ("reveal", "write", "delete")]
    assert status >= 400 or lines[-1]["purpose"] == "support case"


async def test_a_list_is_named_and_a_policy_that_asks_nothing_notes_nothing(here):
    _, text = await ask(here, "listed", ASKED[0], "fun")
    assert "fraud, support case" in text
    assert (await ask(here, "free", ASKED[0], "fun"))[0] == 200
    assert "purpose" not in here.audit.lines[-1]


async def test_an_answer_is_given_again_for_the_same_purpose_alone(here):
    async def again(purpose: str) -> int:
        headers = {
            "Authorization": "Bearer under:any", "x-purpose": purpose, "Idempotency-Key": "k1"
        }  # fmt: skip
        address = here.client.address + M
        async with here.client.session.post(
            address, json={**ANN, "id": "eva"}, headers=headers
        ) as said:
            return int(said.status)

    assert [await again(purpose) for purpose in ("fraud", "fraud", "fun")] == [201, 201, 429]
