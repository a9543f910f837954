from collections.abc import Sequence

from proxy.redactor.cookies import (
    CookieField,
    may_hold,
    no_token,
    read_cookie,
    set_cookie,
    with_tokens,
)
from tests.support.table import table

EMAIL = CookieField("p", "email")
NAMES = {"who": EMAIL}


async def swapped(*values: bytes) -> Sequence[tuple[bytes, bytes]]:
    async def swap(at: CookieField, text: str | None) -> str | None:
        assert at == EMAIL
        return {None: None, "none": None, "T@x": "T@x"}.get(text, f"T@{len(text or '')}")

    return await with_tokens(NAMES, [(b"Cookie", one) for one in values], swap)


@table(
    ("raw", "text", "other"),
    [
        (b"ann%40x.example", "ann@x.example", b"T%40y%20%3B"),
        (b"ann@x.example", "ann@x.example", b"T@y%20%3B"),
        (b'"ann@x.example"', "ann@x.example", b'"T@y %3B"'),
        (b'"a\\"n\\\\n\\073\\040"', 'a"n\\n; ', b'"T@y %3B"'),
        (b"Ann", "Ann", b"T%40y%20%3B"),
        (b" Ann%20%C3%85 ", "Ann Å", b"T%40y%20%3B"),
        ("Å".encode(), "Å", b"T@y%20%3B"),
        (b'"', '"', b"T@y%20%3B"),
        (b'""', "", b'"T@y %3B"'),
        (b"100%", "100%", b"T%40y%20%3B"),
    ],
)
def test_a_value_is_read_and_written_in_the_escaping_in_which_it_stands(raw, text, other):
    cookie = read_cookie(raw)
    assert cookie is not None
    assert (cookie.text, cookie.written("T@y ;")) == (text, other)


@table("raw", [b"%", b"a%zz", b"%41", b"%25", b'"%', b"a+b", b"a=b", b"a@%"])
def test_what_was_written_is_read_again(raw):
    for text in ('a "b"; c\\, Å%41+', raw.decode(), "\r\n\t\0", "x@y"):
        cookie = read_cookie(raw)
        assert cookie is not None
        written = cookie.written(text)
        assert not set(written) & set(b";\r\n\0\t")
        again = read_cookie(written)
        assert again is not None
        assert again.text == text


def test_a_value_that_is_no_utf8_is_no_text():
    assert read_cookie(b"%FF") is None


@table(
    ("value", "wanted"),
    [
        (b"a=b; who=ann@x; c=d", b"a=b; who=T@5; c=d"),
        (b"who=ann%40x", b"who=T%405"),
        (b'who="ann@x"', b'who="T@5"'),
        (b"who=a; who=bb", b"who=T%401; who=T%402"),
        (b"a=b;who=none;c=d", b"a=b;c=d"),
        (b"who=none; a=b", b"a=b"),
        (b"who=%FF; a=b", b"a=b"),
    ],
)
async def test_the_value_of_a_named_cookie_is_swapped_and_left_out_where_it_has_no_token(
    value, wanted
):
    assert await swapped(value) == [(b"Cookie", wanted)]


@table(
    "value, left",
    [
        (b"a=b; c=d, who=ann@x", b"a=b"),  # divided by commas (RFC 2109)
        (b"a=b; c=d who=ann@x; e=f", b"a=b; e=f"),  # or by blanks
        (b'a=b; who="x;y ann@x"; e=f', b"a=b; e=f"),
        (b'a=b; who="x; y ann@x', b"a=b"),
        (b'a=b; "who"=ann@x', b"a=b"),
        (b"a=b; w%68o=ann@x", b"a=b"),
        (b"a=b; \xa0who=ann@x", b"a=b"),
        (b'a=b; who="x\\"; y=ann@x"; e=f', b"a=b; e=f"),  # an escaped quote ends no value
        (b'a=b; who="x\\"; y=ann@x\\"; z=ann"; e=f', b"a=b; e=f"),
        (b'a=b; who="x" y="; z=ann@x"; e=f', b"a=b; e=f"),
        (b'a=b; Who="x; y=ann@x"; e=f', b"a=b; e=f"),
        (b"a=b; Who=ann@x", b"a=b"),  # ASP.NET
        (b"a=b; %57ho=ann@x", b"a=b"),
        (b"a=b; who[x]=ann@x", b"a=b"),  # PHP
        (b"a=b; who[x][y]=ann@x; WHO%5B]=ann@x", b"a=b"),
        (b"a=b; who%00x=ann@x", b"a=b"),
        (b"a=b; +who=ann@x", b"a=b"),
        (b"a=b; =who=ann@x", b"a=b"),
    ],
)
async def test_a_cookie_that_other_readers_see_is_left_out(value, left):
    assert await swapped(value) == [(b"Cookie", left)]


@table(
    "name",
    [
        *(b"last_email", b"last.email", b"last email", b"last[email", b"last+email"),
        *(
            b"last%5Femail",
            b"%6cast%5fem%61il",
            b"Last_Email",
            b"%4CAST_EM%41IL",
            b"last%255femail",
            b"last_email[x]",
        ),
    ],
)
async def test_a_name_is_seen_in_every_spelling_that_some_reader_understands(name):
    head = b"GET / HTTP/1.1\r\nCookie: a=b; %b=ann@x\r\n\r\n" % name
    assert may_hold({"last_email": EMAIL}, head)
    assert not may_hold({"last_email": EMAIL}, head.translate(bytes.maketrans(b"mM", b"nN")))
    left = await with_tokens({"last_email": EMAIL}, ((b"Cookie", name + b"=ann@x; a=b"),), no_token)
    assert left == [(b"Cookie", b"a=b")]


async def test_a_value_in_quotes_goes_on_in_the_next_field():
    """Such fields are joined with a semicolon (RFC 9113 section 8.2.3)."""
    assert await swapped(b'a=b; who="x', b'y=ann@x"; c=d', b"e=f") == [
        (b"Cookie", b"a=b"),
        (b"Cookie", b"c=d"),
        (b"Cookie", b"e=f"),
    ]


async def test_a_dot_that_is_read_as_an_underscore_hides_no_cookie():
    names = {"last_mail": NAMES["who"]}
    headers = ((b"Cookie", b"a=b; last.mail=ann@x"),)
    assert await with_tokens(names, headers, no_token) == [(b"Cookie", b"a=b")]


@table(
    "value", [b"a=b", b"whom=ann", b"[who]=ann", b"who", b"who=; a=b", b"who=T@x", b"a=who=b", b""]
)
async def test_every_other_byte_stays(value):
    (field,) = await swapped(value)
    assert field == (b"Cookie", value)


async def test_a_field_without_any_cookie_left_is_left_out():
    assert await swapped(b"who=none", b"a=b") == [(b"Cookie", b"a=b")]
    headers = ((b"cookie", b"who=x; b=c"), (b"X-Cookie", b"who=x"))
    left = [(b"cookie", b"b=c"), (b"X-Cookie", b"who=x")]
    assert await with_tokens(NAMES, headers, no_token) == left


async def test_the_same_fields_come_back_where_nothing_changes():
    headers = ((b"Cookie", b"a=b"),)
    assert await with_tokens(NAMES, headers, no_token) is headers


def test_attributes_of_a_cookie_stay_as_they_are():
    assert set_cookie(b"who=a=b; Path=/; HttpOnly") == (
        "who",
        b"who=",
        b"a=b",
        b"; Path=/; HttpOnly",
    )
    assert set_cookie(b"who=a") == ("who", b"who=", b"a", b"")
    assert set_cookie(b"who") == ("who", b"who", b"", b"")
