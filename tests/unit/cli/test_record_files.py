import io
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.cli.record_files import FORMATS, FileRecord, open_sealed_file, seal, sealed_file_head
from proxy.crypto.stream import StreamAead
from proxy.errors import Code, VaultError
from tests.support.table import table

TYPES = {
    "id": "primary_key", "age": "integer", "sum": "decimal", "paid": "boolean", "extra": "json",
    "note": "string",
}  # fmt: skip

RECORDS = st.lists(
    st.fixed_dictionaries(
        {"id": st.text(min_size=1)},
        optional={
            "age": st.integers(-(2**63), 2**63 - 1),
            "sum": st.decimals(-(10**9), 10**9, places=4),
            "paid": st.booleans(),
            "extra": st.dictionaries(st.text(), st.integers(0, 9) | st.text() | st.booleans()),
            "note": st.text(min_size=1),
        },
    ),
    max_size=5,
)


def read(kind: str, text: str) -> list[FileRecord]:
    return list(FORMATS[kind].read(io.StringIO(text, newline=""), TYPES))


@pytest.mark.parametrize("kind", FORMATS)
@given(records=RECORDS)
def test_what_is_written_is_read_again(kind, records):
    text = "".join(FORMATS[kind].write(records, TYPES))
    assert [entry.record for entry in read(kind, text)] == records


def test_a_line_that_is_no_record_is_told_and_the_next_one_read():
    found = read(
        "jsonl", '{"id": "1"}\n\n[1]\n{"id"\n{"id": "2", "sum": 0.10}\n[1e9999999999999999999]\n'
    )
    assert found == [
        FileRecord(1, {"id": "1"}),
        FileRecord(3, None, "this line is not a JSON object", "[1]"),
        FileRecord(4, None, "this line is not JSON", '{"id"'),
        FileRecord(5, {"id": "2", "sum": Decimal("0.10")}),
        FileRecord(6, None, "this line is not JSON", "[1e9999999999999999999]"),
    ]


@table(
    ("line", "fault", "unread"),
    [
        ("a,x,,,,", "the cell of age is no integer", {"id": "a", "age": "x"}),
        ("a,,x,,,", "the cell of sum is no decimal", {"id": "a", "sum": "x"}),
        ("a,,,yes,,", "the cell of paid is no boolean", {"id": "a", "paid": "yes"}),
        ("a,,,,{,", "the cell of extra is no json", {"id": "a", "extra": "{"}),
        ("a,1", "this line has 2 cells where the first one has 6", "a,1"),
        (
            'a,"b"c,,,,',
            "this line is not CSV: a quotation mark is out of place, or a cell is too long",
            'a,"b"c,,,,',
        ),
    ],
)
def test_a_cell_that_is_no_value_is_told_without_it_and_kept_beside(line, fault, unread):
    found = read("csv", ",".join(TYPES) + "\r\n" + line + "\r\nb,2,,,,\r\n")
    assert found == [FileRecord(2, None, fault, unread), FileRecord(3, {"id": "b", "age": 2})]


@table("head", ["", "a,,b\n", "a,a\n"])
def test_a_table_needs_a_head(head):
    with pytest.raises(ValueError, match="names the fields"):
        read("csv", head)


def test_a_cell_may_have_lines_of_its_own_and_a_mark_at_the_beginning_is_none_of_a_name():
    found = read("csv", '\ufeffid,note\r\n1,"a\nb"\r\n2,c\r\n')
    assert found == [
        FileRecord(2, {"id": "1", "note": "a\nb"}),
        FileRecord(4, {"id": "2", "note": "c"}),
    ]


# ---- sealedfile


KEY = {b"keyd": b"k" * 32}
AEAD = StreamAead(b"keyd", KEY)
TEXT = ["Ann Ekelund-Quibblethwaite\n" * 7, "", "Bo\n" * 50_000, "ä"]


def written(tmp_path: Path, aead: StreamAead = AEAD) -> Path:
    file = tmp_path / "export"
    file.write_bytes(b"".join(seal(TEXT, "contact", "jsonl", aead)))
    return file


def unsealed(file: Path, aead: StreamAead = AEAD) -> str:
    head = sealed_file_head(file)
    assert head is not None
    with io.TextIOWrapper(
        io.BufferedReader(open_sealed_file(file, head, aead)), "utf-8", newline=""
    ) as text:
        return text.read()


def test_what_was_sealed_is_read_and_nothing_of_it_stands_in_the_file(tmp_path):
    file = written(tmp_path)
    assert unsealed(file) == "".join(TEXT)
    assert b"Ekelund-Quibblethwaite" not in file.read_bytes()


def test_the_first_line_tells_what_it_is(tmp_path):
    head = sealed_file_head(written(tmp_path))
    assert head is not None
    assert (head.schema, head.format) == ("contact", "jsonl")


@pytest.mark.parametrize(
    "content", [b"", b'{"id": 1}\n', b"id,name\n", b"\xff\n", b'{"domicile": "x"}\n']
)
def test_other_files_are_told_apart(tmp_path, content):
    (tmp_path / "other").write_bytes(content)
    assert sealed_file_head(tmp_path / "other") is None


def test_a_newer_version_is_refused(tmp_path):
    file = written(tmp_path)
    file.write_bytes(file.read_bytes().replace(b'"version":1', b'"version":2', 1))
    with pytest.raises(VaultError) as caught:
        sealed_file_head(file)
    assert caught.value.code is Code.BAD_SETTINGS


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content[:-1],
        lambda content: content[: -len(content) // 2],
        lambda content: content + b"x",
        lambda content: content.replace(b"contact", b"contract", 1),
        lambda content: content[:-40] + bytes((content[-40] ^ 1,)) + content[-39:],
    ],
)
def test_a_file_that_was_changed_does_not_open(tmp_path, change):
    file = written(tmp_path)
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(VaultError) as caught:
        unsealed(file)
    assert caught.value.code is Code.CANNOT_OPEN


def test_other_keys_do_not_open_it(tmp_path):
    with pytest.raises(VaultError):
        unsealed(written(tmp_path), StreamAead(b"keyd", {b"keyd": b"o" * 32}))
