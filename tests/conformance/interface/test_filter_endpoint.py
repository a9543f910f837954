"""The external access-control exchange, over HTTP on both sides: what is asked, what an answer lets
through, and that nothing else does.
"""

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import FormData

from proxy.vault.records import find
from tests.support.api import ENGINES, Interface, Said, interface
from tests.support.filterendpoint import URL, FilterEndpoint, answered, filtering

M = "/api/models/person"
DEFINITION: dict[str, Any] = {
    "fields": {
        "id": {"type": "primary_key"},
        "city": {"type": "string", "storage": "indexed"},
        "parent": {"type": "string"},
    }
}
PEOPLE = (
    {"id": "a", "city": "Lund"},
    {"id": "b", "city": "Lund", "parent": "a"},
    {"id": "c", "city": "Umeå"},
)
PERSON = {"x-client-auth": "Bearer person-1"}
Here = tuple[Interface, FilterEndpoint]


@pytest.fixture
async def scene(request, tmp_path) -> AsyncIterator[Here]:
    """On the engine that a test asks for, else in memory: what decides stands above all of them."""
    async with (
        interface(tmp_path, getattr(request, "param", "memory")) as here,
        filtering(here) as endpoint,
    ):
        await here.declare("person", DEFINITION)
        await here.policy(
            "acl", "person", "read", "write", "delete", external_acl=URL.format(endpoint.port)
        )
        for record in PEOPLE:
            assert (await here.client("POST", M, json=record)).status == 201
        yield here, endpoint


async def ask(here: Interface, method: str, path: str, body: Any = None, **more: Any) -> Said:
    sent = {"json": body} if body is not None else {}
    return await here.client(
        method, path, "under:acl", headers={**PERSON, **more.pop("headers", {})}, **sent, **more
    )


async def upload(here: Interface, key: str, as_: str = "writer", method: str = "POST") -> Said:
    form = FormData()
    form.add_field("file", b"a page", filename="a.txt", content_type="text/plain")
    headers = {**PERSON, "x-filename": "a.txt"}
    return await here.client(method, f"{M}/{key}/files", as_, data=form, headers=headers)


async def keys(here: Interface) -> list[str]:
    """The keys of all records, as somebody sees them who is under no policy."""
    found = await here.client(
        "POST", M + "/find", json={"options": {"sort": [{"created_at": "asc"}]}}
    )
    return sorted(record["id"] for record in found.json["data"])


@pytest.mark.parametrize("scene", ENGINES, indirect=True)
async def test_who_changes_a_file_that_it_may_not_read_is_told_no_more_than_it_sent(scene):
    here, endpoint = scene
    file = f"{M}/a/files/{(await upload(here, 'a')).json['file_id']}"
    await here.policy("blind", "person", "write")
    told = {"file_id", "updated_at", "download_link"}
    blind = await here.client("PATCH", file, "under:blind", json={"mime_type": "text/csv"})
    endpoint.allowed |= {"write": ["a"], "read": []}
    forbidden = await ask(here, "PATCH", file, {"mime_type": "text/csv"})
    for said in (blind, forbidden):
        assert (said.status, said.json.keys(), said.json["mime_type"]) == (
            200,
            told | {"mime_type"},
            "text/csv",
        )
    endpoint.allowed["read"] = ["a"]
    assert (await ask(here, "PATCH", file, {"mime_type": "text/csv"})).json["filename"] == "a.txt"


@pytest.mark.parametrize("scene", ENGINES, indirect=True)
async def test_a_listing_costs_one_question_and_shows_what_is_allowed(scene):
    here, endpoint = scene
    endpoint.allowed["read"] = ["c", "a", "somebody else"]
    said = await ask(here, "POST", M + "/find", {"options": {"limit": 50}})
    assert sorted(record["id"] for record in said.json["data"]) == ["a", "c"]
    assert (said.json["meta"]["count"], said.json["meta"]["total"]) == (2, 2)
    assert endpoint.tokens == [b"Bearer person-1"]
    assert endpoint.asked == [
        {"action": "v1.restapi.read", "type": "person", "id": endpoint.asked[0]["id"]}
    ]
    assert endpoint.told() == [("read", ("a", "b", "c"))]


