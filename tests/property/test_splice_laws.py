"""What holds for every document: both ways of finding agree, and nothing changes but what was
selected.
"""

import json
import re
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from proxy.errors import Code, VaultError
from proxy.model.schema import Path, Value
from proxy.redactor import form
from proxy.redactor.json import tree as codec
from proxy.redactor.json.text import depth_fits
from proxy.redactor.json.tree import TreeSelection
from proxy.redactor.json.walk import walk
from proxy.redactor.message import Media
from proxy.redactor.redact import BodyObject, ParsedBody, Spot
from proxy.redactor.restore import EscapingKinds, candidates, rewrite, rewritten, splice
from proxy.redactor.select import Selection
from tests.support.documents import Object, broken, documents, meaning, parsed, paths, spelled

PATHS = st.lists(paths(wild=False, empty=False), max_size=4)
WILD_PATHS = st.lists(paths(wild=True), max_size=3)
OBJECTS = st.none() | st.just(()) | paths(wild=False)
VALUES = st.text().map(Value) | st.sampled_from(
    [Value("1.0", json=True), Value("[null]", json=True)]
)


def outcome(
    objects: Path | None, leaves: list[Path], anchored: list[Path], body: bytes, depth: int
) -> TreeSelection | Code:
    try:
        return walk(objects, leaves, anchored, body, depth)
    except VaultError as fault:
        return fault.code


def agree(
    objects: Path | None, leaves: list[Path], anchored: list[Path], body: bytes, depth: int
) -> None:
    selection = Selection(objects, leaves, anchored)
    for _ in range(2):  # the second time with what the first one remembered
        try:
            found: TreeSelection | Code = selection.find(body, depth)
        except VaultError as fault:
            found = fault.code
        assert found == outcome(objects, leaves, anchored, body, depth)


@given(documents().map(str.encode), PATHS, st.data())
def test_a_lone_object_is_rewritten_as_one_among_others_is(body, leaves, data):
    try:
        located = Selection((), leaves).find(body).objects[:1]
        found = [leaf for one in located for leaf in one.leaves]
        spots = [
            Spot(f"field {name}", start, end, codec.read_json_value(body[start:end]))
            for name, start, end in found
        ]
    except VaultError:
        assume(False)
    spots = data.draw(st.permutations(spots) | st.just(spots))
    values = [data.draw(st.none() | VALUES | st.just(spot.value)) for spot in spots]
    lone = rewritten(body, ParsedBody(Media.JSON, [BodyObject(spots)]), [values])
    several = ParsedBody(Media.JSON, [BodyObject(spots), BodyObject()])
    among = rewritten(body, several, [values, []])
    assert (lone.content, lone.counts) == (among.content, among.counts)
    if lone.rest is not None:
        gone = [
            (spot.start, spot.end)
            for spot, value in zip(spots, values, strict=True)
            if value not in (None, spot.value)
        ]
        left = splice(body, [(start, end, b'"') for start, end in gone])
        assert lone.rest == left


@given(st.binary(min_size=4), st.lists(st.integers(0, 99), max_size=6), st.lists(st.binary()))
def test_a_long_body_is_spliced_as_a_short_one(body, ends, contents):
    cuts = sorted(min(end, len(body)) for end in ends)
    edits = list(zip(cuts[::2], cuts[1::2], contents, strict=False))
    spots = [Spot("field", start, end, Value("old")) for start, end, _ in edits]
    values: list[Value | None] = [Value(content.hex()) for _, _, content in edits]
    new = rewritten(body, ParsedBody(Media.JSON, [BodyObject(spots)]), [values])
    behind = bytes(100_000)
    long = rewritten(body + behind, ParsedBody(Media.JSON, [BodyObject(spots)]), [values])
    assert (long.content, long.counts) == (new.content + behind, new.counts)
    assert splice(body + behind, edits) == splice(body, edits) + behind


