import json

import pytest

from proxy.errors import Code, VaultError
from tests.support.exchanges import FIELDS, Desk, desk
from tests.support.table import table

JSON_PATCH = ((b"Content-Type", b"application/json-patch+json"),)
SCIM_TYPE = ((b"Content-Type", b"application/scim+json"),)
NESTED = (
    *FIELDS,
    "street: {kind: text, at: $.address.street}",
    "city: {kind: text, at: $.address.city}",
    'marks: {kind: text, at: "$.marks[*].text"}',
)
ANN = {
    "name": "Ann Wexlomere", "email": "ann@wexlomere.example", "tags": ["one", "two"],
    "address": {"street": "Flumpergatan 7", "city": "Visby"}, "marks": [{"text": "first", "n": 1}],
}  # fmt: skip


async def patching(kind: str, request: str = "", fields: tuple[str, ...] = NESTED) -> Desk:
    return await desk(
        "{match: POST /p, create: p}",
        '{match: "GET /p/{id}", read: p}',
        f'{{match: "PATCH /p/{{id}}", update: p, request: {{patch: {kind}{request}}}}}',
        fields=fields,
    )


async def refused(one: Desk, body: object, headers=JSON_PATCH) -> Code:
    before = await one.counts()
    with pytest.raises(VaultError) as caught:
        await one.send("PATCH /p/1", body, headers)
    assert "secret" not in caught.value.message
    assert await one.counts() == before
    assert one.idle
    return caught.value.code


# ---------------------------------------------------------------------- JSON Patch


async def test_a_replaced_value_is_swapped_and_shown():
    one = await patching("json")
    stored = await one.create(ANN)
    patch = [
        {"op": "test", "path": "/name", "value": "Ann Wexlomere"},
        {"op": "replace", "path": "/name", "value": "Ann Newname"},
        {"op": "add", "path": "/address", "value": {"street": "Newroad 1", "zip": "111"}},
        {"op": "add", "path": "/tags/-", "value": "three"},
        {"op": "add", "path": "/tags/x", "value": "three"},
        {"op": "replace", "path": "/vip", "value": True},
    ]
    call = await one.send("PATCH /p/1", patch, JSON_PATCH)
    sent = call.json
    assert sent[0]["value"] == stored["name"]
    assert sent[1]["value"] not in ("Ann Newname", stored["name"])
    assert sent[2]["value"]["zip"] == "111"
    assert not any(text in call.sent.body.decode() for text in ("Newname", "Newroad", '"three"'))
    stored["name"], stored["address"] = sent[1]["value"], sent[2]["value"]
    stored["tags"].append(sent[3]["value"])
    await call.answer(200, stored)
    assert await one.shown(stored) == {
        **ANN, "id": 1, "name": "Ann Newname", "address": {"street": "Newroad 1", "zip": "111"},
        "tags": ["one", "two", "three"],
    }  # fmt: skip


async def test_a_test_of_another_value_fails_and_does_not_tell_it():
    one = await patching("json")
    stored = await one.create(ANN)
    patch = [{"op": "test", "path": "/name", "value": "secret"}]
    call = await one.send("PATCH /p/1", patch, JSON_PATCH)
    assert call.json[0]["value"] not in ("secret", stored["name"])
    await call.answer(409, {"error": "test"})
    assert (await one.shown(stored))["name"] == ANN["name"]


async def test_only_bytes_of_values_change():
    one = await patching("json")
    await one.create(ANN)
    body = b' [ {"path":"/name" ,"op":"replace", "value":"A\\u006en", "n":1.0e2} ] '
    sent = (await one.send("PATCH /p/1", body, JSON_PATCH)).sent.body
    token = json.loads(sent)[0]["value"]
    assert sent == body.replace(b"A\\u006en", token.encode())


async def test_what_is_removed_is_erased():
    one = await patching("json")
    stored = await one.create(ANN)
    patch = [{"op": "remove", "path": "/address"}, {"op": "remove", "path": "/name", "value": "x"}]
    call = await one.send("PATCH /p/1", patch, JSON_PATCH)
    assert call.json[1]["value"] != "x"
    await call.answer(204)
    shown = await one.shown(stored)
    assert shown["address"] == stored["address"]
    assert shown["name"] == stored["name"]
    assert shown["email"] == ANN["email"]


