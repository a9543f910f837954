import base64
import json
import os

import pytest

from proxy.crypto.keyset import Keyset
from proxy.crypto.sources import SOURCES, KeySource, open_source
from proxy.errors import Code, VaultError

GOOD = base64.b64encode(bytes(range(32))).decode()


def refuse(code: Code, act, *given) -> str:
    with pytest.raises(VaultError) as caught:
        act(*given)
    assert caught.value.code is code
    assert GOOD not in caught.value.message
    return caught.value.message


@pytest.fixture(params=SOURCES)
def filled(request, tmp_path, monkeypatch) -> KeySource:
    """A source of each scheme that holds a key."""
    if request.param == "env":
        monkeypatch.setenv("DOMICILE_TEST_KEY", GOOD + "\n")
        return open_source("env:DOMICILE_TEST_KEY")
    assert request.param == "file", "teach this fixture the new source"
    source = open_source(f"file://{tmp_path}/keys.json")
    source.create()
    return source


@pytest.fixture
def file_source(tmp_path):
    return open_source(f"file://{tmp_path}/keys.json")


def write(path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o600)


def test_every_source_gives_the_same_working_key_each_time(filled):
    assert filled.exists()
    one, other = filled.load(), filled.load()
    assert one.id == other.id
    assert Keyset.unwrap(Keyset.create("test").wrap(one), other).environment == "test"


def test_no_source_overwrites_a_key(filled):
    before = filled.load().id
    refuse(Code.BAD_KEYS, filled.create)
    assert filled.load().id == before


def test_a_created_key_file_reads_back_and_is_what_the_docstring_says(file_source, tmp_path):
    assert not file_source.exists()
    made = file_source.create()
    assert file_source.exists()
    assert file_source.load().id == made.id
    content = json.loads((tmp_path / "keys.json").read_text())
    assert content["format"] == 1
    assert content["id"] == made.id
    assert len(base64.b64decode(content["key"])) == 32


def test_two_created_keys_differ(tmp_path):
    assert open_source(f"file://{tmp_path}/a").create().id != open_source(f"file://{tmp_path}/b").create().id


def test_a_folder_with_a_space_in_its_name_is_spelled_as_a_uri(tmp_path):
    (tmp_path / "a b").mkdir()
    open_source(f"file://{tmp_path}/a%20b/keys.json").create()
    assert (tmp_path / "a b" / "keys.json").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not JSON",
        b"[]",
        b"5",
        b"{}",
        b'{"format": 1, "id": "x", "key": 5}',
        b'{"format": 1, "id": "x", "key": "AAAA"}',
        b'{"format": 1, "id": "x", "key": "%s"}' % GOOD.encode(),
        b'{"format": 1, "key": "%s"}' % GOOD.encode(),
        b"\xff\xfe",
    ],
)
def test_a_damaged_key_file_is_refused_without_showing_what_is_in_it(file_source, tmp_path, content):
    write(tmp_path / "keys.json", content)
    assert "damaged" in refuse(Code.BAD_KEYS, file_source.load)


def test_a_file_of_a_newer_format_says_so(file_source, tmp_path):
    write(tmp_path / "keys.json", b'{"format": 2, "key": "other"}')
    assert "newer version" in refuse(Code.BAD_KEYS, file_source.load)


def test_a_key_that_does_not_read_back_is_noticed(file_source, tmp_path, monkeypatch):
    other = open_source(f"file://{tmp_path}/other.json")
    other.create()
    monkeypatch.setattr(file_source, "load", other.load)
    assert "read back" in refuse(Code.NOT_WRITABLE, file_source.create)


@pytest.mark.parametrize("value", [None, "", "short", GOOD[:-4], "!" * 44, base64.b64encode(bytes(32)).decode()])
def test_a_variable_without_a_random_key_says_how_to_make_one(monkeypatch, value):
    if value is None:
        monkeypatch.delenv("DOMICILE_TEST_KEY", raising=False)
    else:
        monkeypatch.setenv("DOMICILE_TEST_KEY", value)
    source = open_source("env:DOMICILE_TEST_KEY")
    assert "head -c 32 /dev/urandom | base64" in refuse(Code.BAD_KEYS, source.load)
    assert source.exists() == bool(value)


def test_a_key_is_not_made_in_a_variable(monkeypatch):
    monkeypatch.delenv("DOMICILE_TEST_KEY", raising=False)
    assert "DOMICILE_TEST_KEY" in refuse(Code.BAD_KEYS, open_source("env:DOMICILE_TEST_KEY").create)
    assert "DOMICILE_TEST_KEY" not in os.environ


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "keys.json",
        "aws-kms://key",
        "file:keys.json",
        "file://keys.json",
        "file:///a?b",
        "file:///a#b",
        "env:",
        "env:a-b",
    ],
)
def test_a_setting_that_is_no_source_says_what_to_write(uri):
    message = refuse(Code.BAD_KEYS, open_source, uri)
    assert "`keys` must" in message
