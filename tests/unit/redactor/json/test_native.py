"""The native code finds what the Python code finds, its oracle, and says nothing where in doubt."""

import _ctypes
import base64
import gzip
import itertools
import json
import random
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import pytest

from proxy.errors import VaultError
from proxy.offload import SMALL
from proxy.redactor import guard
from proxy.redactor.exchange import fast_path_exchange
from proxy.redactor.exchange.fast_path_exchange import AnswerReader, FastPathExchange
from proxy.redactor.guard import BodyCutter
from proxy.redactor.json import native
from proxy.redactor.json.native import FindLeaves, FoundLeaves, NativeCode, Swaps
from proxy.redactor.message import Request
from proxy.redactor.plan import make_plan
from proxy.redactor.select import Selection
from proxy.redactor.value_scan import LongPart, suspects
from proxy.tokenization.common import write32, write62
from tests.support.effort import rounds
from tests.support.native import compiled, use
from tests.support.rules import operation_of
from tests.support.tree import ROOT
from tests.support.unavailable import Unavailable

PATHS = [("name",), ("a",), ("e mail",), ("größe",), ("",)]
#: Selections of the members of a document that is one object, as most rules make.
FLAT = (Selection((), PATHS), Selection((), PATHS, nested=True), Selection((), [("b.c",), ("b",)]))
PUBLIC = ROOT.parent / "shared/data/public/jsontestsuite.b64.json.gz"

ORDINARY = (
    '{"name":"Ann","x":[1,-2.5e+10,0.5E-3],"a":null}',
    ' {"name" :\t"Ann" ,\r\n "a" : { "name" : [ ] , "b" : {} } } '.strip(),
    '{"größe":"€ 😀 é\x7f","name":"\\ud83d\\ude00\\u00e9\\"\\\\\\/\\b\\f\\n\\r\\t","a":true,"":false}',
    json.dumps({"e mail": "x" * 7, "a": "y" * 40_000}),
    "{}",
)
#: What is put into a document to damage it, or to make it odd.
PIECES = (
    *(b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b" ", b"\t", b"\n", b"\0", b"\x1f", b"-"),
    *(b"0", b"1.", b".5", b"1e", b"tru", b"nulll", b"NaN", b"\\u12", b"\\ud800", b"\\udc00"),
    *(
        b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xe0\x80\x80",
        b"\xef",
    ),
    *(b'"name":1,', b'"Name":1,', b'"a ":2,', b'"b.c":3,', b'"\\u0061":4,', b"\xf0\x9f\x98\x80"),
)  # fmt: skip


@pytest.fixture
def code(unavailable: Unavailable) -> NativeCode:
    return compiled(unavailable)


@pytest.fixture
def find(code: NativeCode) -> FindLeaves:
    return code.find


