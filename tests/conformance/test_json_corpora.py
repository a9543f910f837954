"""JSON texts that parsers disagree about, and strings that break careless programs: ours, and those
of others.
"""

import base64
import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from proxy.errors import Code, VaultError
from proxy.model.schema import Path, PathStep, Value
from proxy.redactor import form
from proxy.redactor.json import tree as codec
from proxy.redactor.json.tree import TreeSelection
from proxy.redactor.json.walk import walk
from proxy.redactor.path import is_text
from proxy.redactor.restore import splice
from proxy.redactor.select import Selection
from tests.support.table import table
from tests.support.tree import ROOT

_OWN = json.loads((ROOT / "tests/vectors/json_texts.json").read_text("utf-8"))
_PUBLIC = ROOT.parent / "shared/data/public"

DEEP, EACH = PathStep.DEEP, PathStep.EACH
SELECTIONS: list[tuple[Path | None, list[Path], list[Path]]] = [
    (None, [], []),
    ((), [("a",), ("",)], []),
    ((), [()], []),
    (None, [], [(EACH,)]),
    (None, [], [("a",), (0,), ("foo\0bar",)]),
    ((DEEP, EACH), [(DEEP, "a")], []),
]


def outcome(find: Callable[[], TreeSelection]) -> TreeSelection | Code:
    try:
        return find()
    except VaultError as fault:
        return fault.code


def looked_at(body: bytes) -> set[Code]:
    """Select in several ways by both paths; they agree, the spans hold values, and edits leave the
    rest alone.
    """
    codes = set()
    for objects, leaves, anchored in SELECTIONS:
        found = outcome(partial(Selection(objects, leaves, anchored).find, body))
        assert found == outcome(partial(walk, objects, leaves, anchored, body, 64))
        if isinstance(found, Code):
            codes.add(found)
            continue
        spans = [leaf[1:] for located in found.objects for leaf in located.leaves] + [
            leaf[1:] for leaf in found.anchored
        ]
        for start, end in spans:
            json.loads(body[start:end])
        edits = [
            (
                start,
                end,
                codec.write_json_value(
                    codec.read_json_value(body[start:end]) or Value("null", json=True)
                ),
            )
            for start, end in spans
        ]
        assert json.loads(splice(body, edits)) == json.loads(body)
        assert splice(body, [(start, end, body[start:end]) for start, end in spans]) == body
    return codes


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def is_json(body: bytes) -> bool:
    """What the standard library says, made strict: UTF-8 only, no mark at the start, no constants
    beyond JSON.
    """
    try:
        json.loads(body.decode("utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


@table("text", _OWN["accepted"])
def test_json_is_read(text):
    body = text.encode("latin-1")
    assert is_json(body)
    assert looked_at(body) <= {Code.AMBIGUOUS_JSON}


@table("text", _OWN["refused"])
def test_what_is_no_json_is_refused_whatever_is_selected(text):
    body = text.encode("latin-1")
    (code,) = looked_at(body)
    deep, second = body.startswith(b"[" * 65), body.startswith((b"[1]", b"{} "))
    usual = Code.MALFORMED_JSON if is_text(body) else Code.UNREADABLE_BODY
    assert code is (Code.TOO_LARGE if deep else Code.AMBIGUOUS_JSON if second else usual)


def test_the_parsing_corpus_holds(unavailable):
    file = _PUBLIC / "jsontestsuite.b64.json.gz"
    if not file.exists():
        unavailable("JSONTestSuite", "the public test data is not beside the repository")
    seen: Counter[str] = Counter()
    for name, packed in json.loads(gzip.decompress(file.read_bytes())).items():
        body = base64.b64decode(packed)
        codes = looked_at(body)
        seen[name.rpartition("/")[2][:2]] += 1
        if is_json(body):
            assert codes <= {Code.AMBIGUOUS_JSON, Code.TOO_LARGE}, name
            assert Code.TOO_LARGE not in codes or "nested" in name
        else:
            assert len(codes) == 1, name
    assert seen["y_"] >= 90
    assert seen["n_"] >= 180


def strings_hold(strings: Iterable[str]) -> int:
    """Each string as a value and as a name, however it is escaped, and as the value of a form
    member.
    """
    count = 0
    for text in strings:
        count += 1
        for ascii_only in (False, True):
            body = json.dumps({"x": [text], text: text}, ensure_ascii=ascii_only).encode()
            if text != "x":
                leaf = Selection((), [(text,), ("x", 0)]).find(body).objects[0].leaves[1]
                assert codec.read_json_value(body[leaf.start : leaf.end]) == Value(text)
                changed = splice(
                    body, [(leaf.start, leaf.end, codec.write_json_value(Value("token")))]
                )
                assert json.loads(changed) == {"x": [text], text: "token"}
        assert json.loads(codec.write_json_value(Value(text))) == text
        raw = form.write_form_value(text)
        assert form.read_form_value(raw) == text
        (member,) = form.form_members(b"v=" + raw, 5, ("v",))
        assert form.read_form_value((b"v=" + raw)[member.start : member.end]) == text
    return count


def test_our_own_strings_survive():
    assert strings_hold(_OWN["strings"]) >= 30


def test_the_naughty_strings_survive(unavailable):
    file = _PUBLIC / "blns.json"
    if not file.exists():
        unavailable(
            "the Big List of Naughty Strings", "the public test data is not beside the repository"
        )
    assert strings_hold(json.loads(file.read_text("utf-8"))) >= 500
