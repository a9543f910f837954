from proxy.model.record import (
    DEFAULT,
    IDENT,
    LONGEST_FILE_NAME,
    UNKNOWN_TYPE,
    fault_of_filename,
    fault_of_mime_type,
    same_name,
)
from tests.support.table import table


@table(
    "name",
    ["a", "x" * LONGEST_FILE_NAME, "Örebro 2026.tar.gz", "...", "a:b", "-rf", "😀", " ", "%41"],
)
def test_what_a_file_may_be_called(name):
    assert fault_of_filename(name) is None


@table(
    ("name", "text"),
    [
        ("", "1 to 255"),
        ("x" * (LONGEST_FILE_NAME + 1), "1 to 255"),
        ("a/b", "path"),
        ("..\\b", "path"),
        (".", "path"),
        ("..", "path"),
        ("a\x00", "control"),
        ("a\nb", "control"),
        ("\x7f", "control"),
        ("a\x85", "control"),
        ("\ud800", "halves"),
    ],
)
def test_what_it_may_not(name, text):
    fault = fault_of_filename(name)
    assert fault is not None
    assert text in fault


@table(
    "text",
    [
        UNKNOWN_TYPE, "text/plain; charset=utf-8", 'a/b;c="d e";f=g', "application/vnd.x+json",
        "image/svg+xml",
    ],
)  # fmt: skip
def test_types_as_they_are_written(text):
    assert fault_of_mime_type(text) is None


@table(
    "text",
    [
        "", "text", "text/", "/plain", "te xt/plain", "text/plain;", "a/b;c", "a/b\r\nX: y",
        "a/" + "b" * 255, "ä/b",
    ],
)  # fmt: skip
def test_types_that_are_none(text):
    fault = fault_of_mime_type(text)
    assert fault is not None
    assert "RFC 9110" in fault


def test_two_spellings_of_a_letter_are_one_name_and_letter_case_is_not():
    assert same_name("é") == same_name("e\u0301")
    assert same_name("a") != same_name("A")


@table("ident", [DEFAULT, "a", "acme2", "e" * 32])
def test_ids_are_lower_case_letters_and_digits(ident):
    assert IDENT.fullmatch(ident)


@table("ident", ["", "2acme", "Acme", "ac_me", "ac-me", "ac:me", "é", "٢", "e" * 33, "acme\n"])
def test_nothing_else_becomes_part_of_the_name_of_a_table(ident):
    assert not IDENT.fullmatch(ident)
