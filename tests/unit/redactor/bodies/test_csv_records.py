import csv

from proxy.model.schema import Value
from proxy.redactor.bodies.csv_records import CsvRecords, charset
from tests.support.table import table

COLUMNS = {"Name": "name", "mail": "email"}


def restored(
    text: bytes, values: dict[str, str], size: int = 1 << 20, codec: str = "utf-8"
) -> bytes:
    """The file with values for tokens, fed in pieces of that size."""
    records = CsvRecords(COLUMNS, "ID", codec, 1000)
    slices = [records.feed(text[at : at + size]) for at in range(0, len(text), size)]
    out = b""
    for some in (*slices, records.end()):
        texts = [[spot.value.text for spot in item.spots if spot.value] for item in some.items]
        rows = [[Value(values[one]) if one in values else None for one in row] for row in texts]
        out += records.written(some, rows)[0]
    return out


FILES = [
    b"ID,Name,mail,made\n1,tok,mai,2020-01-01\n",
    b"\xef\xbb\xbfID;Name;mail\r\n1;tok;mai\r\n2;tok;none\r\n",
    b'"ID"\t"Name"\t"mail"\r1\t"tok"\tmai\r',
    b"mail|x\nmai|tok",
    b'Name,note\n"tok","a ""b"", tok\nc"\n\ntok,"open',
    b"Name,mail\n'tok,\"'mai\"\n",
    b'Name,mail\n="tok",mai\n"tok" ,tok"\n',
]


@table("text", FILES)
@table("size", [1, 2, 7, 1 << 20])
def test_every_byte_but_the_tokens_stays_however_the_file_arrives(text, size):
    same = {"tok": "tok", "mai": "mai"}
    assert restored(text, {}, size) == text
    assert restored(text, same, size) == text
    assert restored(text, {"tok": "Ann", "mai": "a@b"}, size) == restored(
        text, {"tok": "Ann", "mai": "a@b"}
    )


@table(
    ("text", "wanted"),
    [
        (FILES[0], 'ID,Name,mail,made\n1,"Ann, ""A""\nB",=x,2020-01-01\n'),
        (FILES[1], '\ufeffID;Name;mail\r\n1;"Ann, ""A""\nB";=x\r\n2;"Ann, ""A""\nB";none\r\n'),
        (FILES[2], '"ID"\t"Name"\t"mail"\r1\t"Ann, ""A""\nB"\t=x\r'),
        (FILES[3], "mail|x\n=x|tok"),
        (FILES[4], 'Name,note\n"Ann, ""A""\nB","a ""b"", tok\nc"\n\n"Ann, ""A""\nB","open'),
        (FILES[5], 'Name,mail\n"\'Ann, ""A""\nB","\'=x"\n'),
    ],
)
def test_values_are_written_as_the_cells_of_the_file(text, wanted):
    assert restored(text, {"tok": 'Ann, "A"\nB', "mai": "=x"}).decode() == wanted


def test_ids_stand_in_their_column():
    records = CsvRecords(COLUMNS, "ID", "utf-8", 1000)
    some = records.feed(b"Name,ID\ntok,17\ntok,\n")
    assert [item.id for item in some.items] == ["17", None]


def test_a_value_that_the_charset_of_the_file_cannot_hold_keeps_its_token():
    text = b"Name\ntok\nmai\n"
    assert restored(text, {"tok": "\u0394", "mai": "\xe5"}, codec="cp1252") == b"Name\ntok\n\xe5\n"


@table("text", [b"a,b\n1,2\n", b"Name", b'Name\n"' + b"x" * 2000 + b"\ntok\n"])
def test_a_file_that_cannot_be_read_passes_and_says_so(text):
    records = CsvRecords(COLUMNS, "", "utf-8", 1000)
    out = records.feed(text[:500]).raw + records.feed(text[500:]).raw
    last = records.end()
    assert out + last.raw == text
    assert records.unread
    assert last.items == ()


@table(
    ("declared", "codec"),
    [
        (b"text/csv", "utf-8"),
        (b'Text/CSV; header=present; charset="UTF-8"', "utf-8"),
        (b"application/csv;charset=iso-8859-1", "cp1252"),
        (b"text/csv; charset=utf-16", None),
        (b"text/html", None),
    ],
)
def test_the_charset_is_that_of_the_type(declared, codec):
    assert charset(((b"content-type", declared),)) == codec


@table(
    ("value", "wanted"),
    [
        ("=HYPERLINK(1)", "'=HYPERLINK(1)"),
        ("+1+cmd|' /C calc'!A0", "'+1+cmd|' /C calc'!A0"),
        ("-2-3", "'-2-3"),
        ("@SUM(1)", "'@SUM(1)"),
        ("\t=1", "'\t=1"),
        ("\uff1d1", "'\uff1d1"),
        ("+46 70 123 45 67", "+46 70 123 45 67"),
        ("-12,5", "-12,5"),
        ("Ann=", "Ann="),
    ],
)
def test_values_that_a_spreadsheet_would_compute_are_escaped_where_the_rule_says_so(value, wanted):
    text = b"Name\ntok\n'tok\n"
    for escapes in (True, False):
        records = CsvRecords(COLUMNS, "", "utf-8", 1000, escapes_formulas=escapes)
        some = records.feed(text)
        rows = list(
            csv.reader(records.written(some, [[Value(value)]] * 2)[0].decode().splitlines())
        )
        assert rows[1:] == [[wanted if escapes else value], [f"'{value}"]]
