"""What holds for every request and its answer: what is named is swapped, all else is the same byte
for byte, both ways.
"""

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from proxy.errors import Code, VaultError
from proxy.model.schema import Path, PathStep
from proxy.redactor import form
from proxy.redactor.exchange.bound_operation import BoundOperation
from proxy.redactor.exchange.rule_exchange import RuleExchange
from proxy.redactor.message import RawHeaders, Request, Response
from proxy.redactor.plan import make_plan
from proxy.redactor.request_rules import Parameter, SearchRule
from proxy.redactor.restore import splice
from proxy.redactor.rules import (
    BodyPlace,
    IdPlace,
    IdSource,
    Match,
    Operation,
    RequestRule,
    ResponseRule,
    Verb,
)
from proxy.redactor.select import Selection
from tests.support.audit import audit_services
from tests.support.documents import documents, spelled
from tests.support.effort import examples
from tests.support.exchanges import FORM, JSON, Desk, desk
from tests.support.tree import ROOT

NAMES = ("f0", "f1", "f2", "f3")
TOKEN = rb"[0-9A-Za-z]{22}"
OWN = json.loads((ROOT / "tests/vectors/json_texts.json").read_text("utf-8"))
LOCATION: RawHeaders = ((b"Location", b"/p/1"),)
EMPTY = (b"null", b'""')
STRING = rb'"(?:[^"\\]|\\.)*+"'

#: Refusals that the gateway answers with a status of 4xx.
REFUSALS = {
    Code.UNREADABLE_BODY, Code.MALFORMED_JSON, Code.AMBIGUOUS_JSON, Code.TOO_LARGE,
    Code.BAD_REQUEST, Code.VALUE_UNFIT,
}  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """What a generated rule selects."""

    objects: Path | None
    leaves: tuple[Path, ...] = ()
    anchored: tuple[Path, ...] = ()

    def place(self) -> BodyPlace:
        fields = dict(zip(NAMES, self.leaves, strict=False))
        anchored = dict(zip(NAMES[len(fields) :], self.anchored, strict=False))
        return BodyPlace(self.objects, False, fields, anchored, {})

    def spans(self, body: bytes) -> list[tuple[int, int]]:
        found = Selection(self.objects, self.leaves, self.anchored).find(body)
        leaves = [leaf for one in found.objects for leaf in one.leaves] + found.anchored
        return sorted((leaf.start, leaf.end) for leaf in leaves)


#: A create and a read of the same records.
Pair = tuple[BoundOperation, BoundOperation]


@dataclass(repr=False)
class Bench:
    """One vault for all examples, and a loop to wait in."""

    runner: asyncio.Runner
    desk: Desk
    base: Operation

    def operation(self, verb: Verb, place: BodyPlace, **query: str) -> Operation:
        location = IdPlace(IdSource.HEADER, "location", template="/p/{id}")
        parameters = {name: Parameter(name, field) for name, field in query.items()}
        searching = SearchRule(parameters, {}, (), {}) if query else None
        return replace(
            self.base,
            verb=verb,
            request=RequestRule(None if verb is Verb.READ else place, searching),
            response=ResponseRule(place, location, frozenset({200, 201})),
        )

    def bound(self, operation: Operation) -> BoundOperation:
        plan = make_plan(operation)
        return BoundOperation(plan, self.desk.people, self.desk.metrics, audit_services())

    def exchange(self, operation: Operation) -> RuleExchange:
        return self.exchange_of(self.bound(operation))

    def exchange_of(self, bound: BoundOperation) -> RuleExchange:
        return RuleExchange(bound, Match(bound.plan.operation, {}), self.desk.vault)

    def pair(self, place: BodyPlace) -> Pair:
        """What creates records whose values stand there, and what reads them."""
        return (
            self.bound(self.operation(Verb.CREATE, place)),
            self.bound(self.operation(Verb.READ, place)),
        )

    def send(
        self, exchange: RuleExchange, body: bytes, headers: RawHeaders = JSON, target: bytes = b"/p"
    ) -> Request:
        return self.runner.run(exchange.redact_request(Request("POST", target, headers, body)))

    def answer(self, exchange: RuleExchange, body: bytes, headers: RawHeaders = JSON) -> bytes:
        return self.runner.run(
            exchange.restore_response(Response(200, headers + LOCATION, body))
        ).body

    def there_and_back(
        self, pair: Pair, body: bytes, headers: RawHeaders = JSON
    ) -> tuple[bytes, list[bytes]]:
        """What the application gets, and what callers get when it echoes that: the writer at once,
        a reader later.
        """
        create, read = map(self.exchange_of, pair)
        sent = self.send(create, body, headers).body
        written = self.answer(create, sent, headers)
        self.send(read, b"")
        return sent, [written, self.answer(read, sent, headers)]


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with asyncio.Runner() as runner:
        fields = (
            *(f"{name}: {{kind: text}}" for name in NAMES),
            "same: {kind: text, token: {shape: opaque, same: true}}",
        )
        one = runner.run(desk("{match: POST /p, create: p}", fields=fields))
        yield Bench(runner, one, one.runtime.rules.operations[0])