async def test_an_element_that_is_added_leaves_the_others():
    one = await patching("json")
    stored = await one.create(ANN)
    for value in ("three", "one"):
        patch = [{"op": "add", "path": "/tags/0", "value": value}]
        call = await one.send("PATCH /p/1", patch, JSON_PATCH)
        stored["tags"].insert(0, call.json[0]["value"])
        await call.answer(200, stored)
    assert (await one.shown(stored))["tags"] == ["one", "three", "one", "two"]


async def test_an_element_in_doubt_is_not_lost_by_the_next():
    one = await patching("json")
    stored = await one.create(ANN)
    call = await one.send("PATCH /p/1", [{"op": "add", "path": "/tags/-", "value": "a"}])
    stored["tags"].append(call.json[0]["value"])
    await call.exchange.failed(True)
    call = await one.send("PATCH /p/1", [{"op": "add", "path": "/tags/-", "value": "b"}])
    stored["tags"].append(call.json[0]["value"])
    await call.answer(200, {"id": 1})
    assert (await one.shown(stored))["tags"] == ["one", "two", "a", "b"]


async def test_the_last_write_of_a_place_counts():
    one = await patching("json")
    stored = await one.create(ANN)
    values = ("secret", "Ann Newname")
    patch = [{"op": "replace", "path": "/name", "value": value} for value in values]
    call = await one.send("PATCH /p/1", patch, JSON_PATCH)
    stored["name"] = call.json[1]["value"]
    assert "secret" not in call.sent.body.decode()
    await call.answer(200, stored)
    row = (await one.people.by_key(["1"]))["1"]
    live = (await one.people.versions(row))[0]
    assert [value.text for value in live.values["name"]] == ["Ann Newname"]


async def test_moves_within_a_field_pass():
    one = await patching("json")
    await one.create(ANN)
    patch = [
        {"op": "move", "from": "/tags/0", "path": "/tags/1"},
        {"op": "copy", "from": "/marks/0", "path": "/marks/-"},
        {"op": "copy", "from": "/vip", "path": "/seen"},
    ]
    assert (await one.send("PATCH /p/1", patch, JSON_PATCH)).json == patch


@table(
    ("patch", "code"),
    [
        ({"op": "move", "from": "/name", "path": "/nick"}, Code.VALUE_UNFIT),
        ({"op": "copy", "from": "/nick", "path": "/name"}, Code.VALUE_UNFIT),
        ({"op": "copy", "from": "/address", "path": "/old"}, Code.VALUE_UNFIT),
        ({"op": "copy", "from": "", "path": "/old"}, Code.VALUE_UNFIT),
        ({"op": "copy", "from": "/name", "path": "/email"}, Code.VALUE_UNFIT),
        ({"op": "add", "path": "/name/first", "value": "secret"}, Code.VALUE_UNFIT),
        ({"op": "add", "path": "/address", "value": "secret"}, Code.VALUE_UNFIT),
        ({"op": "add", "path": "/0/name", "value": "secret"}, Code.VALUE_UNFIT),
        ({"op": "add", "path": "/Name", "value": "secret"}, Code.AMBIGUOUS_JSON),
        ({"op": "add", "path": "/address.street", "value": "secret"}, Code.AMBIGUOUS_JSON),
        ({"op": "add", "path": "/address", "value": {"Street": "secret"}}, Code.AMBIGUOUS_JSON),
        ({"op": "add", "path": "name", "value": "secret"}, Code.BAD_REQUEST),
        ({"op": "add", "path": "/a~2", "value": "secret"}, Code.BAD_REQUEST),
        ({"op": "Add", "path": "/name", "value": "secret"}, Code.BAD_REQUEST),
        ({"op": "add", "value": "secret"}, Code.BAD_REQUEST),
        ({"op": "add", "path": 1, "value": "secret"}, Code.BAD_REQUEST),
        ({"op": "add", "path": "/name"}, Code.BAD_REQUEST),
        ({"op": "move", "path": "/name"}, Code.BAD_REQUEST),
        ({"op": "add", "path": "/x" * 70, "value": "secret"}, Code.TOO_LARGE),
        ({"path": "/name", "value": "secret"}, Code.UNREADABLE_BODY),
        ("secret", Code.UNREADABLE_BODY),
        (["secret"], Code.UNREADABLE_BODY),
    ],
)
async def test_what_cannot_be_followed_is_refused(patch, code):
    one = await patching("json")
    await one.create(ANN)
    assert await refused(one, [patch]) is code


