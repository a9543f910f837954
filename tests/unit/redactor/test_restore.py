import re

import pytest

from proxy.model.schema import Value
from proxy.redactor import restore
from proxy.redactor.exchange.settle import text_places
from proxy.redactor.message import Media
from proxy.redactor.plan import header_ids
from proxy.redactor.redact import BodyObject, ParsedBody, Spot
from proxy.redactor.restore import EscapingKinds, rewritten, splice
from proxy.redactor.rules import IdPlace, IdSource
from tests.support.table import table

#: A shape as ``opaque`` has one.
SHAPE = re.compile(r"(?<![0-9A-Za-z])tok[0-9]{4}(?![0-9A-Za-z])")
T = "tok1234"


def restored(
    kind: EscapingKinds, body: str, value: Value, known: dict[str, Value] | None = None
) -> str:
    raw = body.encode()
    found = restore.candidates(kind, raw, [SHAPE], known or {})
    return splice(raw, restore.rewrite(kind, found, {T: value, **(known or {})})).decode()


@table(
    "body, value, wanted",
    [
        (f'{{"a": "{T}"}}', Value("Ann"), '{"a": "Ann"}'),
        (f'["{T}"]', Value('A"\n\\é'), '["A\\"\\n\\\\é"]'),
        (f'["{T}"]', Value("1.50", json=True), "[1.50]"),
        (f'["{T}"]', Value('{"a": [1]}', json=True), '[{"a": [1]}]'),
        (f'["is {T}, yes"]', Value('A"n'), '["is A\\"n, yes"]'),
        (f'["is {T}"]', Value("1.50", json=True), '["is 1.50"]'),
        (f'["{T} {T}"]', Value("A"), '["A A"]'),
        # Escapes round a token, as .NET and PHP write them, are no part of a word.
        (f'["\\u0027{T}\\u0027 no"]', Value("A"), '["\\u0027A\\u0027 no"]'),
        (f'["x\\n{T}\\tx"]', Value("A"), '["x\\nA\\tx"]'),
        (f'["\\\\{T}"]', Value("A"), '["\\\\A"]'),
        (f'["\\{T}"]', Value("A"), '["\\tok1234"]'),
        (
            f'["\\"{T}\\"", "\\\\", "{T}", "\\\\\\"", {{"\\"": "{T}"}}]',
            Value("A"),
            '["\\"A\\"", "\\\\", "A", "\\\\\\"", {"\\"": "A"}]',
        ),
        ('["tok\\u0031234"]', Value("A"), '["A"]'),
        ('["tok\\ud8001234"]', Value("A"), '["tok\\ud8001234"]'),
        # As the name of a member it stays a string.
        (f'{{"{T}" : ["{T}"]}}', Value("1", json=True), '{"1" : [1]}'),
        (f'["x{T}", "{T}x", "{T}5", "é{T}"]', Value("A"), f'["x{T}", "{T}x", "{T}5", "éA"]'),
        (f'"{T}" trailing {{ rubbish', Value("A"), '"A" trailing { rubbish'),
        ('"open tok1234', Value("A"), '"open tok1234'),
    ],
)
def test_json(body, value, wanted):
    assert restored(EscapingKinds.JSON, body, value) == wanted


EVIL = Value("""A<img src=x onerror="x('y')">""")
SAFE = "A&#60;img&#32;src&#61;x&#32;onerror&#61;&#34;x&#40;&#39;y&#39;&#41;&#34;&#62;"


