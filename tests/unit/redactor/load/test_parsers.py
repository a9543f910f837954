import pytest

from proxy.redactor.load import parsers
from proxy.redactor.load.parsers import DURATION, SIZE_IN_BYTES, status
from proxy.redactor.rules import IdPlace, IdSource
from tests.support.rules import read_form
from tests.support.table import table


def test_match_is_methods_and_a_template():
    matched = parsers.parse_match("PUT|PATCH  /contacts/{id}")
    assert matched.label == "PUT|PATCH /contacts/{id}"
    assert matched.methods == ("PUT", "PATCH")
    assert matched.template.names == ("id",)


@table(
    ("text", "words"),
    [
        ("GET", "METHOD and path"),
        ("GET|", "METHOD and path"),
        ("/a", "METHOD and path"),
        ("GET a", "begins with"),
        ("FETCH /a", "not an HTTP method"),
        ("ZZZ /a", "write GET, POST"),
        ("get /a", "capitals"),
    ],
)
def test_what_is_no_match_is_refused(text, words):
    with pytest.raises(ValueError, match=words):
        parsers.parse_match(text)


@table(
    ("text", "place"),
    [
        ("path id", IdPlace(IdSource.PATH, "id")),
        ("path {id}", IdPlace(IdSource.PATH, "id")),
        ("query contact[id]", IdPlace(IdSource.QUERY, "contact[id]")),
        ("form contact id", IdPlace(IdSource.FORM, "contact id")),
        ("$.data.id", IdPlace(IdSource.BODY, path=("data", "id"))),
        ("header Location /c/{id}", IdPlace(IdSource.HEADER, "location", template="/c/{id}")),
        (
            "header Location /c/{nr}/edit/",
            IdPlace(IdSource.HEADER, "location", template="/c/{nr}/edit/"),
        ),
        (
            "header Location /view/?ticket=support-{id}",
            IdPlace(IdSource.HEADER, "location", template="/view/?ticket=support-{id}"),
        ),
        ("header X-Id {id}", IdPlace(IdSource.HEADER, "x-id", template="{id}")),
    ],
)
def test_ids_stand_in_path_query_form_header_or_body(text, place):
    assert parsers.parse_id(text) == place


@table(
    ("text", "words"),
    [
        ("id", "path NAME"),
        ("path", "path NAME"),
        ("path a b", "write path a"),
        ("header Location", "write header"),
        ("header Loc:ation /c/{id}", "write header"),
        ("header Location /c", "one placeholder"),
        ("header Location /c/{a}/{b}", "one placeholder"),
        ("header Location /c?id={id*}", "one placeholder"),
        ("$.url /c", "one placeholder"),
        ("$.url /c?id", "one placeholder"),
        ("$.url /c?id={a}&to={b}", "not a placeholder|one placeholder"),
        ("$.url /c/{id}?to=list", "one placeholder"),
        ("$.url /c?id={id}&to=list", "one placeholder"),
        ("$.url /c?={id}", "one placeholder"),
        ("$.url /c?id={id}/{nr}", "one placeholder"),
        ("$.a[?(@.b)]", "not supported"),
        ("$.a b", "not supported"),
    ],
)
def test_what_is_no_place_of_an_id_is_refused(text, words):
    with pytest.raises(ValueError, match=words):
        parsers.parse_id(text)


@table("text", ["http://a", "https://a.example:8443", "http://127.0.0.1:80", "http://[::1]:3000"])
def test_an_upstream_is_scheme_host_and_port(text):
    assert parsers.parse_upstream(text) == text
    assert parsers.parse_upstream(text + "/") == text


@table(
    "text",
    [
        "a:80", "ftp://a", "http://", "http://a:0", "http://a:99999", "http://a:x", "http://[::1",
        "http://a/b", "http://a?b", "http://a#b", "http://s3cret@a", "http://:s3cret@a",
    ],
)  # fmt: skip
def test_what_is_no_upstream_is_refused_without_repeating_it(text):
    with pytest.raises(ValueError, match="http://host:port") as caught:
        parsers.parse_upstream(text)
    assert "s3cret" not in str(caught.value)


@table(
    ("text", "host"),
    [("A.example.", "a.example"), ("a_b", "a_b"), ("127.0.0.1", "127.0.0.1"), ("[::1]", "[::1]")],
)
def test_a_host_is_a_name_in_lower_case(text, host):
    assert parsers.parse_host(text) == host


@table("text", ["a:80", "http://a", "a/b", "*.a", "å.example", "a b", ""])
def test_what_is_no_host_is_refused(text):
    with pytest.raises(ValueError, match=r"host|whole"):
        parsers.parse_host(text)


def test_a_prefix_is_a_plain_path_without_final_slash():
    assert parsers.parse_prefix("/crm/") == "/crm"
    assert parsers.parse_prefix("/a//b") == "/a/b"
    for text in ("/", "/{x}", "crm"):
        with pytest.raises(ValueError, match=r"prefix|begins"):
            parsers.parse_prefix(text)


def test_a_selector_begins_at_the_root():
    assert parsers.parse_selector("$.a['b c']") == ("a", "b c")
    for text, words in (("a", r"write \$\.a"), ("a.b", "begins with"), ("@.a", "begins with")):
        with pytest.raises(ValueError, match=words):
            parsers.parse_selector(text)


# ---- units


@table(
    ("text", "size"),
    [
        ("2MiB", 2 * 1024 * 1024),
        ("512KiB", 512 * 1024),
        ("1 GiB", 1024**3),
        ("5MB", 5_000_000),
        ("7B", 7),
        ("123", 123),
    ],
)
def test_sizes_are_bytes(text, size):
    assert read_form(SIZE_IN_BYTES, text) == (size, [])


@table("text", ["0", "-1", "2M", "2 mib", "1.5MiB", "0B", "[1]", "1e3"])
def test_what_is_no_size_is_refused(text):
    value, faults = read_form(SIZE_IN_BYTES, text)
    assert value is None
    assert "2MiB" in faults[0]


@table(
    ("text", "milliseconds"),
    [
        ("1s", 1000),
        ("2m", 120_000),
        ("12h", 43_200_000),
        ("90d", 7_776_000_000),
        ("1w", 604_800_000),
        ("7y", 7 * 365 * 86_400_000),
    ],
)
def test_durations_are_milliseconds(text, milliseconds):
    assert read_form(DURATION, text) == (milliseconds, [])


@table("text", ["0d", "7", "1M", "-1d", "{a: b}", "1d2h"])
def test_what_is_no_duration_is_refused(text):
    value, faults = read_form(DURATION, text)
    assert value is None
    assert "7y" in faults[0]


def test_a_status_is_a_number_within_bounds_or_the_word():
    assert read_form(status(400, 599), "503") == (503, [])
    assert read_form(status(400, 599, "tokens"), "tokens") == ("tokens", [])
    assert read_form(status(400, 599), "tokens")[1] == [
        "f:1:1: this must be an HTTP status from 400 to 599"
    ]
    assert read_form(status(400, 599), '"503"')[0] is None
    assert read_form(status(400, 599), "600")[0] is None


def test_labels_and_schemas_name_the_bounds():
    assert status(400, 599, "tokens").label == "`tokens` or status from 400 to 599"
    assert {"const": "tokens"} in status(400, 599, "tokens").schema()["anyOf"]
    assert status(1, 2).schema() == {"type": "integer", "minimum": 1, "maximum": 2}
    assert DURATION.schema()["pattern"].startswith("^")
    assert SIZE_IN_BYTES.schema()["anyOf"][1] == {"type": "integer", "minimum": 1}