@given(documents().map(str.encode), OBJECTS, PATHS, PATHS, st.sampled_from([64, 64, 3]))
def test_the_fast_path_finds_what_the_walker_finds(body, objects, leaves, anchored, depth):
    agree(objects, leaves, anchored, body, depth)


@given(broken(), OBJECTS, PATHS, PATHS)
def test_the_fast_path_refuses_what_the_walker_refuses(body, objects, leaves, anchored):
    agree(objects, leaves, anchored, body, 64)


@given(
    documents(distinct=True).map(str.encode), st.none() | paths(wild=True), WILD_PATHS, WILD_PATHS
)
def test_a_selection_means_what_its_steps_say(body, objects, leaves, anchored):
    found = Selection(objects, leaves, anchored).find(body)
    in_objects, from_root = meaning(body, objects, leaves, anchored)
    assert [
        [(leaf.name, parsed(body[leaf.start : leaf.end])) for leaf in one.leaves]
        for one in found.objects
    ] == in_objects
    assert [
        (leaf.name, parsed(body[leaf.start : leaf.end])) for leaf in found.anchored
    ] == from_root
    assert all(isinstance(parsed(body[one.start : one.end]), Object) for one in found.objects)


@given(documents(distinct=True).map(str.encode), PATHS, st.data())
def test_only_the_selected_values_change(body, leaves, data):
    found = Selection((), leaves).find(body)
    spans = [(leaf.start, leaf.end) for one in found.objects for leaf in one.leaves]
    values = [data.draw(VALUES) for _ in spans]
    changed = splice(
        body,
        [(*span, codec.write_json_value(value)) for span, value in zip(spans, values, strict=True)],
    )
    new_spans = moved(spans, values)
    assert [codec.read_json_value(changed[start:end]) for start, end in new_spans] == values
    assert (
        splice(
            changed, [(*new, body[slice(*old)]) for new, old in zip(new_spans, spans, strict=True)]
        )
        == body
    )
    again = Selection((), leaves).find(changed).objects
    assert {(leaf.start, leaf.end) for one in again for leaf in one.leaves} == set(new_spans)


def moved(spans: list[tuple[int, int]], values: list[Value]) -> list[tuple[int, int]]:
    """Where replaced stretches stand afterwards."""
    shift, out = 0, []
    for (start, end), value in zip(spans, values, strict=True):
        length = len(codec.write_json_value(value))
        out.append((start + shift, start + shift + length))
        shift += length - (end - start)
    return out


@given(documents(distinct=True), st.sampled_from(["a", "id", "k", "s", "é", "x/y"]), st.data())
def test_a_second_member_that_somebody_takes_for_the_selected_one_is_refused(text, name, data):
    variants = {
        "a": "aA",
        "id": ["id", "ID", "Id", "ıd", "İd"],
        "k": "kK\u212a",
        "s": "sSſ",
        "é": "éÉ",
        "x/y": ["x/y", "X/y"],
    }
    other = data.draw(
        st.sampled_from(list(variants[name])).flatmap(lambda variant: spelled(variant, True))
    )
    mine = data.draw(spelled(name, True))
    members = data.draw(st.permutations([f"{mine}:1", f"{other}: {text}", f'"zz":{text}']))
    body = ("{" + ",".join(members) + "}").encode()
    for one in (Selection((), [(name,)]), Selection(None, [], [(name, "b")])):
        with pytest.raises(VaultError) as caught:
            one.find(body)
        assert caught.value.code is Code.AMBIGUOUS_JSON


@given(documents(depth=6).map(str.encode), st.integers(0, 8))
def test_nesting_is_counted_exactly(body, depth):
    def height(node: object) -> int:
        return 1 + max(map(height, node), default=0) if isinstance(node, list) else 0

    tree = json.loads(body, object_pairs_hook=lambda pairs: [value for _, value in pairs])
    for padded in (body, body + b" " * 5000):  # small documents are counted in another way
        assert depth_fits(padded, depth) == (height(tree) <= depth)