@table(
    "path",
    [
        *("/", "//name", "/name/", "/./name", "/../name", "/address//street", "/address/../name"),
        *("/address/0/street", "/address/-/street", "/-1/name", "/$/name", "/*/name", "/0"),
        *("/%6eame", "/'name'", "/`name`", "/address/[street]", "/address/0", "/na\u200bme"),
    ],
)
async def test_a_path_that_some_libraries_read_as_the_way_to_a_place_is_refused(path):
    one = await patching("json")
    await one.create(ANN)
    assert await refused(one, [{"op": "add", "path": path, "value": "secret"}]) in (
        Code.VALUE_UNFIT, Code.AMBIGUOUS_JSON,
    )  # fmt: skip
    assert await refused(one, [{"op": "copy", "from": path, "path": "/secret"}]) in (
        Code.VALUE_UNFIT, Code.AMBIGUOUS_JSON,
    )  # fmt: skip


async def test_steps_that_lead_to_no_place_pass():
    one = await patching("json")
    await one.create(ANN)
    paths = ("/lines/0/text", "/lines/-", "/meta/name", "/$schema", "/address/0/zip", "/marks/0/n")
    patch = [{"op": "add", "path": path, "value": 7} for path in paths]
    assert (await one.send("PATCH /p/1", patch, JSON_PATCH)).json == patch


async def test_bodies_that_are_no_patch_are_refused():
    one = await patching("json")
    for body in ({"name": "secret"}, {"op": "add", "path": "/name", "value": "secret"}, "secret"):
        assert await refused(one, body) is Code.UNREADABLE_BODY
    assert (
        await refused(one, b"secret", ((b"Content-Type", b"text/plain"),)) is Code.UNREADABLE_BODY
    )
    many = [{"op": "test", "path": "/x", "value": 1}] * 1001
    assert await refused(one, many) is Code.TOO_LARGE


async def test_twice_the_same_member_of_an_operation_is_ambiguous():
    one = await patching("json")
    body = b'[{"op": "add", "path": "/vip", "path": "/name", "value": "secret"}]'
    assert await refused(one, body) is Code.AMBIGUOUS_JSON


# ---------------------------------------------------------------------- SCIM


SCIM_FIELDS = (
    "user: {kind: text, at: $.userName}", "family: {kind: name, at: $.name.familyName}",
    'mails: {kind: email, at: "$.emails[*].value"}',
    "unit: {kind: text, at: \"$['urn:ietf:params:scim:schemas:extension:enterprise:2.0:User'].department\"}",
)  # fmt: skip
BOB = {
    "userName": "bob.x", "name": {"familyName": "Wexlomere", "givenName": "B"},
    "emails": [{"value": "bob@wexlomere.example", "type": "work"}],
}  # fmt: skip


def scim(*operations: object) -> dict[str, object]:
    return {
        "schemas": ["urn:ietf:params:scim:api:messages:2.0:PatchOp"],
        "Operations": list(operations),
    }


@table(
    ("operation", "value", "field"),
    [
        ({"op": "replace", "path": "userName", "value": "@"}, "secret", "user"),
        ({"op": "Replace", "path": "USERNAME", "value": "@"}, "secret", "user"),
        ({"op": "add", "path": "name.familyName", "value": "@"}, "secret", "family"),
        ({"op": "add", "path": "name", "value": {"familyName": "@"}}, "secret", "family"),
        ({"op": "add", "value": {"name": {"familyName": "@"}, "x": 1}}, "secret", "family"),
        ({"op": "add", "value": {"name.familyName": "@"}}, "secret", "family"),
        (
            {"op": "replace", "path": 'emails[type eq "work"].value', "value": "@"},
            "secret@a.example", "mails",
        ),
        ({"op": "add", "path": "emails", "value": [{"value": "@"}]}, "secret@a.example", "mails"),
        ({"op": "add", "path": "emails", "value": {"value": "@"}}, "secret@a.example", "mails"),
        (
            {
                "op": "add", "value": "@",
                "path": "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:department",
            },
            "secret", "unit",
        ),
        (
            {
                "op": "add", "value": "@",
                "path": "urn:ietf:params:scim:schemas:core:2.0:User:userName",
            },
            "secret", "user",
        ),
    ],
)  # fmt: skip
async def test_values_of_scim_are_swapped(operation, value, field):
    one = await patching("scim", fields=SCIM_FIELDS)
    await one.create(BOB)
    body = json.dumps(scim(operation)).replace('"@"', json.dumps(value))
    call = await one.send("PATCH /p/1", body.encode(), SCIM_TYPE)
    assert "secret" not in call.sent.body.decode()
    await call.answer(204)
    row = (await one.people.by_key(["1"]))["1"]
    live = (await one.people.versions(row))[0]
    assert value in [one.text for one in live.values[field]]
    if field == "mails" and operation["op"] == "add":
        assert "bob@wexlomere.example" in [one.text for one in live.values[field]]


