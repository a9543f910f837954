"""A list that is restored page by page, or cut by a front, is restored as any answer is: the same
bytes, and the same said of it.

The general code is the oracle: it restores the same answer right after, or before, from the same
vault.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.redactor.exchange.bound_operation import BoundOperation
from proxy.redactor.exchange.front_exchange import FrontExchange
from proxy.redactor.exchange.list_answers import ListExchange
from proxy.redactor.exchange.rule_exchange import RuleExchange
from proxy.redactor.message import Request, Response
from proxy.redactor.rules import Match, Verb
from tests.support.effort import examples
from tests.support.exchanges import JSON, Desk, desk
from tests.support.fronts import Fronted, fronted
from tests.support.patience import until

FIELDS = (
    "name: {kind: name}",
    "email: {kind: email, token: {shape: email, same: true}, find: [exact]}",
    "phone: {kind: phone, token: {shape: numeric, keep_last: 2}}",
    "born: {kind: date, token: {shape: date}}",
    "pay: {kind: text, token: {shape: numeric}}",
)
NAMES = ("name", "email", "phone", "born", "pay")
OPERATIONS = (
    "{match: POST /p, create: p}",
    '{match: "PATCH /p/{id}", update: p}',
    '{match: GET /p, read: p, query: {email: {field: email}}, response: {each: "$[*]", id: $.id}}',
    '{match: GET /held, read: p, response: {each: "$.items[*]", id: $.id}}',
)
NAMELESS = (
    *OPERATIONS[:2],
    '{match: GET /p, read: p, response: {each: "$[*]"}}',
    '{match: GET /held, read: p, response: {each: "$.items[*]"}}',
)
PEOPLE = [
    {
        "name": name,
        "email": f"{name[:1].lower()}{number}@example.com",
        "phone": f"+4670{number:07d}",
        "born": f"19{50 + number}-0{1 + number % 9}-11",
        "pay": pay,
    }
    for number, (name, pay) in enumerate(
        [
            ("Ann", 100_020_003), ("Bo \"quoted\"", 44_555_666), ("Åsa 漢字", 9_876_543_210),
            ("Eve\\u001f", 31_415_926_535), ("Eve\x1f", 2_718_281_828), ("Ann", 1_234_567_891),
        ]
    )
]  # fmt: skip

#: What an application may make of an object before it shows it.
Change = Callable[[dict[str, Any], dict[str, Any]], Any]
CHANGES: dict[str, Change] = {
    "as it is": lambda one, other: one,
    "null": lambda one, other: {**one, "phone": None},
    "empty": lambda one, other: {**one, "email": "", "phone": ""},
    "clear": lambda one, other: {**one, "name": "Somebody Else"},
    "escaped": lambda one, other: {**one, "name": 'Some "body"\t\\ Else\ud83d\ude00'},
    "all clear": lambda one, other: {**PEOPLE[0], "id": 77},
    "of another": lambda one, other: {**one, "name": other["name"]},
    "id of another": lambda one, other: {**one, "id": other["id"]},
    "without": lambda one, other: {name: one[name] for name in one if name != "born"},
    "another order": lambda one, other: dict(reversed(one.items())),
    "number as text": lambda one, other: {**one, "pay": str(one["pay"])},
    "text as number": lambda one, other: {**one, "phone": 4670},
    "an array": lambda one, other: {**one, "name": [one["name"]]},
    "another name": lambda one, other: {**one, "Name": one["name"]},
    "more": lambda one, other: {**one, "more": {"deep": [1, {"a": "b"}]}, "ö": one["name"]},
    "no object": lambda one, other: one["name"],
    "array of them": lambda one, other: [one, other],
    "id as text": lambda one, other: {**one, "id": str(one["id"])},
    "no id": lambda one, other: {**one, "id": None},
    "part of an id": lambda one, other: {**one, "id": one["id"] + 0.5},
}  # fmt: skip
#: Drawn more often: those after which it is an object as the others are.
ALIKE = ["as it is", "null", "empty", "clear", "of another", "id of another"]
ENDS = [*[b""] * 6, b"", b" ", b"\n", b"x", b",", b"]", b'{"id":1}']
SPACES = {"compact": (",", ":"), "usual": (", ", ": "), "odd": (" , ", "  :\n")}


class Office:
    """A desk with records that the application has; ``role``: of the caller, who sees all."""

    def __init__(self, at: Desk, stored: list[dict[str, Any]], role: str = "") -> None:
        self.at, self.stored = at, stored
        self.view = at.view(role) if role else None
        #: lists compared, and those of them restored by pages, and cut by a front
        self.turn = self.paged = self.cut = 0
        self.front: Fronted | None = None

    async def by_pages(self, target: bytes, body: bytes) -> Response | None:
        """What comes of a list where it is restored by pages."""
        match = self.match(target)
        exchange = ListExchange(self.joined(match), match, self.at.vault)
        return await exchange._by_pages(Response(200, JSON, body))

    def joined(self, match: Match) -> BoundOperation:
        joined = self.at.runtime.joined[id(match.operation)].under(self.view)
        assert (joined.lists is None) is (match.operation.verb is not Verb.READ)
        return joined

    def match(self, target: bytes) -> Match:
        _, matched = self.at.runtime.match("GET", "app", target, ())
        assert isinstance(matched, Match)
        return matched

    def fronted(self, target: bytes) -> FrontExchange:
        """The exchange of a front, which counts whether it cuts the answer."""
        assert self.front is not None
        rules = self.front.rules
        _, match = rules.match("GET", "app", target, ())
        assert isinstance(match, Match)
        lists = rules.runtime.cut_lists(rules.runtime.numbers[id(match.operation)], self.view)
        assert lists is not None
        lists._pause = 0
        exchange = rules.exchange(match, self.view)
        by_rows = exchange._by_rows

        async def counted(answer: Response) -> Response | None:
            restored = await by_rows(answer)
            self.cut += restored is not None
            return restored

        exchange._by_rows = counted  # type: ignore[method-assign]  # spied on
        return exchange

    async def answers(self, kind: type[RuleExchange] | None, target: bytes, body: bytes) -> Any:
        """What the caller gets by one way (``None``: of a front), and all that is said of it."""
        match = self.match(target)
        joined = self.joined(match)
        exchange: Any
        exchange = self.fronted(target) if kind is None else kind(joined, match, self.at.vault)
        await exchange.redact_request(Request("GET", target, (), b""))
        before, told = dict(joined.restored), len(self.at.audit.raw)
        counted = {name: cell.value for name, cell in before.items()}
        observed = dict(self.at.events)
        answer = await exchange.restore_response(Response(200, JSON, body))
        more = {name: cell.value - counted[name] for name, cell in before.items()}
        seen = {name: one - observed.get(name, 0) for name, one in self.at.events.items()}
        lines = self.at.audit.raw[told:]
        return answer.body, more, lines, {k: v for k, v in seen.items() if v}, exchange.missed


async def office(stack: AsyncExitStack, *, named: bool) -> Office:
    """One with a front beside it, until the stack ends."""
    # small tokens are restored beside an id alone
    fields = FIELDS if named else tuple(one for one in FIELDS if "date" not in one)
    views = "views: [{who: [all], p: clear}]" if named else ""
    at = await desk(*(OPERATIONS if named else NAMELESS), fields=fields, more=views)
    stored = []
    for number, person in enumerate(PEOPLE, 1):
        call = await at.send("POST /p", {**person, "vip": True, "note": "met\nat the fair"})
        await call.answer(201, {"id": number})
        stored.append({**call.json, "id": number})
    office = Office(at, stored, "all" if named else "")
    office.front = await stack.enter_async_context(fronted(at, clock=at.clock))
    for ascii_only in (True, False):
        for spaces in SPACES.values():
            body = json.dumps(stored, separators=spaces, ensure_ascii=ascii_only).encode()
            for _ in range(5):  # what is learnt is learnt now
                held = b'{"total": 6, "items": %b, "next": null}' % body
                for kind in (ListExchange, None):
                    await office.answers(kind, b"/p", body)
                    await office.answers(kind, b"/held", held)
    return office


@pytest.fixture(scope="module")
def run() -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    loop = asyncio.new_event_loop()
    yield loop.run_until_complete
    loop.close()


@pytest.fixture(scope="module", params=[True, False], ids=["with ids", "without"])
def people(request: pytest.FixtureRequest, run: Any) -> Iterator[Office]:
    stack = AsyncExitStack()
    yield run(office(stack, named=request.param))
    run(stack.aclose())


@pytest.mark.parametrize("target", [b"/p", b"/held"])
@pytest.mark.parametrize("spaces", SPACES)
def test_an_ordinary_list_is_restored_by_pages(people, run, target, spaces):
    shown = [*people.stored, {**people.stored[1], "phone": None}]
    body = json.dumps(shown, separators=SPACES[spaces]).encode()
    answer = run(people.by_pages(target, b'{"items":%b}' % body if target == b"/held" else body))
    assert answer is not None
    restored = json.loads(answer.body)
    restored = restored["items"] if target == b"/held" else restored
    wanted = [*PEOPLE, {**PEOPLE[1], "phone": None}]
    assert [{name: one[name] for name in NAMES} for one in restored] == wanted


def test_a_list_is_restored_as_any_answer_is_and_enough_of_them_by_pages(people, run):
    @examples(400)
    @given(
        st.lists(
            st.tuples(st.integers(0, 5), st.sampled_from([*ALIKE * 12, *CHANGES])), max_size=9
        ),
        st.tuples(st.sampled_from(sorted(SPACES)), st.booleans(), st.sampled_from(ENDS)),
        st.sampled_from([b"/p", b"/held", b"/p?email=a0%40example.com"]),
    )
    def law(chosen, spelled, target):
        objects = [
            CHANGES[change](people.stored[at], people.stored[(at + 1) % 6]) for at, change in chosen
        ]
        spaces, ascii_only, end = spelled
        text = json.dumps(objects, separators=SPACES[spaces], ensure_ascii=ascii_only)
        body = text.encode("utf-8", "surrogatepass")
        if target == b"/held":
            body = b'{"total": 6, "items": %b, "next": null}' % body
        run(compared(people, target, body + end))

    law()
    assert people.paged * 5 > people.turn > 0, f"{people.paged} of {people.turn}"
    assert people.cut * 10 > people.turn, f"{people.cut} of {people.turn}"


async def compared(people: Office, target: bytes, body: bytes) -> None:
    people.turn += 1
    kinds = (
        (None, ListExchange, RuleExchange)
        if people.turn % 2
        else (RuleExchange, ListExchange, None)
    )
    assert people.front is not None
    answers: list[Any] = []
    link, line = people.front.rules.link, None
    # where this process stood still, the owner has counted as gone
    while line is None or line is not link.current():
        await until(lambda: link.current() is not None)
        line = link.current()
        answers = [await people.answers(kind, target, body) for kind in kinds]
    assert answers[0] == answers[1] == answers[2]
    people.paged += await people.by_pages(target.partition(b"?")[0], body) is not None


@examples(30)
@given(st.data(), st.integers(0, 5), st.sampled_from([200, 500]))
def test_a_list_that_shows_a_change_in_doubt_is_restored_as_any_answer_is(data, at, status):
    async def tried() -> None:
        for named, stack in ((True, AsyncExitStack()), (False, AsyncExitStack())):
            async with stack:
                people = await office(stack, named=named)
                call = await people.at.send(
                    f"PATCH /p/{at + 1}", {"name": "Newer", "pay": 5_551_234}
                )
                if status == 500:
                    await call.answer(500)
                people.at.clock.advance(1)
                took = {**people.stored[at], **call.json}
                taken = data.draw(st.booleans())
                objects = [*people.stored[:at], took if taken else people.stored[at]]
                objects += people.stored[at + 1 :]
                body = json.dumps(objects, separators=(",", ":")).encode()
                first = await people.answers(ListExchange, b"/p", body)
                shown = json.loads(first[0])[at]
                expected = taken or status == 200
                assert shown["name"] == ("Newer" if taken else PEOPLE[at]["name"]), expected
                for kind in (RuleExchange, None):
                    again = await people.answers(kind, b"/p", body)
                    assert again[0] == first[0]

    asyncio.run(tried())