@table(
    ("string", "wanted"),
    [
        ("<b>Hello TOK</b>", "<b>Hello SAFE</b>"),
        ("Hello TOK<br>", "Hello SAFE<br>"),
        ("Hello TOK <!-- x -->", "Hello SAFE <!-- x -->"),
        ("Hello &amp; TOK", "Hello &amp; SAFE"),
        ("Hello&#39; TOK", "Hello&#39; SAFE"),
        # As Go, .NET and PHP write them.
        (r"\u003cb\u003eé\n\ud83d\ude00TOK\u003c\/b>", r"\u003cb\u003eé\n\ud83d\ude00SAFE\u003c\/b>"),
        (r"<i title=\"TOK\">TOK</i>", r"<i title=\"SAFE\">SAFE</i>"),
        (r"<\/i> TOK \\ TOK", r"<\/i> SAFE \\ SAFE"),
        # Where it acts it stays a token.
        (r"<a href=\"/TOK\" onclick=\"f('TOK')\">TOK", r"<a href=\"/TOK\" onclick=\"f('TOK')\">SAFE"),
        ("<p>From <TOK></p>", "<p>From <TOK></p>"),
        # A text without a tag is none of HTML, and this is no value to be put in it.
        ("Hello TOK", "Hello TOK"),
        (r"\\ 1 < 2 & TOK <TOK>", r"\\ 1 < 2 & TOK <TOK>"),
    ],
)  # fmt: skip
def test_a_string_that_is_a_piece_of_html_shows_values_that_open_no_tag(string, wanted):
    body = f'{{"a": "{string}"}}'.replace("TOK", T)
    assert restored(EscapingKinds.JSON, body, EVIL) == (
        f'{{"a": "{wanted}"}}'.replace("TOK", T).replace("SAFE", SAFE)
    )


def test_a_text_shows_values_as_they_are_unless_they_would_open_a_tag():
    body = f'{{"a": "{T} <{T}> & x", "{T}": "{T}"}}'
    shown = restored(EscapingKinds.JSON, body, Value("Ann & <3"))
    assert shown == '{"a": "Ann & <3 <Ann & <3> & x", "Ann & <3": "Ann & <3"}'
    assert restored(EscapingKinds.JSON, f'["{T}img"]', Value("x<")) == f'["{T}img"]'
    # A whole string and the name of a member are the value itself, as without the proxy.
    assert restored(EscapingKinds.JSON, f'{{"{T}": "{T}"}}', Value("<b>")) == '{"<b>": "<b>"}'


def test_a_known_token_is_found_as_a_whole_value_whatever_it_looks_like():
    known = {"1999-01-02": Value("2001-05-06"), "4711": Value("1", json=True), "é": Value("x")}
    body = (
        '{"1999-01-02": "1999-01-02", "a": "on 1999-01-02", "b": 4711, "c": 47112, "d": "4711", '
        '"e": ["\\u00e9", "é"]}'
    )
    assert restored(EscapingKinds.JSON, body, Value(""), known) == (
        '{"2001-05-06": "2001-05-06", "a": "on 1999-01-02", "b": 1, "c": 47112, "d": 1, "e": '
        '["x", "x"]}'
    )


@table(
    ("body", "wanted"),
    [
        (f"a={T}&b=1", "a=A+%26+%C3%85&b=1"),
        (f"a=is+{T}", f"a=is+{T}"),
        ("a=tok123%34", "a=A+%26+%C3%85"),
        (f"a=%zz&{T}&b={T}", f"a=%zz&{T}&b=A+%26+%C3%85"),
        (f"%FF={T}&c=%FF", "%FF=A+%26+%C3%85&c=%FF"),
        ("&", "&"),
        ("", ""),
    ],
)
def test_forms(body, wanted):
    assert restored(EscapingKinds.FORM, body, Value("A & Å")) == wanted


def test_pages_show_values_escaped_and_never_where_they_act():
    page = f"""<a href="/x/{T}" onclick='f("{T}")' title="{T}">{T}</a><script>"{T}"</script><input value={T}> {T}"""
    value = "<b> O'N"
    safe = "&#60;b&#62;&#32;O&#39;N"
    assert restored(EscapingKinds.HTML, page, Value(value)) == (
        f"""<a href="/x/{T}" onclick='f("{T}")' title="{safe}">{safe}</a><script>"{T}"</script><input value={safe}> {safe}"""
    )


def test_a_page_that_is_nothing_but_a_token():
    assert restored(EscapingKinds.HTML, T, Value("<")) == "&#60;"
    assert restored(EscapingKinds.HTML, f"<p {T}", Value("<")) == f"<p {T}"


def test_plain_text():
    assert restored(EscapingKinds.TEXT, f"no {T}.\n{T}", Value('Ann "Å"')) == 'no Ann "Å".\nAnn "Å"'
    assert (
        splice(
            b"\xff tok1234",
            restore.rewrite(
                EscapingKinds.TEXT,
                restore.candidates(EscapingKinds.TEXT, b"\xff tok1234", [SHAPE], {}),
                {T: Value("A")},
            ),
        )
        == b"\xff A"
    )