async def test_replaced_lists_are_replaced_and_removed_ones_erased():
    one = await patching("scim", fields=SCIM_FIELDS)
    await one.create(BOB)
    body = scim({"op": "replace", "path": "emails", "value": [{"value": "new@a.example"}]})
    await (await one.send("PATCH /p/1", body, SCIM_TYPE)).answer(204)
    row = (await one.people.by_key(["1"]))["1"]
    (live, *_) = await one.people.versions(row)
    assert [kept.text for kept in live.values["mails"]] == ["new@a.example"]
    await (
        await one.send("PATCH /p/1", scim({"op": "remove", "path": "Emails"}), SCIM_TYPE)
    ).answer(204)
    row = (await one.people.by_key(["1"]))["1"]
    (live, *_) = await one.people.versions(row)
    assert "mails" not in live.values
    assert live.values["user"][0].text == "bob.x"


@table(
    ("body", "code"),
    [
        (
            scim({"op": "replace", "path": 'emails[value eq "secret"].type', "value": "x"}),
            Code.VALUE_UNFIT,
        ),
        (scim({"op": "replace", "path": 'name[x eq "y"].familyName', "value": "secret"}), Code.VALUE_UNFIT),
        (scim({"op": "replace", "path": "emails[type eq", "value": "secret"}), Code.VALUE_UNFIT),
        (scim({"op": "replace", "path": "userName.x", "value": "secret"}), Code.VALUE_UNFIT),
        *(
            (scim({"op": "add", "path": path, "value": "secret"}), Code.VALUE_UNFIT)
            for path in (
                "urn:ietf:params:scim:schemas:core:1.0:userName", "urn:x:User:userName",
                "urn:x:2.0:User:name.familyName", "urn:x:User:emails[type pr].value",
                "$.userName", "department",
            )
        ),
        *(
            (scim({"op": "add", **operation}), Code.VALUE_UNFIT)
            for urn in ("urn:ietf:params:scim:schemas:core:2.0:User", "URN:x:User")
            for operation in (
                {"path": urn, "value": {"userName": "secret"}},
                {"value": {urn: {"name": {"familyName": "secret"}}}},
            )
        ),
        (
            scim({"op": "add", "path": 'urn:x:User:emails[value eq "secret"].type', "value": "x"}),
            Code.VALUE_UNFIT,
        ),
        (scim({"op": "replace", "value": "secret"}), Code.BAD_REQUEST),
        (scim({"op": "remove"}), Code.BAD_REQUEST),
        (scim({"op": "move", "path": "userName", "value": "secret"}), Code.BAD_REQUEST),
        (scim({"op": "add", "value": {"UserName": "a", "userName": "secret"}}), Code.AMBIGUOUS_JSON),
        ({**scim({"op": "remove", "path": "x"}), "userName": "secret"}, Code.VALUE_UNFIT),
        ({"userName": "secret"}, Code.UNREADABLE_BODY),
    ],
)  # fmt: skip
async def test_what_scim_cannot_follow_is_refused(body, code):
    one = await patching("scim", fields=SCIM_FIELDS)
    await one.create(BOB)
    assert await refused(one, body, SCIM_TYPE) is code