def between(body: bytes, spans: Sequence[tuple[int, int]]) -> list[bytes]:
    """The stretches around the spans: one more than there are spans."""
    borders = [0, *(border for span in spans for border in span), len(body)]
    return [body[start:end] for start, end in zip(borders[::2], borders[1::2], strict=True)]


def apart(body: bytes, pieces: Sequence[bytes], inner: Sequence[bytes]) -> list[bytes]:
    """What stands between the pieces, each as its expression has it; fails when all else is not
    there byte for byte.
    """
    found, at = [], 0
    for piece, expression in zip(pieces, [*inner, b""], strict=True):
        assert body.startswith(piece, at)
        match = re.compile(expression, re.DOTALL).match(body, at + len(piece))
        assert match is not None
        found.append(match[0])
        at = match.end()
    assert at == len(body)
    return found[:-1]


def strings(node: Any) -> Iterator[str]:
    """Every text of a document, names included."""
    if isinstance(node, str):
        yield node
    for child in (
        [*node, *node.values()]
        if isinstance(node, dict)
        else node
        if isinstance(node, list)
        else ()
    ):
        yield from strings(child)


def lawful(bench: Bench, choice: Choice, body: bytes) -> bool:
    """Whether the document was taken; then the laws hold. A refusal stages nothing."""
    staged = bench.desk.events["staged"]
    try:
        hold(bench, choice, body)
    except VaultError as error:
        fault = error
    else:
        return True
    assert fault.code in REFUSALS
    assert bench.desk.events["staged"] == staged
    assert bench.desk.idle
    return False


def hold(bench: Bench, choice: Choice, body: bytes) -> None:
    """The laws for one document and one rule."""
    spans = choice.spans(body)
    raw = [body[start:end] for start, end in spans]
    pieces = between(body, spans)
    sent, answers = bench.there_and_back(bench.pair(choice.place()), body)
    apart(sent, pieces, [was if was in EMPTY else b'"' + TOKEN + b'"' for was in raw])
    for answer in answers:
        for was, back in zip(
            raw,
            apart(answer, pieces, [STRING if was[:1] == b'"' else re.escape(was) for was in raw]),
            strict=True,
        ):
            assert json.loads(back) == json.loads(was)
    assert bench.desk.idle


# ---------------------------------------------------------------------- documents