@pytest.mark.parametrize("path", ["/api/find", "/sf/find", "/sf/find-ids"])
async def test_so_do_the_direct_ways(scene, path):
    here, endpoint = scene
    endpoint.allowed["read"] = ["b"]
    said = await ask(here, "POST", path, {"schema": "person", "filter": {"city": "Lund"}})
    assert [item if isinstance(item, str) else item["id"] for item in said.json["data"]] == ["b"]
    assert (said.json["meta"]["total"], endpoint.told()) == (1, [("read", ("a", "b"))])


async def test_it_is_asked_where_nothing_matches_too(scene):
    here, endpoint = scene
    said = await ask(here, "POST", M + "/find", {"filter": {"city": "Kiruna"}})
    assert (said.json["data"], said.json["meta"]["total"], endpoint.told()) == (
        [],
        0,
        [("read", ())],
    )


async def test_without_a_token_that_counts_nobody_learns_whether_something_matches(scene):
    here, endpoint = scene
    record = {"country": "se", "record_key": "r", "profile_key": "p-1", "key1": "secret"}
    assert (await here.client("POST", "/api/records", json=record)).status == 201
    rules = {"dtk": "a1B2" * 24, "rules": {"key1": {"strategy": "alphaNumericPersistent"}}}
    made = await here.client("POST", "/api/records/rehash", json={**rules, "keys": ["p-1"]})
    await here.policy(
        "kept", "records", "read", "write", "delete", external_acl=URL.format(endpoint.port)
    )
    endpoint.says = [answered(b"", b"401 Unauthorized")]
    token = made.json["data"][0]["fields"]["key1"]
    questions = (
        *[
            (path, {"schema": "person", "filter": {"city": "VALUE"}})
            for path in ("/api/find", "/sf/find-ids")
        ],
        (M + "/find", {"filter": {"city": "VALUE"}}),
        (M + "/clone", {"filter": {"city": "VALUE"}, "update_with": {"id": "new"}}),
        (M + "/batch/update", {"search_key": "city", "records": [{"city": "VALUE"}]}),
        ("/api/records/find", {"country": "se", "filter": {"key1": "VALUE"}}),
        ("/api/records/rehash", {**rules, "keys": ["VALUE"]}),
        ("/api/records/rehash/resolve", {"tokens": ["VALUE"]}),
    )
    for path, body in questions:
        answers = []
        for value in ("Lund", "Kiruna", "secret", "p-1", token):
            body_ = json.loads(json.dumps(body).replace("VALUE", value))
            said = await here.client("POST", path, "under:acl,kept", headers=PERSON, json=body_)
            answers.append((said.status, said.body))
        assert len(set(answers)) == 1, path
        assert answers[0][0] == 502, path


@pytest.mark.parametrize(("allowed", "left"), [("*", ["a", "b", "c"]), ([], [])])
async def test_all_and_none(scene, allowed, left):
    here, endpoint = scene
    endpoint.allowed["read"] = allowed
    found = await ask(here, "POST", M + "/find", {})
    exported = await ask(here, "GET", M + "/export")
    assert sorted(record["id"] for record in found.json["data"]) == left
    assert sorted(record["id"] for record in exported.json["data"]) == left
    assert (found.json["meta"]["total"], exported.json["meta"]["count"]) == (len(left), len(left))