def test_patterns_that_overlap_give_one_candidate_the_longer_first():
    wide = re.compile(r"tok[0-9]{4}@x\.org")
    found = restore.candidates(EscapingKinds.TEXT, b"to tok1234@x.org, tok1234", [SHAPE, wide], {})
    assert [item.text for item in found] == ["tok1234@x.org", "tok1234"]


def test_what_nobody_resolves_stays():
    body = b'["tok9999", "tok1234"]'
    found = restore.candidates(EscapingKinds.JSON, body, [SHAPE], {})
    assert (
        splice(body, restore.rewrite(EscapingKinds.JSON, found, {T: Value("A")}))
        == b'["tok9999", "A"]'
    )


@table(
    ("kind", "wanted"),
    [
        (b"application/json", EscapingKinds.JSON),
        (b"Application/Problem+JSON; charset=utf-8", EscapingKinds.JSON),
        (b"application/x-www-form-urlencoded", EscapingKinds.FORM),
        (b"text/html;charset=x", EscapingKinds.HTML),
        (b"text/plain", EscapingKinds.TEXT),
        (b"text/csv; charset=utf-8", EscapingKinds.CSV),
        (b"image/png", None),
        (b"", None),
    ],
)
def test_the_declared_type_tells_how_tokens_stand_in_it(kind, wanted):
    assert restore.surroundings(kind) is wanted
    assert restore.surroundings(None) is None


@table(
    ("template", "address", "ids"),
    [
        ("/p/{id}", b"/p/17", ["17"]),
        ("/p/{id}", b"https://app.example:8/p/17?x=1#y", ["17"]),
        ("/p/{id}", b" /p/17/ ", ["17"]),
        ("/p/{id}", b"//host/p/17", ["17"]),
        ("/p/{id}", b"/p/a%2Fb%20%C3%A5+c", ["a/b å+c"]),
        ("/p/{id}", "/p/å".encode(), ["å"]),
        ("/p/{id}/change/", b"/p/17/change/", ["17"]),
        ("/p.x/{id}.json", b"/p.x/17.json", ["17"]),
        ("/p.x/{id}.json", b"/pyx/17.json", []),
        ("/p/{id}", b"/p/17/18", []),
        ("/p/{id}", b"/q/17", []),
        ("/p/{id}", b"p/17", []),
        ("/p/{id}", b"http://[bad", []),
        ("/p/{id}", b"", []),
        ("/p.php?id={id}", b"https://app.example/p.php?to=list&id=17&x#y", ["17"]),
        ("/p/?n=case-{id}", b"/p?n=case-a%2Fb%2541", ["a/b%41"]),
        ("/?p={id}", b"/?p=17", ["17"]),
        ("/p.php?id={id}", b"/p.php?id=17&id=18", []),
        ("/p.php?id={id}", b"/p.php?id=", []),
        ("/p.php?id={id}", b"/q.php?id=17", []),
        ("/p.php?id={id}", b"/p.php/17?x=1", []),
        ("#comment-{id}", b"https://app.example/hello-world/?x=1#comment-17", ["17"]),
        ("#comment-{id}", b"/2026/11/hello/#comment-a%20b", ["a b"]),
        ("#comment-{id}", b"/comment-17", []),
        ("#comment-{id}", b"/p/#comment-17/18", []),
        ("#comment-{id}", b"/p/#respond", []),
        ("#/p/{id}", b"/app#/p/17", ["17"]),
    ],
)
def test_ids_in_an_address(template, address, ids):
    place = IdPlace(IdSource.HEADER, "location", template=template)
    assert header_ids(place, ((b"X", b"/p/1"), (b"LOCATION", address))) == ids


