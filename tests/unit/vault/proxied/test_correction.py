"""What a correction makes of a record, and of versions of it that are in doubt."""

import json
from collections.abc import Sequence

import msgspec
import pytest

from proxy.errors import Code, VaultError
from proxy.model.record import Record, RecordDraft
from proxy.model.schema import NO_VALUE, Value
from proxy.redactor.message import RawHeaders
from proxy.storage.changes import Change
from proxy.tokenization import SHAPES
from proxy.vault.body import RecordBody
from proxy.vault.next_version import ProxiedDraft
from proxy.vault.proxied.correction import correct_record
from proxy.vault.proxied.naming import bind
from proxy.vault.proxied.open_rows import AnswerObject
from proxy.vault.proxied.reconcile import reconcile_objects
from proxy.vault.proxied.reveal import reveal_objects
from proxy.vault.proxied.staging import doubt, promote, stage_creates, stage_updates
from proxy.vault.records.commit import no_changes
from proxy.vault.records.delete import delete_one
from proxy.vault.records.repository import Records
from tests.support.exchanges import HTML, JSON, USUAL, desk
from tests.support.table import table
from tests.support.vaults import Bench, draft, make_bench, person

KEY = "17"
CSV: RawHeaders = ((b"Content-Type", b"text/csv; charset=utf-8"),)
NDJSON: RawHeaders = ((b"Content-Type", b"application/x-ndjson"),)
SSE: RawHeaders = ((b"Content-Type", b"text/event-stream"),)


async def bench() -> Bench:
    """A record ``17`` with a plain field beside the usual ones, and a JSON number."""
    usual = person()
    plain = {**usual.shapes, "born": SHAPES["plain"]({})}
    made = await make_bench(recipe=usual._replace(shapes=plain))
    told = draft(name="Ann", email="a@example.com", born="1987-04-12", tags=["a", "b"])
    numbers = {**told.fields, "phone": (Value("4711", json=True),)}
    (held,) = await stage_creates(made.people, [ProxiedDraft(numbers)], [None])
    await bind(made.people, [(held, KEY)])
    return made


async def live(made: Bench) -> RecordBody:
    (row,) = (await made.people.by_key([KEY])).values()
    return made.people.sealer.open(row)


async def shown(made: Bench, content: RecordBody) -> dict[str, list[str | None]]:
    """What an answer with the tokens of these values shows."""
    places = tuple((name, one.token) for name, values in content.values.items() for one in values)
    revealed = await reveal_objects(made.people, [AnswerObject(KEY, places)])
    made.clock.advance(1)
    await reconcile_objects(made.people, [AnswerObject(KEY, places)], revealed, made.clock())
    texts: dict[str, list[str | None]] = {}
    for (name, _), value in zip(places, revealed.values[0], strict=True):
        texts.setdefault(name, []).append(value.text if value is not None else None)
    return texts


async def correct(made: Bench, **fields: str | list[str] | None) -> Record | None:
    made.clock.advance(1)
    return await correct_record(
        Records(made.people), RecordDraft(KEY, dict(fields)), "chief", no_changes
    )


async def test_tokens_stay_and_lead_to_the_new_values() -> None:
    made = await bench()
    before = await live(made)
    record = await correct(made, name="Anna", tags=["a", "c"], phone="4712")
    assert record is not None
    assert (record.version, record.by, record.fields["tags"]) == (2, "chief", ["a", "c"])
    after = await live(made)
    assert after.value_tokens() == before.value_tokens()
    assert after.following > before.following
    # what did not change keeps its number, and so what stands for it where it is redacted
    assert after.values["email"] == before.values["email"]
    assert after.values["tags"][0] == before.values["tags"][0]
    assert (await shown(made, before))["tags"] == ["a", "c"]
    assert (await shown(made, before))["phone"] == ["4712"]


async def test_a_value_that_is_taken_away_is_shown_as_none() -> None:
    made = await bench()
    before = await live(made)
    await correct(made, email=None, tags=[])
    for _ in range(2):  # after the next update, too
        texts = await shown(made, before)
        assert (texts["email"], texts["tags"], texts["name"]) == ([""], ["", ""], ["Ann"])
        # on a page without an id as well
        lone = AnswerObject(None, (("email", before.values["email"][0].token),))
        assert (await reveal_objects(made.people, [lone])).values == [[NO_VALUE]]
        (held,) = await stage_updates(made.people, [(KEY, draft(phone="4713"))])
        await promote(made.people, held, {})
    await correct(made, name="Anna")
    assert {one.text for of in (await live(made)).earlier.values() for one in of} == {""}


