"""Create: what each type of field takes, how it comes back from every storage class, and what is
refused.
"""

import json

import pytest

from tests.support.table import table

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: (type, JSON that is sent, JSON that comes back; the same where there is none)
TAKEN: list[tuple[str, str] | tuple[str, str, str]] = [
    ("string", '""'), ("string", '"x"'), ("string", '"  spaces stay  "'), ("string", '"Å\\u00e5😀"', '"Åå😀"'), ("string", '"line\\nbreak\\ttab"'),
    ("string", '"' + "x" * 256 + '"'), ("string", '"' + "😀" * 256 + '"'), ("string", '"<b>&\\"\'"'), ("string", '"null"'), ("string", "null"),
    ("integer", "0"), ("integer", "-1"), ("integer", "9223372036854775807"), ("integer", "-9223372036854775808"), ("integer", "1.0", "1"),
    ("integer", "1e3", "1000"), ("integer", "-0", "0"), ("integer", "null"),
    ("decimal", "0"), ("decimal", "0.1"), ("decimal", "-0.0001"), ("decimal", "999999999999.9999"), ("decimal", "1.50", "1.50"),
    ("decimal", "1e2", "100"), ("decimal", "123456789012.3456"), ("decimal", "0.30"), ("decimal", "null"),
    ("boolean", "true"), ("boolean", "false"), ("boolean", "null"),
    ("datetime", '"2024-02-29T23:59:59.999Z"'), ("datetime", '"0001-01-01T00:00:00.000Z"'), ("datetime", '"9999-12-31T23:59:59.999Z"'), ("datetime", "null"),
    ("date", '"2024-02-29"'), ("date", '"0001-01-01"'), ("date", '"9999-12-31"'), ("date", "null"),
    ("time", '"00:00:00"'), ("time", '"23:59:59"'), ("time", "null"),
    ("json", "{}"), ("json", '{"a":[1,"x",null,true,{"b":1.5}]}'), ("json", '{"":{"":""}}'), ("json", '{"$.a":1}'), ("json", "null"),
    ("json", '{"big":12345678901234567890.123456789}'), ("json", '{"a":' * 31 + "{}" + "}" * 31),
    ("json", '{"a":[' + ",".join(str(number) for number in range(1000)) + "]}"),
]  # fmt: skip

#: (type, JSON that is refused, where within the field)
REFUSED: list[tuple[str, str, str]] = [
    ("string", "1", ""), ("string", "true", ""), ("string", '["x"]', ""), ("string", '{"x":1}', ""), ("string", '"' + "x" * 257 + '"', ""),
    ("string", '"a\\u0000b"', ""),
    ("integer", '"1"', ""), ("integer", "1.5", ""), ("integer", "true", ""), ("integer", "9223372036854775808", ""), ("integer", "-9223372036854775809", ""),
    ("integer", "1e400", ""), ("integer", "1e999999999", ""), ("integer", "1" * 400, ""), ("integer", "[1]", ""), ("integer", "{}", ""), ("integer", "1e-1", ""),
    ("decimal", '"1.5"', ""), ("decimal", "0.00001", ""), ("decimal", "9007199254740993", ""), ("decimal", "1234567890123.12345", ""),
    ("decimal", "true", ""), ("decimal", "1e999999999", ""), ("decimal", "1e-999999999", ""), ("decimal", "[]", ""),
    ("boolean", "1", ""), ("boolean", "0", ""), ("boolean", '"true"', ""), ("boolean", "[true]", ""),
    ("datetime", '"2024-02-29"', ""), ("datetime", '"2023-02-29T00:00:00.000Z"', ""), ("datetime", '"2024-01-01T24:00:00.000Z"', ""),
    ("datetime", '"2024-01-01T00:00:00+02:00"', ""), ("datetime", '"2024-01-01 00:00:00.000Z"', ""), ("datetime", "1700000000", ""), ("datetime", '""', ""),
    ("date", '"2023-02-29"', ""), ("date", '"2024-2-9"', ""), ("date", '"29.02.2024"', ""), ("date", '"2024-02-29T00:00:00.000Z"', ""),
    ("date", "20240229", ""), ("date", '"0000-01-01"', ""), ("date", '"٢٠٢٤-٠٢-٢٩"', ""),
    ("time", '"24:00:00"', ""), ("time", '"23:60:00"', ""), ("time", '"23:59:60"', ""), ("time", '"1:02:03"', ""), ("time", '"01:02"', ""), ("time", "3600", ""),
    ("json", "[]", ""), ("json", '"{}"', ""), ("json", "1", ""), ("json", "true", ""), ("json", '{"a":"x\\u0000"}', "/a"), ("json", '{"a\\u0000":1}', ""),
    ("json", '{"a":' * 40 + "{}" + "}" * 40, ""), ("json", '{"a":[' + ",".join("1" * 1001) + "]}", ""),
]  # fmt: skip