#: A request about ``a`` and what it asks the endpoint; each is refused or finds nothing as soon as
#: one answer lacks the key.
CALLS: dict[str, tuple[str, str, Any, list[tuple[str, tuple[str, ...]]]]] = {
    "create": ("POST", M, {"id": "n"}, [("write", ("n",))]),
    "create v2": ("POST", "/api/v2/models/person", [{"id": "n"}, {"id": "m"}], [("write", ("m", "n"))]),
    "batch": ("POST", M + "/batch", [{"id": "n"}, {"id": "m"}], [("write", ("m", "n"))]),
    "update": ("POST", M + "/batch/update", [{"id": "a", "city": "Kiruna"}], [("write", ("a",)), ("read", ("a",))]),
    "update by field": (
        "POST", M + "/batch/update", {"search_key": "city", "records": [{"city": "Lund", "parent": "x"}]},
        [("read", ("a", "b")), ("write", ("a", "b"))],
    ),
    "clone": ("POST", M + "/clone", {"filter": {"id": "a"}, "update_with": {"id": "n"}}, [("read", ("a",)), ("write", ("n",))]),
    "migrate": ("POST", M + "/a/migrate/c", None, [("read", ("a",)), ("delete", ("a",)), ("write", ("c",))]),
    "history": ("GET", M + "/a/history", None, [("read", ("a",))]),
    "delete": ("DELETE", M + "/a", None, [("delete", ("a",))]),
    "delete many": ("POST", M + "/batch/delete", {"filter": {"id": ["a", "c"]}}, [("delete", ("a", "c"))]),
    "cascade": ("DELETE", M + "/a?cascadeBy=parent", None, [("delete", ("a",)), ("delete", ("b",))]),
    "find": ("POST", M + "/find", {"filter": {"id": "a"}}, [("read", ("a",))]),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
async def test_every_operation_asks_before_it_tells_or_changes_anything(scene, name):
    here, endpoint = scene
    method, path, body, questions = CALLS[name]
    for act, about in questions:
        endpoint.allowed = {"read": "*", "write": "*", "delete": "*", act: list(about[1:])}
        if (act, len(questions)) == ("delete", 2) and name == "cascade":
            endpoint.allowed["delete"] = [] if about == ("a",) else ["a"]
        said = await ask(here, method, path, body)
        if name == "find":
            assert (said.status, said.json["data"]) == (200, [])
        elif (name, act) == ("update by field", "read"):
            assert (said.status, [record["id"] for record in said.json]) == (201, ["b"])
        else:
            refusal = {
                "history": (404, "not_found"),
                "clone": (403, "no_match" if act == "read" else "access_denied"),
            }
            assert (said.status, said.json["code"]) == refusal.get(name, (401, "access_denied")), (
                act,
                about,
            )
        assert await keys(here) == ["a", "b", "c"]
        endpoint.told()
    endpoint.allowed = dict.fromkeys(("read", "write", "delete"), "*")
    said = await ask(here, method, path, body)
    assert said.status < 300, said.json
    assert endpoint.told() == questions


async def test_files_are_asked_about_by_their_record(scene):
    here, endpoint = scene
    file = (await upload(here, "a")).json["file_id"]
    endpoint.allowed = {"read": ["b"], "write": ["b"], "delete": "*"}
    hidden = await ask(here, "GET", f"{M}/a/files/{file}")
    nothing = await ask(here, "GET", f"{M}/none/files/{file}")
    assert (hidden.status, hidden.json["code"]) == (404, "not_found")
    assert hidden.body == nothing.body
    assert endpoint.told() == [("read", ("a",)), ("read", ("none",))]
    for said in (
        await upload(here, "a", "under:acl"),
        await upload(here, "a", "under:acl", "PUT"),
        await ask(here, "PATCH", f"{M}/a/files/{file}", {"filename": "b.txt"}),
        await ask(here, "DELETE", f"{M}/a/files/{file}"),
        await ask(here, "POST", f"{M}/a/files/move/b", {"attachment_ids": [file]}),
        await ask(here, "POST", f"{M}/b/files/move/a", {"attachment_ids": [file]}),
    ):
        assert (said.status, said.json["code"]) == (403, "access_denied")
    assert endpoint.told() == [("write", ("a",))] * 4 + [("write", ("a", "b"))] * 2
    endpoint.allowed = {"read": ["a"], "write": ["a", "b"], "delete": []}
    assert (await ask(here, "GET", f"{M}/a/files/{file}")).body == b"a page"
    assert (
        await ask(here, "POST", f"{M}/a/files/move/b", {"attachment_ids": [file]})
    ).status == 204
    assert (await ask(here, "DELETE", f"{M}/b/files/{file}")).status == 204


async def test_figures_would_tell_of_records_that_are_not_allowed(scene):
    here, endpoint = scene
    said = await ask(here, "POST", M + "/aggregate", {"metrics": {"n": {"func": "count"}}})
    assert (said.status, said.json["code"], endpoint.told()) == (401, "access_denied", [])


async def test_functions_ask_in_the_name_of_the_person(tmp_path):
    async with interface(tmp_path) as here, filtering(here) as endpoint:
        fields = {
            "id": {"type": "primary_key"},
            "city": {"type": "string"},
            "age": {"type": "integer", "storage": "indexed"},
        }
        await here.declare("contact", {"fields": fields})
        await here.policy("acl", "contact", "read", external_acl=URL.format(endpoint.port))
        await here.client(
            "POST", "/api/models/contact", json={"id": "a", "city": "Lund", "age": 40}
        )
        for allowed, result in (("*", 40), ([], None)):
            endpoint.allowed["read"] = allowed
            said = await ask(here, "POST", "/api/functions/oldest", {"arguments": {"city": "Lund"}})
            assert said.json == {"result": result}
        assert endpoint.tokens == [b"Bearer person-1"] * 2


async def test_pages_and_exports_go_on_behind_what_is_not_allowed(scene):
    here, endpoint = scene
    endpoint.allowed["read"] = ["c"]
    first = (await ask(here, "GET", M + "/export?limit=2")).json
    assert (first["data"], first["meta"]["count"]) == ([], 0)
    second = (await ask(here, "GET", f"{M}/export?limit=2&next={first['meta']['next']}")).json
    assert [record["id"] for record in second["data"]] == ["c"]
    assert [len(about) for _, about in endpoint.told()] == [2, 1]


@pytest.mark.parametrize(
    "headers",
    [{}, {"x-client-auth": ""}, {"x-client-auth": "person-1"}, {"x-client-auth": "Basic a"}, {"x-client-auth": "Bearer a, Bearer b"}],
)  # fmt: skip
async def test_without_the_token_of_the_person_nothing_is_told(scene, headers):
    here, endpoint = scene
    for method, path, body, _ in CALLS.values():
        sent = {"json": body} if body is not None else {}
        said = await here.client(method, path, "under:acl", headers=headers, **sent)
        assert (said.status, said.json["errors"][0]["source"]) == (401, "x-client-auth")
    assert endpoint.asked == []
    assert await keys(here) == ["a", "b", "c"]


WRONG = {
    "a redirect": answered(b"", b"307 Elsewhere", b"Location: http://127.0.0.1:1/"),
    "an error": answered(b'{"id": "*"}', b"500 Broken"),
    "nothing there": answered(b'{"id": "*"}', b"404 Not Found"),
    "no content": answered(b"", b"204 No Content"),
    "another property": answered(b'{"ids": "*"}'),
    "one more property": answered(b'{"id": "*", "type": "person"}'),
    "the same property twice": answered(b'{"id": [], "id": "*"}'),
    "another constant": answered(b'{"id": "all"}'),
    "numbers": answered(b'{"id": [1]}'),
    "null": answered(b'{"id": null}'),
    "an object": answered(b'{"id": {"a": true}}'),
    "an array": answered(b'["a"]'),
    "no JSON": answered(b"*"),
    "nothing": answered(b""),
    "half an answer": answered(b'{"id": "*"}').replace(
        b"Content-Length: 11", b"Content-Length: 99"
    ),
    "no HTTP": b"hello\r\n\r\n",
    "a huge answer": answered(json.dumps({"id": ["x" * 1000] * 5000}).encode()),
}


@pytest.mark.parametrize("name", WRONG)
async def test_a_wrong_answer_allows_nothing_and_changes_nothing(tmp_path, name):
    async with (
        interface(tmp_path) as here,
        filtering(here, 0.4 if name == "half an answer" else 10.0) as endpoint,
    ):
        await here.declare("person", DEFINITION)
        await here.policy(
            "acl", "person", "read", "write", "delete", external_acl=URL.format(endpoint.port)
        )
        await here.client("POST", M, json=PEOPLE[0])
        endpoint.says = [WRONG[name]]
        for path, body in (
            (M + "/find", {}),
            (M, {"id": "n"}),
            (M + "/batch/delete", {"filter": {"id": ["a"]}}),
        ):
            said = await ask(here, "POST", path, body)
            assert (said.status, said.json["code"]) in (
                (502, "filter_endpoint_wrong"),
                (504, "filter_endpoint_late"),
            )
            assert "Lund" not in said.body.decode()
        assert await keys(here) == ["a"]


async def test_no_answer_in_time_allows_nothing(tmp_path):
    async with interface(tmp_path) as here, filtering(here, 0.05) as endpoint:
        await here.declare("person", DEFINITION)
        await here.policy("acl", "person", "read", external_acl=URL.format(endpoint.port))
        await here.client("POST", M, json=PEOPLE[0])
        endpoint.says = [None]
        said = await ask(here, "POST", M + "/find", {})
        assert (said.status, said.json["code"]) == (504, "filter_endpoint_late")


async def test_an_answer_that_is_kept_is_for_the_person_it_was_given_to(scene):
    here, _ = scene
    once = {"Idempotency-Key": "k"}
    first = await ask(here, "POST", M, {"id": "n", "city": "Lund"}, headers=once)
    again = await ask(here, "POST", M, {"id": "n", "city": "Lund"}, headers=once)
    other = await ask(
        here,
        "POST",
        M,
        {"id": "n", "city": "Lund"},
        headers={**once, "x-client-auth": "Bearer person-2"},
    )
    assert (first.status, again.headers["Idempotent-Replayed"], again.body) == (
        201,
        "true",
        first.body,
    )
    assert (other.status, other.json["code"]) == (429, "idempotency_check_failed")


async def test_the_record_family_asks_about_its_records_by_their_record_key(tmp_path):
    async with interface(tmp_path) as here, filtering(here) as endpoint:
        await here.policy(
            "acl", "records", "read", "write", "delete", external_acl=URL.format(endpoint.port)
        )
        endpoint.allowed = {"read": ["r"], "write": ["r"], "delete": []}
        wrote = [
            await ask(here, "POST", "/api/records", {"country": "se", "record_key": key})
            for key in ("r", "s")
        ]
        assert [said.status for said in wrote] == [201, 401]
        found = await ask(here, "POST", "/api/records/find", {"country": "se", "filter": {}})
        assert [record["record_key"] for record in found.json["data"]] == ["r"]
        assert (await ask(here, "DELETE", "/api/records/se/r")).status == 401
        assert endpoint.told() == [
            ("write", ("r",)),
            ("write", ("s",)),
            ("read", ("r",)),
            ("delete", ("r",)),
        ]


async def test_a_schema_whose_key_has_the_name_of_another_property_can_have_no_filter_endpoint(
    tmp_path,
):
    async with interface(tmp_path) as here:
        for name in ("type", "action"):
            await here.declare(f"by_{name}", {"fields": {name: {"type": "primary_key"}}})
            body = {
                "schema": f"by_{name}",
                "actions": ["read"],
                "external_acl": "https://app.example.com/allowed",
            }
            said = await here.client("PUT", "/api/policies/acl", "chief", json=body)
            assert (said.status, [error["source"] for error in said.json["errors"]]) == (
                400,
                ["/external_acl"],
            )


async def test_an_answer_to_who_overwrites_a_record_has_its_files_only_where_they_may_be_seen(
    scene,
):
    here, endpoint = scene
    await here.policy("acl", "records", "read", "write", external_acl=URL.format(endpoint.port))
    record = {"country": "se", "record_key": "a"}
    assert (await here.client("POST", "/api/records", json=record)).status == 201
    form = FormData()
    form.add_field("file", b"a page", filename="a.txt", content_type="text/plain")
    sent = await here.client(
        "POST", "/api/records/se/a/files", data=form, headers={"x-filename": "a.txt"}
    )
    assert sent.status == 201
    for allowed, files in ((["a"], [sent.json["file_id"]]), (["b"], [])):
        endpoint.allowed["read"] = allowed
        said = await ask(here, "POST", "/api/records", record)
        assert (said.status, [one["file_id"] for one in said.json["attachments"]]) == (201, files)
        assert endpoint.told() == [("write", ("a",)), ("read", ("a",))]


@pytest.mark.parametrize("scene", ENGINES, indirect=True)
async def test_what_is_not_allowed_can_neither_be_guessed_by_pages_nor_by_updates(scene):
    here, endpoint = scene
    endpoint.allowed = {"read": ["c"], "write": ["c"]}
    told = []
    for guess in ("Lund", "Kiruna"):  # what others have, and what nobody has
        oldest = {"filter": {"$or": [{"city": guess}, {"city": "Umeå"}]}}
        for options in ({"limit": 1}, {"limit": 1, "offset": 1}, {"limit": 2, "offset": 0}):
            sorted_ = {**options, "sort": [{"created_at": "asc"}]}
            told.append(
                (guess, (await ask(here, "POST", M + "/find", {**oldest, "options": sorted_})).body)
            )
        copy = {"filter": oldest["filter"], "update_with": {"id": "a"}}
        told.append((guess, (await ask(here, "POST", M + "/clone", copy)).body))
        by = {"search_key": "city", "records": [{"city": guess, "parent": "x"}]}
        told.append((guess, (await ask(here, "POST", M + "/batch/update", by)).body))
    told = [
        (guess, re.sub(rb'"next":"[^"]+"', b'"next":""', body)) for guess, body in told
    ]  # sealed, another each time
    assert [body for guess, body in told if guess == "Lund"] == [
        body for guess, body in told if guess == "Kiruna"
    ]
    assert b'"id":"c"' in told[0][1]


async def test_a_walk_over_a_person_tells_of_no_record_that_is_not_allowed(scene):
    here, endpoint = scene
    endpoint.allowed["read"] = ["a"]
    for value, found in (("Lund", 1), ("Umeå", 0), ("nobody", 0)):
        answer = await ask(here, "POST", "/api/persons/find", {"value": value})
        meta = answer.json["meta"]
        assert (len(answer.json["data"]), meta["count"], meta["looked_at"]) == (found,) * 3


async def test_pages_go_on_behind_what_is_not_allowed_up_to_a_bound(scene, monkeypatch):
    here, endpoint = scene
    monkeypatch.setattr(find, "ASKED_AT_ONCE", 2)
    endpoint.allowed["read"] = ["b", "c"]
    pages = [
        await ask(here, "POST", M + "/find", {"options": {"limit": 1, "offset": at}})
        for at in range(3)
    ]
    shown = [[record["id"] for record in page.json["data"]] for page in pages]
    assert (sorted(shown[0] + shown[1]), shown[2]) == (["b", "c"], [])
    monkeypatch.setattr(find, "MOST_ASKED", 2)
    endpoint.allowed["read"] = []
    said = await ask(here, "POST", M + "/find", {"options": {"limit": 2}})
    assert (said.status, said.json["code"]) == (422, "too_broad")


async def test_a_file_that_may_not_be_read_cannot_be_moved_to_where_it_could(scene):
    here, endpoint = scene
    file = (await upload(here, "a")).json["file_id"]
    endpoint.allowed = {"read": ["b"], "write": ["a", "b"], "delete": []}
    said = await ask(here, "POST", f"{M}/a/files/move/b", {"attachment_ids": [file]})
    assert (said.status, said.json["code"]) == (403, "access_denied")
    assert (await ask(here, "GET", f"{M}/b/files/{file}")).status == 404
    assert endpoint.told() == [("write", ("a", "b")), ("read", ("a",)), ("read", ("b",))]