@table(
    "fields",
    [
        {"email": "b@example.com"},
        {"born": "1990-01-01"},
        {"born": None},
        {"tags": ["a"]},
        {"tags": "a"},
        {"phone": "no number"},
        {"phone": '"4711"'},
    ],
)
async def test_what_the_application_would_have_to_know_is_refused(
    fields: dict[str, str | list[str] | None],
) -> None:
    made = await bench()
    before = await live(made)
    with pytest.raises(VaultError) as refused:
        await correct(made, name="Anna", **fields)
    assert refused.value.code is Code.INVALID_RECORD
    assert [detail.source for detail in refused.value.details] == [f"/{name}" for name in fields]
    assert await live(made) == before


async def test_nobody_is_corrected_where_there_is_nobody() -> None:
    made = await bench()
    draft_ = RecordDraft("18", {"name": "Eve"})
    assert await correct_record(Records(made.people), draft_, "chief", no_changes) is None


@table("taken", [False, True])
async def test_an_update_in_doubt_keeps_its_own_fields_and_follows_in_others(taken: bool) -> None:
    made = await bench()
    (held,) = await stage_updates(made.people, [(KEY, draft(tags=["x", "y"]))])
    await doubt(made.people, [held], answered=True)
    with pytest.raises(VaultError) as refused:
        await correct(made, tags=["v", "w"])
    assert refused.value.code is Code.CONFLICT
    await correct(made, name="Anna")
    old = await live(made)
    content = held.content if taken else old
    assert content is not None
    texts = await shown(made, msgspec.structs.replace(content))
    assert (texts["name"], texts["tags"]) == (["Anna"], ["x", "y"] if taken else ["a", "b"])
    (row,) = (await made.people.by_key([KEY])).values()
    assert row.staged == 0
    assert [one.text for one in (await live(made)).values["name"]] == ["Anna"]
    await correct(made, tags=["v", "w"])


@pytest.mark.parametrize(("acted", "status"), [(False, 500), (False, 0), (True, 500), (True, 0)])
async def test_an_update_in_doubt_brings_no_erased_field_back_by_its_token(
    acted: bool, status: int
) -> None:
    """The application has the one token of that field all the while: the other field tells."""
    fields = ("name: {kind: name}", "pin: {kind: text, token: {shape: fixed, value: hidden}}")
    here = await desk(USUAL[0], *USUAL[2:], fields=fields)
    stored = await here.create({"name": "Ann", "pin": "1234"})
    erasure = RecordDraft("1", {"pin": None})
    await correct_record(Records(here.people), erasure, "chief", no_changes)
    call = await here.send("PATCH /p/1", {"name": "Eve", "pin": "4711"})
    stored |= call.json if acted else {}
    if status:
        await call.answer(status, {"error": "no"})
    else:
        await call.exchange.failed(True)
    expected = (
        {"id": 1, "name": "Eve", "pin": "4711"} if acted else {"id": 1, "name": "Ann", "pin": None}
    )
    for _ in range(3):
        assert await here.shown(stored) == expected
        here.clock.advance(400_000)
    found = (await Records(here.people).by_key(["1"])).values()
    (texts,) = [here.people.sealer.open(row).values for row in found]
    assert [one.text for one in texts.get("pin", ())] == (["4711"] if acted else [])


async def test_the_version_before_stays_in_the_history() -> None:
    made = await bench()
    given: list[Record] = []

    def closing(records: Sequence[Record]) -> Sequence[Change]:
        given.extend(records)
        return ()

    await correct_record(Records(made.people), RecordDraft(KEY, {"name": "Anna"}), "chief", closing)
    assert [record.fields["name"] for record in given] == ["Anna"]
    past, total = await made.store.past(
        made.people.table, made.people.key_hash(KEY), 10, 0, 1 << 20
    )
    assert (total, [one.version for one in past]) == (1, [1])


async def test_a_field_that_is_taken_away_goes_from_earlier_versions_that_are_kept() -> None:
    made = await make_bench(recipe=person()._replace(keeps=True))
    (held,) = await stage_creates(made.people, [draft(name="Ann", born="1987-04-12")], [None])
    await bind(made.people, [(held, KEY)])
    first = await live(made)
    (changed,) = await stage_updates(made.people, [(KEY, draft(name="Anna", born="1988-05-13"))])
    await promote(made.people, changed, {})
    await correct(made, name=None)
    left = (await live(made)).earlier
    assert {one.is_erased for one in left.pop("name")} == {True}
    assert set(left) == {"born"}
    assert await shown(made, first) == {"name": [""], "born": ["1987-04-12"]}
    await correct(made, born="1999-09-09")
    assert await shown(made, first) == {"name": [""], "born": ["1987-04-12"]}
    assert await shown(made, await live(made)) == {"born": ["1999-09-09"]}