#: (whole record as JSON, every place that is at fault)
RECORDS: list[tuple[str, list[str]]] = [
    ("{}", ["/id"]),
    ('{"id":null}', ["/id"]),
    ('{"id":""}', ["/id"]),
    ('{"id":1}', ["/id"]),
    ('{"id":"' + "k" * 129 + '"}', ["/id"]),
    ('{"id":"k\\u0000"}', ["/id"]),
    ('{"record_key":"k"}', ["/record_key", "/id"]),
    ('{"id":"k","nobody":1}', ["/nobody"]),
    ('{"id":"k","created_at":"2024-01-01T00:00:00.000Z"}', ["/created_at"]),
    ('{"id":"k","updated_at":null}', ["/updated_at"]),
    ('{"id":"k","version":1}', ["/version"]),
    ('{"id":"k","attachments":[]}', ["/attachments"]),
    ('{"id":"k","expires_at":"tomorrow"}', ["/expires_at"]),
    ('{"id":"k","expires_at":1700000000}', ["/expires_at"]),
    ('{"id":"k","a/b~c":1}', ["/a~1b~0c"]),
    ('{"id":"k","string_long":"' + "x" * 1001 + '"}', ["/string_long"]),
    (
        '{"integer_plain":"x","boolean_plain":1,"date_plain":"x"}',
        ["/integer_plain", "/boolean_plain", "/date_plain", "/id"],
    ),
    ("[]", [""]),
    ("1", [""]),
    ("null", [""]),
    ('"x"', [""]),
]

HEAD = {"Content-Type": "application/json"}
STORAGES = ("plain", "hashed", "sealed")


@table("case", TAKEN)
async def test_what_is_taken_comes_back(thing, case):
    kind, sent, back = (*case, case[-1])[:3]
    fields = ",".join(f'"{kind}_{short}":{sent}' for short in STORAGES)
    answer = await thing.client(
        "POST", "/api/models/thing", data=f'{{"id":"new",{fields}}}'.encode(), headers=HEAD
    )
    assert answer.status == 201, answer.body
    found = await thing.client(
        "POST", "/api/models/thing/find", json={"filter": {"record_key": "new"}}
    )
    assert (await thing.client("DELETE", "/api/models/thing/new")).status == 204
    for body in (answer.body, found.body):
        text = json.dumps(
            json.loads(body, parse_float=str), ensure_ascii=False, separators=(",", ":")
        )
        wanted = json.dumps(
            json.loads(back, parse_float=str), ensure_ascii=False, separators=(",", ":")
        )
        for short in STORAGES:
            assert f'"{kind}_{short}":{wanted}' in text


@table("kind, sent, place", REFUSED)
async def test_what_is_refused(thing, kind, sent, place):
    fields = ",".join(f'"{kind}_{short}":{sent}' for short in STORAGES)
    answer = await thing.client(
        "POST", "/api/models/thing", data=f'{{"id":"new",{fields}}}'.encode(), headers=HEAD
    )
    assert (answer.status, answer.json["code"]) == (400, "invalid_record"), answer.body
    places = [error["source"] for error in answer.json["errors"]]
    assert len(places) == len(STORAGES)
    for short, found in zip(STORAGES, places, strict=True):
        assert found.startswith(f"/{kind}_{short}{place}")


@table("sent, places", RECORDS)
async def test_all_faults_of_a_record_are_told_with_their_places(thing, sent, places):
    answer = await thing.client("POST", "/api/models/thing", data=sent.encode(), headers=HEAD)
    assert (answer.status, answer.json["code"]) == (400, "invalid_record"), answer.body
    assert [error["source"] for error in answer.json["errors"]] == places
    batch = await thing.client(
        "POST", "/api/models/thing/batch", data=f"[{sent}]".encode(), headers=HEAD
    )
    assert (batch.status, batch.json["code"]) == (400, "invalid_record")
    assert [error["source"] for error in batch.json["errors"]] == [f"/0{place}" for place in places]