@pytest.fixture
def told(code: NativeCode, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """What both find, which is the same."""

    def each(selection: Selection, body: bytes, depth: int) -> Iterator[Any]:
        for one in (code, None):
            use(one, monkeypatch)
            yield outcome(selection, body, depth), brief(selection, body, depth)

    def both(selection: Selection, body: bytes, depth: int = 64) -> Any:
        (fast, short), (slow, plain) = each(selection, body, depth)
        assert fast == slow, body
        assert short == plain or None in (short, plain), body
        return fast

    return both


def layouts_of(selection: Selection) -> Any:
    assert selection.flat is not None
    return cast("Any", selection._levels)._layouts


def outcome(selection: Selection, body: bytes, depth: int) -> Any:
    try:
        return selection.find(body, depth)
    except VaultError as error:
        return error.code, str(error), error.details


def brief(selection: Selection, body: bytes, depth: int) -> FoundLeaves | None:
    try:
        found = selection.brief(body, depth)
    except Exception:  # noqa: BLE001  # as its callers take it: somebody else has to look
        return None
    return found and ([*found[0]], [*found[1]])


def value(chance: random.Random, depth: int) -> Any:
    kind = chance.random()
    if depth and kind < 0.4:
        names = ("name", "a", "x", "größe", "e mail", "b", "c")
        some = [value(chance, depth - 1) for _ in range(chance.randrange(4))]
        return some if kind < 0.2 else {chance.choice(names): one for one in some}
    texts = ("", "Ann", 'q"\\/\n\x7f', "é€😀", "x" * chance.randrange(20))
    return chance.choice([chance.choice(texts), 0, -1, 1.5e300, 10**30, True, False, None])


def document(chance: random.Random) -> bytes:
    names = ("name", "a", "x", "größe", "e mail", "", "b", "other", "y" * chance.randrange(30))
    members = {name: value(chance, 4) for name in chance.sample(names, chance.randrange(8))}
    separators = chance.choice([(",", ":"), (", ", ": "), (" ,\n", "\t: ")])
    text = json.dumps(members, ensure_ascii=chance.random() < 0.5, separators=separators)
    return text.encode()


def damaged(chance: random.Random, body: bytes) -> bytes:
    text = bytearray(body)
    for _ in range(chance.choice([1, 1, 2])):
        at = chance.randrange(len(text) + 1)
        text[at : at + chance.choice([0, 0, 1, 2])] = chance.choice(PIECES)
    return bytes(text[: chance.randrange(len(text) + 1)] if chance.random() < 0.1 else text)


@pytest.mark.parametrize("text", ORDINARY)
@pytest.mark.parametrize("selection", FLAT)
def test_ordinary_objects_are_found_by_both(find, told, selection, text):
    layouts = layouts_of(selection)
    body = text.encode()
    leaves = find(body, 64, layouts)
    assert leaves is not None
    parsed, spans = json.loads(body), leaves[1]
    values = [json.loads(body[start:end]) for start, end in spans]
    names = [path[0] for path in selection._selectors[1]]
    assert values == [parsed, *(parsed[name] for name in parsed if name in names)]
    assert [(leaf.start, leaf.end) for leaf in told(selection, body).objects[0].leaves] == spans[1:]


@pytest.mark.parametrize("part", range(4))
def test_whatever_comes_the_same_is_found_or_refused(find, told, part):
    chance = random.Random(part)
    taken = 0
    for _ in range(rounds(400)):
        selection, body = chance.choice(FLAT), document(chance)
        told(selection, body)
        taken += find(body, 64, layouts_of(selection)) is not None
        for _ in range(4):
            told(selection, damaged(chance, body), chance.choice([0, 1, 2, 3, 5, 64]))
    assert taken > rounds(400) // 2


def test_the_corpora_are_read_alike(told, unavailable):
    own = json.loads((ROOT / "tests/vectors/json_texts.json").read_text("utf-8"))
    texts = [text.encode("latin-1") for text in (*own["accepted"], *own["refused"])]
    if PUBLIC.exists():
        packed = json.loads(gzip.decompress(PUBLIC.read_bytes())).values()
        texts += [base64.b64decode(one) for one in packed]
    for text in texts:
        for selection in FLAT:
            for body in (text, b'{"a":%b}' % text, b'{"name":1,"x":%b,"a":2}' % text):
                told(selection, body)
    if not PUBLIC.exists():
        unavailable("JSONTestSuite", "the public test data is not beside the repository")


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"x":', b"}")])
@pytest.mark.parametrize("levels", [1, 63, 64, 65, 1023, 1024, 1025, 5000])
def test_a_document_nests_as_deep_as_allowed(find, told, opening, closing, levels):
    body = b'{"a":%b1%b}' % (opening * (levels - 1), closing * (levels - 1))
    for depth in (levels - 1, levels, levels + 1, 64):
        assert (find(body, depth, AnyLayout()) is not None) is (levels <= min(depth, 1024))
    told(FLAT[0], body)


@pytest.mark.parametrize("members", [1, 127, 128, 129, 1000])
def test_objects_of_many_members_are_left_to_python(find, told, members):
    body = b"{%b}" % b",".join(b'"m%d":%d' % (number, number) for number in range(members))
    assert (find(body, 64, AnyLayout()) is not None) is (members <= 128)
    told(FLAT[0], body)


def test_names_that_others_read_in_another_way_are_left_to_python(find):
    layouts = layouts_of(FLAT[1])
    for name in ("Name", "name ", "b", "name", "\\u0061"):
        body = b'{"name":1,"%b":2}' % name.encode()
        assert (find(body, 64, layouts) is not None) is (name == "b")


class AnyLayout(dict[Any, Any]):
    """Any names have a layout, without leaves."""

    def __missing__(self, names: Any) -> Any:
        return (), ()


class WrongLayout(AnyLayout):
    def __init__(self, layout: Any) -> None:
        self.layout = layout

    def __missing__(self, names: Any) -> Any:
        return self.layout


@pytest.mark.parametrize(
    "layout", [((), (1,)), ((), (-1,)), ((), ("x",)), (), 5, ((), 5), ((), (2**80,))]
)
def test_a_wrong_layout_is_an_error(find, layout):
    with pytest.raises((IndexError, TypeError, SystemError, OverflowError)):
        find(b'{"a":1}', 64, WrongLayout(layout))


def test_wrong_arguments_are_errors(find):
    with pytest.raises(KeyError):
        find(b'{"a":1}', 64, {})
    wrong: list[Any] = [(), (b"",), ("{}", 64, {}), (b"{}", "64", {}), (b"{}", 2**80, {})]
    for arguments in wrong:
        with pytest.raises((TypeError, OverflowError)):
            find(*arguments)


def test_words_are_those_of_python(code):
    chance = random.Random(1)
    ends = [bytes(16), b"\xff" * 16, bytes(8) + b"\xff" * 8, b"\xff" * 8 + bytes(8)]
    for block in [*ends, *[chance.randbytes(16) for _ in range(rounds(2000))]]:
        assert code.write62(block) == write62(block)
        assert code.write32(block) == write32(block)
    for write in (code.write62, code.write32):
        with pytest.raises(ValueError, match="16 bytes"):
            write(bytes(15))
        with pytest.raises(TypeError):
            write("x" * 16)


def test_strings_are_read_alike_with_sixteen_bytes_at_a_time_and_with_eight(find, unavailable):
    other = compiled(unavailable, "-U__SSE2__").find
    chance, found = random.Random(7), [0, 0]
    for number in range(rounds(2000)):
        body = document(chance)
        if number % 2:
            body = damaged(chance, body)
        for selection in FLAT:
            selection.find(b"{}", 64)
            layouts = layouts_of(selection)
            leaves = find(body, 64, layouts)
            assert leaves == other(body, 64, layouts), body
            found[leaves is None] += 1
    assert min(found) > 100, found
    layouts = layouts_of(FLAT[0])
    for size in range(40):  # whatever ends a string stands at any place of a piece
        for end in (b'"', b'\\n"', 'é"'.encode(), b'\x7f"', b'\x1f"', b'\xff"', b""):
            body = b'{"name":"%b%b}' % (b"x" * size, end)
            assert find(body, 64, layouts) == other(body, 64, layouts), body


#: Values of members, as they are written.
_WRITTEN = (
    '"Ann"', '"Bo Lee"', '"é€😀"', '""', "null", "7", '"q\\""', '"x\\u0041"', "[1]", "true", '" "',
    '"\x7f"',
)  # fmt: skip


def test_texts_are_cut_out_as_by_python(code, monkeypatch):
    use(code, monkeypatch)
    plan = make_plan(operation_of("{match: POST /contacts, create: contact}"))
    assert plan.request is not None
    assert plan.request.selection is not None
    chance, cuts = random.Random(3), [0, 0, 0]
    for _ in range(rounds(3000)):
        names = chance.sample(("name", "email", "note", "größe", "a"), chance.randrange(1, 6))
        odd = chance.random() < 0.3
        written = [chance.choice(_WRITTEN if odd else _WRITTEN[:5]) for _ in names]
        members = [f'"{name}":{text}' for name, text in zip(names, written, strict=True)]
        body = ("{" + chance.choice((",", ", ", " ,\n")).join(members) + "}").encode()
        plan.request.selection.find(body)
        for nothing in (frozenset[bytes](), frozenset((b"null", b'""'))):
            cutter = BodyCutter(plan, nothing)
            found = cutter.cut(body)
            with monkeypatch.context() as without:
                without.setattr(guard, "_cut", None)
                assert cutter.cut(body) == found, body
            cuts[2 if found is None else None in found.texts] += 1
    assert min(cuts) > 200, cuts


@pytest.mark.parametrize("size", [16_384, 16_385, 40_000])
def test_texts_of_long_bodies_are_cut_out_as_by_python_and_the_rest_is_not_copied(
    code, monkeypatch, size
):
    use(code, monkeypatch)
    plan = make_plan(operation_of("{match: POST /contacts, create: contact}"))
    assert plan.request is not None
    assert plan.request.selection is not None
    cutter = BodyCutter(plan, frozenset())
    for name, taken in (('"Ann"', True), ('"\\u0041"', False), ("7", False), ('""', False)):
        body = b'{"name":%b,"x":"%b","email":"a@b.example"}' % (name.encode(), b"x" * size)
        body = body[:-1] + b" " * (size - len(body)) + b"}"
        found = cutter.cut(body)
        with monkeypatch.context() as without:
            without.setattr(guard, "_cut", None)
            assert cutter.cut(body) == found
        assert (found is not None) is taken
        if found is not None:
            kinds = {type(piece) for piece in found.pieces[::2]}
            assert kinds == {bytes if len(body) <= SMALL else memoryview}


def test_spans_that_are_none_are_refused_and_never_read(code):
    names, one = ("name",), ((0,), [(0, 5), (1, 4)])
    assert code.cut(b'["A"]', one, names, False) == (
        ["A"],
        {"A": "name"},
        [b'"A"'],
        [b"[", b"", b"]"],
    )
    for span in ((4, 1), (-1, 2), (1, 6), (9, 99)):
        assert code.cut(b'["A"]', ((0,), [(0, 5), span]), names, False) is None
    assert (
        code.cut(b'["A"]', ((0, 0), [(0, 5), (1, 4), (1, 4)]), names, False) is None
    )  # overlapping
    wrong: list[Any] = [
        (b"",),
        ("", one, names, 0),
        (b"", one, (), 0),
        (b"", ((0,), [1, 2]), names, 0),
        (b"", 7, names, 0),
    ]
    for arguments in wrong:
        with pytest.raises((TypeError, IndexError, SystemError)):
            code.cut(*arguments)


@pytest.mark.parametrize("method", ["POST /contacts, create", '"GET /contacts/{id}", read'])
def test_answers_are_taken_apart_and_put_together_as_by_python(code, monkeypatch, method):
    use(code, monkeypatch)
    plan = make_plan(operation_of(f"{{match: {method}: contact}}"))
    reader, sent = AnswerReader(plan, None), Request("", b"", (), b"")
    assert plan.response is not None
    assert plan.response.selection is not None
    chance, seen = random.Random(5), [0, 0, 0, 0]
    names = ("name", "email", "note", "id", "a")

    def answer(body: bytes, swaps: Swaps) -> tuple[Any, bytes | None]:
        exchange = FastPathExchange(cast("Any", reader), cast("Any", None), sent, None, swaps=swaps)
        return reader.read(body), exchange.restore(body) if reader.writes else None

    for _ in range(rounds(3000)):
        members = chance.sample(names, chance.randrange(1, 6))
        some = _WRITTEN if chance.random() < 0.3 else _WRITTEN[:5]
        pairs = {name: "17" if name == "id" else chance.choice(some) for name in members}
        texts = [f'"{name}":{text}' for name, text in pairs.items()]
        body = ("{" + chance.choice((",", " , ")).join(texts) + "}").encode()
        swaps = {
            name: (b"7" if chance.random() < 0.1 else text.encode(), b'"%b"' % name.encode())
            for name, text in pairs.items()
            if chance.random() < 0.9
        }
        plan.response.selection.find(body, 64)
        fields, restored = answer(body, swaps)
        with monkeypatch.context() as without:
            without.setattr(fast_path_exchange, "_answer_fields", None)
            without.setattr(fast_path_exchange, "_put_back", None)
            assert answer(body, swaps) == (fields, restored), body
        seen[fields is None] += 1
        seen[2 + (restored is None)] += 1
    assert min(seen[: 4 if reader.writes else 2]) > 200, seen


def test_fields_that_stand_nowhere_in_an_answer_are_never_read(code):
    body, one = b'["A"]', ("name", 1, 4)
    assert code.answer_fields(body, ((0,), [(0, 5), (1, 4)]), ("name",), -1, False) == (None, [one])
    assert code.put_back(body, [one], {"name": (b'"A"', b"7")}) == b"[7]"
    for span in ((4, 1), (-1, 2), (1, 6), (9, 99)):
        leaves = ((0,), [(0, 5), span])
        assert code.answer_fields(body, leaves, ("name",), -1, False) is None
        assert code.put_back(body, [("name", *span)], {"name": (b'"A"', b"7")}) is None
    assert code.put_back(body, [one, one], {"name": (b'"A"', b"7")}) is None  # overlapping
    assert code.put_back(body, [one] * 200, {"name": (b'"A"', b"7")}) is None
    wrong: list[Any] = [(b"",), ("", [one], {}), (b"", one, {}), (b"", [7], {}), (b"", [one], ())]
    wrong += [(body, [one], {"name": 7}), (body, [one], {"name": (b'"A"', "7")})]
    for arguments in wrong:
        with pytest.raises(TypeError):
            code.put_back(*arguments)
    for arguments in (
        (b"",),
        ("", ((), []), (), 0, 0),
        (b"", 7, (), 0, 0),
        (b"", ((0,), [1, 2]), (), 0, 0),
    ):
        with pytest.raises((TypeError, SystemError)):
            code.answer_fields(*arguments)
    with pytest.raises(IndexError):  # it said that no texts stand there, and left an error behind
        code.answer_fields(b"[7]", ((1,), [(0, 3), (1, 2)]), ("name",), -1, False)


#: What stands around a value, or around its base64.
_AROUND = (b'"', b"", b" ", b"=", b"\n", b"a", b"1", b"+/", b"-_", b"\0", b"x" * 14)


def test_a_value_is_absent_only_where_python_suspects_nothing(code, monkeypatch):
    chance = random.Random(2)
    texts = ("Ann", "7", "1234", "12", "\u0664", "ä", "ß€", "Annelie", "\U0001f600" * 5, "\udc00x")
    told = {True: 0, False: 0}
    for _ in range(rounds(4000)):
        some = [*chance.sample(texts, 2), chance.choice("ab1?>\xff") * chance.randrange(1, 14)]
        values = dict.fromkeys(some, "name")
        raw = chance.choice(some).encode("utf-8", "surrogatepass")
        before = chance.randbytes(chance.randrange(4))
        forms = raw, base64.b64encode(before + raw), base64.urlsafe_b64encode(before + raw + b"?")
        pieces = (chance.choice(_AROUND), chance.choice((*forms, b"{}")), chance.choice(_AROUND))
        heap = b"\n\n%b\n" % b"".join(pieces)
        parts = [LongPart(heap, 0, len(heap))] if chance.random() < 0.5 else []
        searched = b"\n\n{}\n" if parts and chance.random() < 0.5 else heap
        use(None, monkeypatch)
        suspected = suspects(values, searched, parts)
        use(code, monkeypatch)
        assert suspects(values, searched, parts) == suspected, (values, heap)
        told[bool(suspected)] += 1
    assert min(told.values()) > 100, told
    assert code.absent({"Annelie": "name", "Ann": "name", "12": "age"}, b'"12", "A nn"')


def test_a_value_is_found_in_rows_of_base64_wherever_its_code_begins(code):
    value = "Annelie Lindqvist"
    for before, around, more in itertools.product(range(4), range(15), (b"", b"?>" * 20)):
        raw = b"\xff\xfe?"[:before] + value.encode() + more
        for coded in (base64.b64encode(raw), base64.urlsafe_b64encode(raw).rstrip(b"=")):
            heap = b"." * around + b"q" * before + coded + b"," * around
            assert not code.absent({value: "name"}, heap), heap
            assert code.absent({value.lower(): "name"}, heap), heap


def test_so_many_bytes_of_base64_are_read_and_no_more(code):
    values = {"Annelie": "name"}
    for row in (14, 15, 21, 64, 4095, 4096):  # Python has to look at what is longer
        text = (b"A" * row + b" ") * (4096 // row)
        assert code.absent(values, text)
        assert not code.absent(values, text + b"A" * (4096 % row + 14))
    assert code.absent(values, b"A" * 13 + (b" " + b"A" * 13) * 4096)


def test_what_is_searched_for_is_a_dictionary_and_where_are_bytes(code):
    wrong: list[Any] = [({},), ([], b""), ({}, ""), ({}, b"", b""), ({}, b"", "", 0)]
    wrong += [({}, b"ab", *span) for span in ((-1, 1), (0, 3), (2, 1), (3, 3), (0, 2**80))]
    for arguments in wrong:
        with pytest.raises((TypeError, IndexError, OverflowError)):
            code.absent(*arguments)


def test_a_value_is_found_anywhere_in_a_long_text_and_only_where_it_is(code):
    """By its rarest byte, which may be everywhere in it or at one place, first or last."""
    chance, told = random.Random(4), [0, 0]
    for _ in range(rounds(2000)):
        letters = chance.choice((b"ab", b"abcdefgh \n", bytes(range(32, 127)), b"a "))
        size = chance.choice((4095, 4096, 5000, 20_000))
        text = bytes(chance.choices(letters, k=size))
        text = (
            text.replace(b"/", b" ") if chance.random() < 0.5 else re.sub(rb"\w{9}", b"a b ", text)
        )
        at = chance.randrange(len(text) - 12)
        cut = text[at : at + chance.randrange(1, 12)].decode()
        value = chance.choice((cut, cut[::-1], "abcab", "Annelie", cut + "#", "#" + cut))
        if chance.random() < 0.4:
            raw = value.encode()
            at = chance.choice((0, len(text) - len(raw), at))
            text = text[:at] + raw + text[at + len(raw) :]
        start, end = chance.choice(((0, len(text)), (7, len(text) - 7), (at, len(text))))
        absent = code.absent({value: "name"}, text, start, end)
        assert absent is code.absent({value: "name"}, text[start:end])
        there = value.encode() in text[start:end]
        assert not (absent and there and len(value) > 3), (value, at, start, end)
        told[absent] += 1
    assert min(told) > 100, told


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return native.compile_into(tmp_path_factory.mktemp("native"))


@pytest.fixture
def extension(find, request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of what the compiler made, with its digest, in the folder of the test.

    ``find`` has skipped the test where there is no compiler.
    """
    made: Path = request.getfixturevalue("original")
    shutil.copytree(made.parent, tmp_path, dirs_exist_ok=True)
    return tmp_path / made.name


def test_nothing_is_loaded_from_an_empty_folder(tmp_path):
    assert native.load_from(tmp_path) is None


def test_what_was_compiled_from_another_source_is_not_used(extension, tmp_path, monkeypatch):
    monkeypatch.setattr(native, "_digest", lambda: "another")
    with pytest.raises(ImportError, match="another source"):
        native.load_from(tmp_path)


@pytest.mark.parametrize("damage", ["garbage", "empty", "folder", "foreign", "cut", "alone"])
def test_a_damaged_file_is_not_loaded(extension, tmp_path, damage):
    """In a process of its own: loading a file that was cut short would end it."""
    whole = extension.read_bytes()
    contents = {"garbage": b"garbage", "empty": b"", "cut": whole[: len(whole) // 2]}
    if damage == "alone":
        extension.with_suffix(".sha256").unlink()
    else:
        extension.unlink()
        if damage == "folder":
            extension.mkdir()
        elif damage == "foreign":
            extension.write_bytes(Path(_ctypes.__file__).read_bytes())
        else:
            extension.write_bytes(contents[damage])
    code = (
        "import sys; from proxy.redactor.json.native import _load, Path; "
        "find, reason = _load(Path(sys.argv[1])); print(find, bool(reason))"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "None True\n"), done.stderr


@pytest.mark.parametrize("content", [b"garbage", b"", Path(_ctypes.__file__).read_bytes()])
def test_a_library_of_another_kind_is_not_used_even_if_its_digest_fits(tmp_path, content):
    (tmp_path / "_spans.abi3.so").write_bytes(content)
    (tmp_path / "_spans.abi3.sha256").write_text(sha256(content).hexdigest())
    code, reason = native._load(tmp_path)
    assert code is None
    assert reason


def test_without_a_compiler_nothing_fails_but_the_attempt(monkeypatch, capsys):
    without = sysconfig.get_config_vars() | {"LDSHARED": "/nowhere/cc"}
    monkeypatch.setattr(sysconfig, "get_config_vars", lambda *_: without)
    assert native.compile_in_place() == 1
    assert "is not needed" in capsys.readouterr().err
