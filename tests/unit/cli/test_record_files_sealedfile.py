import io
from pathlib import Path

import pytest

from proxy.cli.record_files import open_sealed_file, seal, sealed_file_head
from proxy.crypto.stream import StreamAead
from proxy.errors import Code, VaultError

KEY = {b"keyd": b"k" * 32}
AEAD = StreamAead(b"keyd", KEY)
TEXT = ["Ann Ekelund-Quibblethwaite\n" * 7, "", "Bo\n" * 50_000, "ä"]


def written(tmp_path: Path, aead: StreamAead = AEAD) -> Path:
    file = tmp_path / "export"
    file.write_bytes(b"".join(seal(TEXT, "contact", "jsonl", aead)))
    return file


def read(file: Path, aead: StreamAead = AEAD) -> str:
    head = sealed_file_head(file)
    assert head is not None
    with io.TextIOWrapper(
        io.BufferedReader(open_sealed_file(file, head, aead)), "utf-8", newline=""
    ) as text:
        return text.read()


def test_what_was_sealed_is_read_and_nothing_of_it_stands_in_the_file(tmp_path):
    file = written(tmp_path)
    assert read(file) == "".join(TEXT)
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
        read(file)
    assert caught.value.code is Code.CANNOT_OPEN


def test_other_keys_do_not_open_it(tmp_path):
    with pytest.raises(VaultError):
        read(written(tmp_path), StreamAead(b"keyd", {b"keyd": b"o" * 32}))
