from typing import Any

import pytest

from proxy.errors import VaultError
from proxy.redactor.message import RawHeaders
from tests.support.exchanges import FIELDS, USUAL, Desk, desk
from tests.support.table import table

COLUMNS = '{Name: name, "E-mail": email, Born: born}'
EXPORT = f"{{match: GET /export, read: p, response: {{restore: csv, columns: {COLUMNS}, id: column ID}}}}"
CSV: RawHeaders = ((b"Content-Type", b"text/csv; charset=utf-8"),)
ANN = {"name": 'Ann "Q", R', "email": "Ann@x.example", "born": "1931-02-27"}


async def exported(one: Desk, pieces: list[bytes], headers: RawHeaders = CSV) -> bytes:
    call = await one.send("GET /export")
    assert (b"Accept-Encoding", b"identity") in call.sent.headers
    stream = await call.exchange.stream(200, headers)
    assert stream is not None
    try:
        return b"".join([*[await stream.restore(piece) for piece in pieces], await stream.rest()])
    finally:
        await stream.end()
        assert one.idle


def row(record: dict[str, Any], made: str = "2020-01-01") -> str:
    return f"{record['id']};{record['name']};{record['email']};{record['born']};{made}\r\n"


async def test_an_export_shows_the_values_of_its_columns_and_every_other_byte_stays():
    one = await desk(*USUAL, EXPORT)
    ann, eve = await one.create(ANN), await one.create({**ANN, "name": "Eve"}, 2)
    head = "\ufeffID;Name;E-mail;Born;Made\r\n"
    text = head + row(ann, ann["born"]) + row(eve) + "3;nobody;;1950-01-01;=1+1"
    whole = await exported(one, [text.encode()])
    assert whole.decode() == (
        f'{head}1;"Ann ""Q"", R";Ann@x.example;1931-02-27;{ann["born"]}\r\n'
        "2;Eve;Ann@x.example;1931-02-27;2020-01-01\r\n3;nobody;;1950-01-01;=1+1"
    )
    pieces = [text.encode()[at : at + 7] for at in range(0, len(text.encode()), 7)]
    assert await exported(one, pieces) == whole
    assert one.audit.lines[-1]["fields"] == ["born", "email", "name"]


@table("ident", [True, False])
async def test_an_export_shows_no_false_date_where_a_row_has_no_id(ident):
    one = await desk(*USUAL, EXPORT)
    ann = await one.create(ANN)
    head, end = "ID;Born;Made\r\n", ";2020-01-01\r\n"
    seen = await exported(one, [f"{head}{1 if ident else ''};{ann['born']}{end}".encode()])
    assert seen.decode() == head + ("1;1931-02-27" if ident else ";") + end


async def test_a_long_export_costs_one_read_for_each_hundred_records():
    one = await desk(*USUAL, EXPORT)
    ann = await one.create(ANN)
    text = "ID;Name;E-mail;Born;Made\r\n" + row(ann) * 1000
    one.store.calls.clear()
    whole = await exported(one, [text.encode()])
    assert whole.count(b"Ann@x.example") == 1000
    assert len(one.store.calls) <= 20


async def test_an_export_that_cannot_be_read_passes_with_tokens_or_is_refused():
    one = await desk(*USUAL, EXPORT)
    ann = await one.create(ANN)
    text = f"a;b\r\n1;{ann['name']}\r\n".encode()
    assert await exported(one, [text, text]) == text + text
    assert one.events["unreadable_answer"] == 1
    strict = await desk(*USUAL, EXPORT, more="on_error: {unreadable_answer: 502}")
    with pytest.raises(VaultError) as caught:
        await exported(strict, [text])
    assert caught.value.code == "unreadable_answer"


@table(
    ("method", "status", "headers"),
    [
        ("GET", 200, ((b"Content-Type", b"text/html"),)),
        ("GET", 200, ((b"Content-Type", b"text/csv; charset=utf-16"),)),
        ("GET", 200, (*CSV, (b"Content-Encoding", b"gzip"))),
        ("GET", 404, CSV),
        ("HEAD", 200, CSV),
    ],
)
async def test_another_answer_is_no_export(method, status, headers):
    one = await desk(*USUAL, EXPORT)
    call = await one.send(f"{method} /export")
    assert await call.exchange.stream(status, headers) is None
    await call.exchange.settled(status, headers)


async def test_a_small_token_without_an_id_is_a_fault():
    with pytest.raises(VaultError, match="1 fault") as caught:
        await desk(EXPORT.replace(", id: column ID", ""), fields=FIELDS)
    assert "name its column (id: column ID)" in caught.value.details[0].text


async def test_an_export_settles_an_update_in_doubt():
    one = await desk(*USUAL, EXPORT)
    await one.create(ANN)
    for name in ("Anna", "Hanna"):
        call = await one.send("PATCH /p/1", {**ANN, "name": name})
        await call.answer(500)
        one.clock.advance(1000)
        text = "ID;Name;E-mail;Born;Made\r\n" + row({**call.json, "id": 1})
        assert f"1;{name};Ann@x.example" in (await exported(one, [text.encode()])).decode()
        assert await one.counts() == (1, 0, 0)


async def test_a_date_in_a_column_that_the_rule_does_not_name_is_told():
    export = EXPORT.replace(", Born: born", "")
    page = "{match: GET /l, read: p, response: {restore: html, only: [name, born], columns: {Name: name, Geboren: born}}}"
    one = await desk(*USUAL, export, page)
    ann = await one.create(ANN)
    for head, told in (("Day", 0), ("Born", 1), ("GEBOREN", 1)):
        text = f"ID;Name;E-mail;{head};Made\r\n{row(ann)}"
        assert ann["born"].encode() in await exported(one, [text.encode()])
        metric = one.metrics.samples("domicile_unnamed_parameters_total")
        assert [count for key, count in metric if key[1:] == ("GET /export", "export", "born")] == [
            told + (head == "GEBOREN")
        ] * bool(told)
    # dates of the application itself
    text = f"ID;Name;E-mail;Born;Made\r\n{row({**ann, 'born': '2020-01-01'})}"
    await exported(one, [text.encode()])
    assert [count for _, count in one.metrics.samples("domicile_unnamed_parameters_total")] == [2]
