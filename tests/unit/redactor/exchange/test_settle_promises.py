"""Changes of several records without a word of the single one: what follows them, and when.

An update keeps the versions before it, and a delete is carried out later, unless something tells
that the application has the record.
"""

from html import unescape
from itertools import product
from random import Random

from tests.support.exchanges import HTML, USUAL, Desk, desk
from tests.support.table import table

WEEK = 7 * 86_400_000
FIELDS = ("name: {kind: name}", "email: {kind: email, token: {shape: email, same: true}}")
REMOVE = '{match: POST /remove, delete: p, id: "$.ids[*]"}'
CHANGE = '{match: POST /change, update: p, id: "$.ids[*]"}'
PAGE = "{match: GET /all, read: p, response: {restore: anywhere}}"
ALL = [1, 2, 3]


async def office(email: str = "a{}@x.se") -> tuple[Desk, dict[int, dict[str, object]]]:
    one = await desk(*USUAL, CHANGE, REMOVE, PAGE, fields=FIELDS)
    people = {n: {"name": f"Ann {'abc'[n % 3]}ide", "email": email.format(n)} for n in ALL}
    return one, {n: await one.create(person, n) for n, person in people.items()}


async def change(one: Desk, data: dict[str, str], ids: list[int] = ALL) -> dict[str, object]:
    """A change of several, answered as one carried out in part; the tokens that were sent."""
    call = await one.send("POST /change", {"ids": ids, **data})
    await call.answer(200, {"done": len(ids) - 1})
    return {name: call.json[name] for name in data}


async def remove(one: Desk, ids: list[int] = ALL) -> None:
    await (await one.send("POST /remove", {"ids": ids})).answer(200, {"done": len(ids) - 1})
    one.clock.advance(1000)


async def count_after(one: Desk, weeks: int) -> tuple[int, int, int]:
    for _ in range(weeks):
        one.clock.advance(WEEK + 86_400_000)
        await one.vault.maintain()
    return await one.counts()


@table(
    "changes",
    [
        [{"name": "Bo"}] * 2,
        [{"name": "Bo"}, {"name": "Cy"}, {"name": "Di"}],
        [{"name": "Bo"}, {"email": "q@x.se"}, {"name": "Cy", "email": "z@x.se"}],
    ],
)
@table("late", [False, True])
async def test_further_changes_of_several_lose_no_version_that_an_earlier_one_kept(changes, late):
    one, stored = await office()
    sent = []
    for data in changes:
        sent.append(await change(one, data))
        one.clock.advance(2 * WEEK if late else 1000)
        await one.vault.maintain()
    clear = {"name": "Ann aide", "email": "a3@x.se"}
    for carried_out in product([False, True], repeat=len(changes)):  # all that may have happened
        held, truth = dict(stored[3]), dict(clear)
        for done, tokens, data in zip(carried_out, sent, changes, strict=True):
            if done:
                held, truth = {**held, **tokens}, {**truth, **data}
        page = f"<p>{held['name']} {held['email']}</p>".encode()
        shown = await (await one.send("GET /all")).answer(200, page, HTML)
        assert truth["name"].encode() in shown.body.replace(b"&#32;", b" ")
    assert await one.shown(stored[3], "GET /p/3") == {**clear, "id": 3}


@table("seed", range(30))
async def test_whatever_part_of_each_change_is_carried_out_every_record_is_shown_as_it_is(seed):
    random = Random(seed)
    one, stored = await office()
    truth = {n: {"name": f"Ann {'abc'[n % 3]}ide", "email": f"a{n}@x.se"} for n in ALL}
    for turn in range(random.randint(2, 5)):
        data = {"name": f"Bo {turn} Berg", "email": f"b{turn}@x.se"}
        data = {name: data[name] for name in random.choice([["name"], ["email"], list(data)])}
        ids = random.sample(ALL, random.randint(2, 3))
        sent = await change(one, data, ids)
        for number in ids:
            if random.random() < 0.5:
                stored[number].update(sent)
                truth[number].update(data)
        one.clock.advance(random.choice([0, 1000, 2 * WEEK]))
        await one.vault.maintain()
    one.clock.advance(1000)
    for _ in range(2):
        for number in ALL:
            shown = await one.shown(stored[number], f"GET /p/{number}")
            assert shown == {**truth[number], "id": number}
        one.clock.advance(600_000)