@table(
    ("template", "asked", "address", "ids"),
    [
        ("/a/p.php?id={id}", "/a/save.php", b"p.php?id=17", ["17"]),
        ("/a/p.php?id={id}", "/a/{nr}", b" ./p.php?id=17", ["17"]),
        ("/a/p.php?id={id}", "/a/b/save", b"../p.php?id=17", ["17"]),
        ("/a/p.php?id={id}", "/{site}/save", b"p.php?id=17", []),
        ("/a/p.php?id={id}", "/a/p.php", b"?id=17", ["17"]),
        ("/a/{id}", "/a/{id}", b"?saved=1", []),
        ("/a/{id}", "/a/save", b"", []),
        ("/a/{id}", "/a/save", b"//[bad", []),
        ("{id}", "/a/save", b"17", ["17"]),
    ],
)
def test_an_id_in_a_relative_address(template, asked, address, ids):
    place = IdPlace(IdSource.HEADER, "location", template=template)
    assert header_ids(place, ((b"Location", address),), asked) == ids


def test_edits_put_values_into_places_and_leave_what_is_right_already():
    spots = [
        Spot("a", 0, 3, Value("x")),
        Spot("a", 4, 7, Value("y")),
        Spot("a", 8, 9, None),
        Spot("a", 10, 12, Value("1", json=True)),
    ]
    body, content = ParsedBody(Media.JSON, [BodyObject(spots)]), b'"x","y",N, 1,'
    written = rewritten(content, body, [[Value("z"), Value("y"), None, Value("1")]])
    assert written[:2] == (b'"z","y",N,"1",', {"a": 3})
    written = rewritten(content, body, [[None, None, Value("w"), Value("1", json=True)]])
    assert written[:2] == (b'"x","y","w", 1,', {"a": 2})
    assert text_places(spots) == (("a", "x"), ("a", "y"), ("a", "1"))


def test_a_member_without_a_sign_gets_one():
    body = ParsedBody(
        Media.FORM,
        [BodyObject([Spot("a", 1, 1, Value(""), bare=True), Spot("a", 4, 4, Value(""))])],
    )
    written = rewritten(b"n&m=", body, [[Value("a b"), Value("c")]])
    assert written[:2] == (b"n=a+b&m=c", {"a": 2})


@table(
    ("media", "texts"),
    [
        (Media.FORM, [b"a+b%26%C3%A9", b"a%0A", b"1.0"]),
        (Media.JSON, ['"a b&é"'.encode(), b'"a\\n"', b"1.0"]),
    ],
)
def test_values_are_encoded_as_the_body_has_them(media, texts):
    values = [Value("a b&é"), Value("a\n"), Value("1.0", json=True)]
    body = ParsedBody(media, [BodyObject([Spot("a", at, at, Value("")) for at in (0, 1, 2)])])
    assert rewritten(b",,", body, [values]).content == b",".join(texts)


@table(
    ("declared", "body", "kind"),
    [
        (b"text/plain", b"<p>x</p>", EscapingKinds.HTML),
        (b"text/plain; charset=utf-8", b" \n<!DOCTYPE html>", EscapingKinds.HTML),
        (b"text/plain", b"a <p>", EscapingKinds.TEXT),
        (b"text/plain", b"< 3", EscapingKinds.TEXT),
        (b"text/html", b"x", EscapingKinds.HTML),
        (b"image/png", b"<x", None),
    ],
)
def test_a_plain_text_that_begins_like_a_page_is_taken_as_one(declared, body, kind):
    assert restore.taken_as(declared, body) == (kind, body)


# ---- splice


def test_stretches_are_replaced_and_all_else_stays():
    assert splice(b"0123456789", [(8, 9, b"xyz"), (0, 2, b""), (4, 5, b"-")]) == b"23-567xyz9"


def test_nothing_to_do_leaves_the_body():
    assert splice(b"body", []) == b"body"
    assert splice(b"", []) == b""


def test_insertions_at_one_place_keep_their_order():
    assert splice(b"ab", [(1, 1, b"x"), (1, 1, b"y"), (2, 2, b"z")]) == b"axybz"


@table(
    "edits",
    [
        [(0, 3, b""), (2, 4, b"")],
        [(1, 0, b"")],
        [(3, 5, b"")],
        [(-1, 1, b"")],
        [(0, 2, b""), (1, 1, b"x")],
    ],
)
def test_overlapping_and_outlying_edits_are_refused(edits):
    with pytest.raises(ValueError, match="overlaps"):
        splice(b"0123", edits)