async def test_extensions_of_scim_that_hold_no_place_pass():
    one = await patching("scim", fields=SCIM_FIELDS)
    await one.create(BOB)
    urn = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"
    body = scim(
        {"op": "add", "path": urn, "value": {"costCenter": "7"}},
        {"op": "add", "path": "urn:x:2.0:User", "value": {"costCenter": "7"}},
        {"op": "add", "path": f"{urn}:manager", "value": {"userName": "boss"}},
        {"op": "add", "value": {urn: {"costCenter": "7"}, "urn:x:2.0:User:room": "8"}},
    )
    assert (await one.send("PATCH /p/1", body, SCIM_TYPE)).json == body


# ---------------------------------------------------------------------- dotted and merge


async def test_dotted_members_are_followed():
    one = await patching("dotted")
    stored = await one.create(ANN)
    call = await one.send(
        "PATCH /p/1", {"address.street": "secret", "tags.1": "secret", "tags.$": "secret", "n.m": 1}
    )
    sent = call.json
    assert sent["n.m"] == 1
    assert "secret" not in call.sent.body.decode()
    stored["address"]["street"], stored["tags"][1] = sent["address.street"], sent["tags.1"]
    await call.answer(200, stored)
    shown = await one.shown(stored)
    assert shown["address"] == {"street": "secret", "city": "Visby"}
    assert shown["tags"] == ["one", "secret"]


async def test_operators_that_set_and_unset_are_followed():
    one = await patching("dotted")
    stored = await one.create(ANN)
    body = {
        "$set": {"address.street": "secret"},
        "$unset": {"name": "", "email": "secret@a.example"},
    }
    call = await one.send("PATCH /p/1", body)
    assert "secret" not in call.sent.body.decode()
    await call.answer(204)
    assert (await one.shown(stored))["name"] == stored["name"]


@table(
    ("body", "code"),
    [
        ({"$push": {"tags": "secret"}}, Code.VALUE_UNFIT),
        ({"address[street]": "secret"}, Code.AMBIGUOUS_JSON),
        ({"name.first": "secret"}, Code.VALUE_UNFIT),
        ({"0.name": "secret"}, Code.VALUE_UNFIT),
        *(
            ({name: "secret"}, Code.VALUE_UNFIT)
            for name in (
                "address..street", ".name", "name.", "address.0.street", "address.$[].street",
                "address.$.street", "address.$[x].street", "address\\.street", "`address.street`",
            )
        ),
        *(
            (body, Code.VALUE_UNFIT)
            for body in (
                {"$set": {"address": {"$literal": {"street": "secret"}}}},
                {"$set": {"address": {"$literal": "secret"}}},
                {"$set": {"address": {"$cond": [True, {"street": "secret"}]}}},
                {"$set": {"x": 1, "$set": {"name": "secret"}}},
                {"address": {"$set": {"Street": "secret"}}},
            )
        ),
        ([{"name": "secret"}], Code.UNREADABLE_BODY),
        (b'{"name": "secret", "name": "b"}', Code.AMBIGUOUS_JSON),
        (b'{"name": "secret"', Code.MALFORMED_JSON),
    ],
)  # fmt: skip
async def test_what_dots_cannot_follow_is_refused(body, code):
    one = await patching("dotted")
    await one.create(ANN)
    assert await refused(one, body, ((b"Content-Type", b"application/json"),)) is code


async def test_operators_that_hold_no_place_pass():
    one = await patching("dotted")
    await one.create(ANN)
    day = {"$date": "2026-01-01"}
    body = {"$set": {"owner": {"$oid": "5f"}, "address": {"since": day}, "n.0.m": day}}
    assert (await one.send("PATCH /p/1", body)).json == body


async def test_a_merge_patch_erases_by_null():
    one = await patching("merge")
    stored = await one.create(ANN)
    body = {"name": "Ann Newname", "email": None, "address": None}
    call = await one.send("PATCH /p/1", body, ((b"Content-Type", b"application/merge-patch+json"),))
    assert call.json["email"] is None
    assert call.json["address"] is None
    await call.answer(204)
    row = (await one.people.by_key(["1"]))["1"]
    (live, *_) = await one.people.versions(row)
    assert sorted(live.values) == ["marks", "name", "tags"]
    assert (await one.shown({**stored, "name": call.json["name"]}))["name"] == "Ann Newname"