@given(
    st.binary(max_size=40),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.binary(max_size=5)), max_size=5),
)
def test_a_splice_is_the_pieces_between_the_edits(body, edits):
    ordered = sorted(edits, key=lambda edit: edit[0])
    borders = [0, *(place for start, end, _ in ordered for place in (start, end)), len(body)]
    if borders != sorted(borders):
        with pytest.raises(ValueError, match="overlaps"):
            splice(body, edits)
        return
    out = body
    for start, end, content in reversed(ordered):
        out = out[:start] + content + out[end:]
    assert splice(body, edits) == out


@given(VALUES)
def test_a_json_value_that_is_written_is_read_back(value):
    raw = codec.write_json_value(value)
    assert codec.read_json_value(raw) == codec.read_json_value(memoryview(raw)) == value
    json.loads(raw)


@given(st.text())
def test_a_form_value_that_is_written_is_read_back(text):
    raw = form.write_form_value(text)
    assert form.read_form_value(raw) == text
    assert not set(raw) & set(b"&=;# \r\n")


PAIRS = st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), max_size=6)


@given(PAIRS, st.data())
def test_a_form_is_read_as_the_standard_library_reads_it_and_only_the_edited_members_change(
    pairs, data
):
    body = b"&".join(
        form.write_form_value(name) + b"=" + form.write_form_value(value) for name, value in pairs
    )
    members = form.form_members(body, 100)
    assert [
        (member.name, form.read_form_value(body[member.start : member.end])) for member in members
    ] == pairs
    assert parse_qsl(body.decode(), keep_blank_values=True) == pairs
    chosen = [number for number in range(len(members)) if data.draw(st.booleans())]
    changed = splice(body, [members[number].edit("täken") for number in chosen])
    expected = [
        (name, "täken" if number in chosen else value) for number, (name, value) in enumerate(pairs)
    ]
    assert parse_qsl(changed.decode(), keep_blank_values=True) == expected


@given(st.text("ab&=+%;", max_size=12))
def test_spans_of_a_form_hold_its_raw_values(text):
    body = text.encode()
    assume("%" not in text)
    members = form.form_members(body, 100)
    assert [
        (member.name, form.read_form_value(body[member.start : member.end])) for member in members
    ] == parse_qsl(text, keep_blank_values=True)
    for member in members:
        assert member.bare == (body[member.start - 1 : member.start] != b"=")


# ---------------------------------------------------------------- texts that a page puts into itself

TOKEN = "tok1234"
MARKS = ["<b>", "</b>", "<a href='/", "'>", '<i title="', '">', "<!--", "-->", "<", ">", "&lt;"]
PIECES = st.sampled_from(
    [TOKEN, *MARKS, " ", "Hello ", "\\", '"', "/", "é\n", "<script>", "</script>", "<textarea>"]
)
VALUE = st.lists(
    st.sampled_from(["<", ">", "</", "img", " x=", '"', "'", "&", "#", "--", "!", "a", "-->", "\\"])
).map("".join)


class Tags(HTMLParser):
    """What a page of this text would hold but for shown text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[Any] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.found.append((tag, [(n, v if n != "title" else None) for n, v in attrs]))

    def handle_endtag(self, tag: str) -> None:
        self.found.append(tag)

    def handle_comment(self, data: str) -> None:
        self.found.append(("comment", data))


@given(st.lists(PIECES, max_size=8).map("".join), VALUE, st.booleans())
def test_no_value_within_a_string_of_json_opens_a_tag(text, value, escaped):
    assume(text != TOKEN)
    body = json.dumps({"a": text})
    if escaped:
        body = body.replace("<", r"\u003c").replace("/", r"\/")
    raw, shape = body.encode(), [re.compile(TOKEN)]
    found = candidates(EscapingKinds.JSON, raw, shape, {})
    written = splice(raw, rewrite(EscapingKinds.JSON, found, {TOKEN: Value(value)}))
    assert Tags(json.loads(written)["a"]).found == Tags(text).found