GRAPH = "{match: POST /graphql, graphql: {person: {entity: p, id: id}}}"
#: What readers see of an answer with the tokens of an erased date and an erased number, by its kind.
ANSWERS = {
    "an object": ("GET /p/1", JSON, '{"id":1,"born":"%s","phone":"%s","n":"%s"}', '{"id":1,"born":null,"phone":null,"n":"Ann"}'),
    "a list": ("GET /p", JSON, '[{"id":1,"born":"%s","phone":"%s","n":"%s"}]', '[{"id":1,"born":null,"phone":null,"n":"Ann"}]'),
    "a page": ("GET /card/1", HTML, "<b id=born>%s</b><i id=phone>%s</i>%s", "<b id=born></b><i id=phone></i>Ann"),
    "an export": ("GET /export", CSV, "ID,Born,Phone,Name\r\n1,%s,%s,%s\r\n", "ID,Born,Phone,Name\r\n1,,,Ann\r\n"),
    "a guarded export": ("GET /export", CSV, "ID,Born,Phone,Name\r\n1,%s,'%s,%s\r\n", "ID,Born,Phone,Name\r\n1,,,Ann\r\n"),
    "events": ("GET /events", SSE, 'data: {"id":1,"born":"%s","phone":"%s","n":"%s"}\n\n', 'data: {"id":1,"born":null,"phone":null,"n":"Ann"}\n\n'),
    "lines": ("GET /lines", NDJSON, '{"id":1,"born":"%s","phone":"%s","n":"%s"}\n', '{"id":1,"born":null,"phone":null,"n":"Ann"}\n'),
    "a graph": ("POST /graphql", JSON, '{"data":{"person":{"id":1,"born":"%s","phone":"%s","n":"%s"}}}', '{"data":{"person":{"id":1,"born":null,"phone":null,"n":"Ann"}}}'),
    "a number": ("GET /p/1", JSON, '{"id":1,"born":"%s","phone":"%s","n":"%s"}', '{"id":1,"born":null,"phone":null,"n":"Ann"}'),
}  # fmt: skip
ERASABLE = (
    "name: {kind: name, at: $.n}",
    "born: {kind: date, token: {shape: date}}",
    "phone: {kind: number, token: {shape: numeric}}",
)
READS = (
    USUAL[0], USUAL[2], '{match: GET /p, read: p, response: {each: "$[*]", id: $.id}}',
    '{match: "PUT /p/{id}", update: p}',
    '{match: "GET /card/{id}", read: p, response: {restore: html, form: {born: born, phone: phone}}}',
    "{match: GET /export, read: p, response: {restore: csv, columns: {Name: name, Born: born, Phone: phone}, id: column ID}}",
    "{match: GET /events, read: p, response: {object: $, stream: sse, id: $.id}}",
    "{match: GET /lines, read: p, response: {object: $, stream: ndjson, id: $.id}}",
)  # fmt: skip


@table("kind", ANSWERS)
@table("record", [False, True])
async def test_no_answer_shows_the_token_of_an_erased_date_or_number(
    kind: str, record: bool
) -> None:
    """``record``: the whole of it is deleted, and so its name is none as well."""
    match, headers, sent, seen = ANSWERS[kind]
    graph = kind == "a graph"  # whose answers may lack the id, so a number needs a unique token
    phone = 4711 if kind == "a number" else "47114711" if graph else "4711"
    one = await desk(*READS, *[GRAPH] * graph, fields=ERASABLE)
    stored = await one.create({"n": "Ann", "born": "1931-02-27", "phone": phone})
    if record:
        await delete_one(Records(one.people), "1", "chief", no_changes)
        seen = seen.replace('"n":"Ann"', '"n":null').replace("Ann", "")
    else:
        erasure = RecordDraft("1", {"born": None, "phone": None})
        await correct_record(Records(one.people), erasure, "chief", no_changes)
    if kind == "a number":
        sent = sent.replace('"phone":"%s"', '"phone":%s')
    body = (sent % (stored["born"], stored["phone"], stored["n"])).encode()
    lines = len(one.audit.lines)
    asked = {"query": "{person(id: 1) {id born phone n}}"} if graph else None
    call = await one.send(match, asked)
    streams = kind in ("an export", "a guarded export", "events", "lines")
    stream = await call.exchange.stream(200, headers) if streams else None
    if stream is not None:
        assert (await stream.restore(body) + await stream.rest()).decode() == seen
        await stream.end()
    else:
        assert (await call.answer(200, body, headers)).body.decode() == seen
    # nothing was revealed of what is erased
    revealed = [line["fields"] for line in one.audit.lines[lines:]]
    assert revealed == ([] if record else [["name"]])
    if match == "GET /p/1":  # sent back, it empties the application's field
        back = await one.send("PUT /p/1", json.loads(seen))
        assert (back.json["born"], back.json["phone"]) == (None, None)