def places(node: Any, place: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every node of a document and the way to it."""
    yield place, node
    for step, child in (
        node.items()
        if isinstance(node, dict)
        else enumerate(node)
        if isinstance(node, list)
        else ()
    ):
        yield from places(child, (*place, step))


@st.composite
def wider(draw: st.DrawFn, path: Path) -> Path:
    """A path that selects what this one does, and perhaps more."""
    made: list[Any] = []
    for step in path:
        chance = draw(st.integers(0, 9))
        wild = PathStep.EACH if isinstance(step, int) else PathStep.MEMBERS
        made.append(wild if chance == 0 or (chance < 6 and isinstance(step, int)) else step)
    if made and draw(st.integers(0, 9)) == 0:
        made.insert(0, PathStep.DEEP)
    return tuple(made)


@st.composite
def selections(draw: st.DrawFn, body: bytes) -> Choice:
    """A rule that has something to do with the document."""
    nodes = list(places(json.loads(body)))
    inner = [place for place, _ in nodes if place] or [("a",)]
    holders = [place for place, node in nodes if isinstance(node, dict | list)]
    start = draw(st.sampled_from([None, (), *holders]))
    leaves: list[Path] = []
    for place in [] if start is None else draw(st.lists(st.sampled_from(inner), max_size=2)):
        rest = place[len(start or ()) :]
        while rest and isinstance(rest[0], int):
            rest = rest[1:]
        leaves.append(draw(wider(rest or ("a",))))
    anchored = draw(
        st.lists(st.sampled_from(inner).flatmap(wider), min_size=start is None, max_size=2)
    )
    return Choice(None if start is None else draw(wider(start)), tuple(leaves), tuple(anchored))


@st.composite
def ruled(draw: st.DrawFn) -> tuple[Choice, bytes]:
    one, two, three = (draw(documents(distinct=True, depth=3)) for _ in range(3))
    body = draw(
        st.sampled_from(
            [one, f'{{"a":{one},"id":[{two},{three}]}}', f'[{one},{{"k" :{two}, "b":{three}}}]']
        )
    ).encode()
    return draw(selections(body)), body


ODD = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    [
        "\0", "\u2028\u2029", "\ufeff", "\U0001f468\u200d\U0001f469", "e\u0301", "\\u0041",
        '","a":"', "\x7f\x80",
    ]
)  # fmt: skip


@st.composite
def marked(draw: st.DrawFn) -> tuple[Choice, bytes, list[str]]:
    """A rule, a document, and texts that stand in it only where the rule says so."""
    choice, body = draw(ruled())
    edits, markers = [], []
    for number, (start, end) in enumerate(choice.spans(body)):
        if draw(st.integers(0, 3)):
            markers.append(f"«{number}{draw(ODD)}»{number}")
            edits.append((start, end, draw(spelled(markers[-1], True)).encode()))
    return choice, splice(body, edits), markers


@examples(120)
@given(ruled())
def test_nothing_changes_but_what_is_named(bench, example):
    event(f"taken: {lawful(bench, *example)}")


@examples(100)
@given(marked())
def test_nothing_that_is_named_reaches_the_application(bench, example):
    choice, body, markers = example
    taken = lawful(bench, choice, body)
    event(f"taken: {taken}, values: {len(markers)}")
    if not taken:
        return
    create = bench.exchange(bench.operation(Verb.CREATE, choice.place()))
    sent = bench.send(create, body).body
    bench.runner.run(create.failed(False))
    texts = [*strings(json.loads(sent)), sent.decode()]
    assert not [marker for marker in markers if any(marker in text for text in texts)]


# ---------------------------------------------------------------------- forms and queries


@st.composite
def raw_value(draw: st.DrawFn, text: str) -> bytes:
    """A text as a form member, each character escaped or not."""
    out = b""
    for char in text:
        plain = form.write_form_value(char)
        every = b"".join(b"%%%02X" % byte for byte in char.encode())
        out += draw(st.sampled_from([plain, every, every.lower() if char != "%" else plain]))
    return out


@st.composite
def members(draw: st.DrawFn) -> list[tuple[bytes, str, str, bytes]]:
    """(raw name, field or nothing, value, raw value) of each member."""
    named = {
        b"a": "f0",
        b"%61": "f0",
        b"b": "",
        b"b1": "f1",
        b"b%5B%5D": "f1",
        b"c": "",
        b"%C3%A9": "f2",
        b"x+y": "f3",
        b"": "",
    }
    made = []
    for number, name in enumerate(draw(st.lists(st.sampled_from(list(named)), max_size=6))):
        empty = draw(st.integers(0, 5)) == 0
        value = "" if empty else f"«{number}{draw(ODD)}»{number}"
        made.append((name, named[name], value, draw(raw_value(value))))
    return made


def joined(found: list[tuple[bytes, str, str, bytes]]) -> bytes:
    return b"&".join(name + b"=" + raw for name, _, _, raw in found)


FORM_NAMES = {"a": "f0", "b1": "f1", "b*[]": "f1", "b[]": "f1", "é": "f2", "x y": "f3"}


@examples(60)
@given(members())
def test_forms_are_swapped_member_by_member(bench, found):
    body = joined(found)
    pair = bench.pair(BodyPlace(None, False, {}, {}, FORM_NAMES))
    sent, answers = bench.there_and_back(pair, body, FORM)
    for (name, field, value, raw), segment in zip(
        found, sent.split(b"&") if found else [], strict=True
    ):
        before, _, after = segment.partition(b"=")
        assert before == name
        if field and value:
            assert re.fullmatch(TOKEN, after)
        else:
            assert after == raw
    decoded = sent.decode() + "".join(
        f"{name}={value}&" for name, value in parse_qsl(sent.decode(), keep_blank_values=True)
    )
    assert not [value for _, field, value, _ in found if field and value and value in decoded]
    for answer in answers:
        for (name, field, value, raw), segment in zip(
            found, answer.split(b"&") if found else [], strict=True
        ):
            before, _, after = segment.partition(b"=")
            assert before == name
            assert form.read_form_value(after) == value if field else after == raw
    assert bench.desk.idle


@examples(40)
@given(members())
def test_parameters_of_an_address_are_swapped_for_same_value_tokens(bench, found):
    read = bench.exchange(
        bench.operation(
            Verb.READ, BodyPlace((), False, {}, {}, {}), **dict.fromkeys(FORM_NAMES, "same")
        )
    )
    path, mark, query = bench.send(read, b"", target=b"/p?" + joined(found)).target.partition(b"?")
    assert (path, mark) == (b"/p", b"?")
    tokens: dict[str, bytes] = {}
    for (name, field, value, raw), segment in zip(
        found, query.split(b"&") if found else [], strict=True
    ):
        before, _, after = segment.partition(b"=")
        assert before == name
        if field and value:
            assert re.fullmatch(TOKEN, after)
            assert tokens.setdefault(value, after) == after
        else:
            assert after == raw
    assert (
        len(set(tokens.values())) == len({value.casefold() for value in tokens}) or len(tokens) < 2
    )
    bench.runner.run(read.settled(204, ()))


# ---------------------------------------------------------------------- texts of our own

# Those of others go through the whole proxy: ``tests/e2e/test_corpora.py``.
CHOICES = [
    Choice((), (("a",), ("",)), ((0,),)),
    Choice(None, (), ((PathStep.EACH,),)),
    Choice((), ((PathStep.MEMBERS,),)),
    Choice((PathStep.DEEP, PathStep.EACH), ((PathStep.DEEP, "a"),)),
]


def text_holds(bench: Bench, body: bytes) -> bool:
    """Whether any rule let the text pass; the laws hold with all of them."""
    taken = [lawful(bench, choice, body) for choice in CHOICES]
    return any(taken)


def test_our_own_json_texts(bench):
    for text in OWN["accepted"]:
        text_holds(bench, text.encode("latin-1"))
    for text in OWN["refused"]:
        assert not text_holds(bench, text.encode("latin-1"))


def test_our_own_strings(bench: Bench) -> None:
    pair = bench.pair(BodyPlace((), False, {"f0": ("x",)}, {}, {"x": "f0"}))
    for text in OWN["strings"]:
        for ascii_only in {True, text.isascii()}:  # one spelling, or two
            body = json.dumps({"k": 1, "x": text}, ensure_ascii=ascii_only).encode()
            sent, answers = bench.there_and_back(pair, body)
            assert len(text) < 6 or text not in json.loads(sent)["x"]
            assert [json.loads(answer) for answer in answers] == [{"k": 1, "x": text}] * 2
        body = b"k=1&x=" + form.write_form_value(text)
        sent, answers = bench.there_and_back(pair, body, FORM)
        assert answers == [body, body]
        assert (sent != body) is (text != "")
    assert bench.desk.idle