async def test_a_change_of_one_record_ends_the_versions_before_of_its_fields():
    one, stored = await office()
    for name in ("Bo", "Cy"):
        await change(one, {"name": name})
        one.clock.advance(1000)
    assert await one.counts() == (3, 0, 6)
    await (await one.send("PATCH /p/3", {"name": "Di"})).answer(204)
    assert await one.counts() == (3, 0, 4)
    one.clock.advance(1000)
    assert (await one.shown(stored[3], "GET /p/3"))["name"] == stored[3]["name"]


@table("skew", [-500, 0, 1])
async def test_an_accepted_change_keeps_its_record_from_an_earlier_delete_whatever_clocks_say(skew):
    one, stored = await office()
    await (await one.send("POST /remove", {"ids": ALL})).answer(200, {"done": 2})
    one.clock.advance(skew)
    call = await one.send("PATCH /p/3", {"name": "Di"})
    await call.answer(204)
    assert await count_after(one, 3) == (1, 0, 0)
    shown = await one.shown({**stored[3], "name": call.json["name"]}, "GET /p/3")
    assert shown == {"name": "Di", "email": "a3@x.se", "id": 3}


@table("apart", [0, 1000, WEEK // 2])
async def test_a_delete_of_several_that_is_sent_again_counts_once(apart):
    one, _ = await office()
    for _ in range(2):
        await remove(one)
        one.clock.advance(apart)
    assert await one.counts() == (3, 0, 6)
    assert await count_after(one, 2) == (0, 0, 0)


async def test_a_page_takes_all_deletes_of_a_record_back():
    one, stored = await office()
    for _ in range(2):
        await remove(one)
    page = f"<p>{stored[2]['name']}</p>".encode()
    await (await one.send("GET /all")).answer(200, page, HTML)
    assert await count_after(one, 2) == (1, 0, 0)
    assert (await one.shown(stored[2], "GET /p/2"))["name"] == "Ann cide"


async def test_a_delete_of_several_ends_versions_that_a_change_before_it_kept():
    one, _ = await office()
    await change(one, {"name": "Bo"})
    await remove(one)
    assert await count_after(one, 1) == (0, 0, 0)


async def test_a_change_of_several_after_such_a_delete_keeps_the_records():
    one, stored = await office()
    await remove(one)
    await change(one, {"name": "Bo"})
    assert await count_after(one, 2) == (3, 0, 3)
    assert (await one.shown(stored[3], "GET /p/3"))["name"] == "Ann aide"


@table("gone", [[1, 2], [1, 2, 3]])
async def test_a_token_of_a_record_that_stays_tells_nothing_of_others_that_have_it(gone):
    one, stored = await office("same@x.se")
    await remove(one, gone)
    page = f"<p>{stored[3]['email']}</p>".encode()
    shown = await (await one.send("GET /all")).answer(200, page, HTML)
    assert b"same" in shown.body
    # where each of them may be the one that is shown, all stay
    assert await count_after(one, 2) == ((1, 0, 0) if gone == [1, 2] else (3, 0, 0))
    assert (await one.shown(stored[3], "GET /p/3"))["name"] == "Ann aide"


@table("gone", [[1, 2], [1, 2, 3]])
async def test_nor_where_a_change_of_the_one_that_stays_is_in_doubt(gone):
    one, stored = await office()
    sent = await change(one, {"name": "Bo"})
    await remove(one, gone)
    people = f"<p>{sent['name']} {stored[3]['email']}</p>".encode()
    page = await (await one.send("GET /all")).answer(200, people, HTML)
    assert unescape(page.body.decode()) == "<p>Bo a3@x.se</p>"
    assert (await count_after(one, 2))[0] == 1
    assert (await one.shown(stored[3] | sent, "GET /p/3"))["name"] == "Bo"


SUMMARY = '{match: GET /summary, read: p, response: {each: "$[*]", id: $.id}}'


@table(
    ("match", "answer"),
    [
        ("GET /p/1", {"id": 1, "city": "Visby"}),
        ("GET /p/1", {"city": "Visby"}),
        ("GET /p/1", {"id": 1, "name": None, "email": ""}),
        ("GET /summary", [{"id": 1, "city": "Visby"}]),
    ],
)
async def test_an_answer_that_names_a_record_and_shows_no_value_of_it_keeps_it(match, answer):
    one = await desk(*USUAL, REMOVE, SUMMARY, fields=FIELDS)
    stored = await one.create({"name": "Ann Aide"}, 1)
    await remove(one, [1, 2])
    await (await one.send(match)).answer(200, answer)
    assert await count_after(one, 2) == (1, 0, 0)
    assert (await one.shown(stored, "GET /p/1"))["name"] == "Ann Aide"


@table(
    ("rule", "match", "body"),
    [
        ("match: GET /some, read: p, id: query id", "GET /some?id=1&id=2", b""),
        ('match: POST /some, read: p, id: "$.ids[*]"', "POST /some", {"ids": [1, 2]}),
    ],
)
async def test_that_some_of_several_do_not_exist_tells_of_none_that_it_is_gone(rule, match, body):
    some = f'{{{rule}, response: {{each: "$[*]", id: $.id}}}}'
    one = await desk(*USUAL, REMOVE, some, fields=FIELDS)
    stored = [await one.create({"name": name}, n) for n, name in ((1, "Ann Aide"), (2, "Bo Berg"))]
    await remove(one, [1, 2])
    await (await one.send(match, body)).answer(404, {"error": "there is no 2"})
    shown = await one.shown(stored, "GET /p")
    assert [person["name"] for person in shown] == ["Ann Aide", "Bo Berg"]


@table("first", [True, False])
async def test_a_failed_change_keeps_no_record_that_a_delete_of_several_removed(first):
    one, _ = await office()
    if first:
        await (await one.send("PATCH /p/1", {"name": "Bo"})).answer(500)
    await remove(one)
    await (await one.send("DELETE /p/2")).answer(500)
    assert await count_after(one, 2) == (0, 0, 0)


@table("answered", [True, False])
async def test_a_change_that_may_have_come_after_a_delete_of_several_keeps_its_record(answered):
    one, _ = await office()
    call = await one.send("PATCH /p/1", {"name": "Bo"})
    if answered:
        await remove(one, [2, 3])
        await call.answer(500)
        await (await one.send("PATCH /p/2", {"name": "Bo"})).answer(500)
    else:
        await call.exchange.failed(True)
        await remove(one)
    assert (await count_after(one, 2))[0] == (2 if answered else 1)


@table("status", [200, 500])
async def test_a_token_of_several_records_is_never_given_to_another_value(status):
    one, stored = await office()
    call = await one.send("POST /change", {"ids": [1, 2], "name": "Bo"})
    await call.answer(status, {"done": 1})  # 2
    stored[2]["name"] = token = call.json["name"]
    for _ in range(2):
        one.clock.advance(600_000)
        people = await one.shown([stored[1], stored[2]], "GET /p")
        assert [person["name"] for person in people] == ["Ann bide", "Bo"]
    one.clock.advance(2 * WEEK)
    await one.vault.maintain()
    call = await one.send("PATCH /p/1", {"name": "Cy"})
    await call.answer(204)
    assert call.json["name"] != token
    shown = await (await one.send("GET /all")).answer(200, f"<p>{token}</p>".encode(), HTML)
    assert shown.body == b"<p>Bo</p>"
    await (await one.send("DELETE /p/1")).answer(204)
    shown = await (await one.send("GET /all")).answer(200, f"<p>{token}</p>".encode(), HTML)
    assert shown.body == b"<p>Bo</p>"


async def test_a_delete_whose_answer_tells_which_record_without_an_id_it_was_ends_that():
    one = await desk(*USUAL, fields=FIELDS)
    stored = []
    for number in (1, 2):
        call = await one.send("POST /p", {"name": "Ann", "email": f"a{number}@x.se"})
        await call.answer(201)
        stored.append(call.json)
    one.clock.advance(1)
    gone = await one.send("DELETE /p/9")
    assert (await gone.seen(200, {"id": 9, **stored[0]}))["name"] == "Ann"
    assert await one.counts() == (1, 0, 0)
    assert await one.shown({"id": 9, **stored[0]}, "GET /p/9") == {"id": 9, **stored[0]}
    assert (await one.shown({"id": 5, **stored[1]}, "GET /p/5"))["name"] == "Ann"
    assert one.idle
