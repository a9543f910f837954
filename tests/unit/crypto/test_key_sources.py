import base64
import json
import os
import threading
from collections.abc import Iterator

import pytest

from proxy.crypto import key_sources
from proxy.crypto.key_sources import SOURCES, KeySource, open_source
from proxy.crypto.keyset import Keyset
from proxy.crypto.master_key import MasterKey
from proxy.errors import Code, VaultError
from tests.support.kms import StandIn, standing_in
from tests.support.table import table

GOOD = base64.b64encode(bytes(range(32))).decode()


def refuse(code: Code, act, *given) -> str:
    with pytest.raises(VaultError) as caught:
        act(*given)
    assert caught.value.code is code
    assert GOOD not in caught.value.message
    return caught.value.message


@pytest.fixture(params=SOURCES)
def filled(request, tmp_path, monkeypatch) -> Iterator[KeySource]:
    """A source of each scheme that holds a key."""
    if request.param == "env":
        monkeypatch.setenv("DOMICILE_TEST_KEY", GOOD + "\n")
        yield open_source("env:DOMICILE_TEST_KEY")
    elif request.param == "file":
        source = open_source(f"file://{tmp_path}/keys.json")
        source.create()
        yield source
    else:
        with standing_in(request.param, tmp_path) as service:
            for name, value in service.environment().items():
                monkeypatch.setenv(name, value)
            source = open_source(service.address(tmp_path / "keys.json"))
            source.create()
            yield source


@pytest.fixture
def service(tmp_path, monkeypatch) -> Iterator[StandIn]:
    """A key service that is quickly asked."""
    with standing_in("hashicorp-vault", tmp_path) as started:
        for name, value in started.environment().items():
            monkeypatch.setenv(name, value)
        yield started


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
    assert (
        open_source(f"file://{tmp_path}/a").create().id
        != open_source(f"file://{tmp_path}/b").create().id
    )


def test_a_folder_with_a_space_in_its_name_is_spelled_as_a_uri(tmp_path):
    (tmp_path / "a b").mkdir()
    open_source(f"file://{tmp_path}/a%20b/keys.json").create()
    assert (tmp_path / "a b" / "keys.json").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"", b"not JSON", b"[]", b"5", b"{}", b'{"format": 1, "id": "x", "key": 5}',
        b'{"format": 1, "id": "x", "key": "AAAA"}',
        b'{"format": 1, "id": "x", "key": "%s"}' % GOOD.encode(),
        b'{"format": 1, "key": "%s"}' % GOOD.encode(), b"\xff\xfe",
    ],
)  # fmt: skip
def test_a_damaged_key_file_is_refused_without_showing_what_is_in_it(
    file_source, tmp_path, content
):
    write(tmp_path / "keys.json", content)
    assert "damaged" in refuse(Code.BAD_KEYS, file_source.load)


def test_a_file_of_a_newer_format_says_so(file_source, tmp_path):
    write(tmp_path / "keys.json", b'{"format": 3, "key": "other"}')
    assert "newer version" in refuse(Code.BAD_KEYS, file_source.load)


def test_a_key_that_does_not_read_back_is_noticed(file_source, tmp_path, monkeypatch):
    other = open_source(f"file://{tmp_path}/other.json")
    other.create()
    monkeypatch.setattr(file_source, "load", other.load)
    assert "read back" in refuse(Code.NOT_WRITABLE, file_source.create)


@pytest.mark.parametrize(
    "value", [None, "", "short", GOOD[:-4], "!" * 44, base64.b64encode(bytes(32)).decode()]
)
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


@table(
    "uri",
    [
        "", "keys.json", "kms://key", "file:keys.json", "file://keys.json", "file:///a?b",
        "file:///a#b", "env:", "env:a-b",
    ],
)  # fmt: skip
def test_a_setting_that_is_no_source_says_what_to_write(uri):
    message = refuse(Code.BAD_KEYS, open_source, uri)
    assert "`keys` must" in message


def test_a_staged_key_opens_what_the_present_one_wrapped_and_the_reverse_until_the_switch_and_after_it(
    tmp_path,
):
    source = open_source(f"file://{tmp_path}/keys.json")
    before = source.create()
    assert source.staged() is None
    old = before.wrap(b"old", b"c")
    staged = source.stage()
    assert source.stage().id == staged.id  # asked again after a crash
    new = staged.wrap(b"new", b"c")
    for key in (staged, source.load(), source.staged()):
        assert key is not None
        assert [key.unwrap(blob, b"c") for blob in (old, new)] == [b"old", b"new"]
    assert source.load().id == before.id
    source.switch()
    source.switch()  # once more, after a crash
    after = source.load()
    assert (after.id, source.staged()) == (staged.id, None)
    assert [after.unwrap(blob, b"c") for blob in (old, new)] == [b"old", b"new"]
    assert MasterKey.wrapper(after.wrap(b"x", b"c")) == staged.id
    with pytest.raises(VaultError):
        before.unwrap(new, b"c")


def test_files_of_older_master_keys_still_open(tmp_path):
    source = open_source(f"file://{tmp_path}/keys.json")
    before = source.create()
    salt = bytes(16)
    sealer = before.files().sealer(salt, b"c")
    sealed = sealer.finish()
    source.stage()
    source.switch()
    opened = source.load().files().opener(sealer.header, salt, b"c")
    assert opened.chunk(0, sealed, last=True) == b""


def test_a_variable_holds_older_keys_behind_the_first(monkeypatch):
    first, second = (base64.b64encode(os.urandom(32)).decode() for _ in range(2))
    monkeypatch.setenv("MASTER", first)
    source = open_source("env:MASTER")
    old = source.load().wrap(b"old", b"c")
    assert source.staged() is None
    with pytest.raises(VaultError, match="before the one in MASTER"):
        source.stage()
    source.switch()
    monkeypatch.setenv("MASTER", f"{second}  {first}\n")
    assert source.load().unwrap(old, b"c") == b"old"
    monkeypatch.setenv("MASTER", f"{second} nonsense")
    with pytest.raises(VaultError, match="32 random bytes"):
        source.load()


@pytest.mark.parametrize("name", ["older", "next"])
def test_a_damaged_key_among_the_others_is_told_before_anything_depends_on_it(tmp_path, name):
    place = tmp_path / "keys.json"
    source = open_source(f"file://{place}")
    source.create()
    broken = {"id": "0" * 16, "key": base64.b64encode(os.urandom(32)).decode()}
    content = json.loads(place.read_text())
    place.write_text(json.dumps({**content, name: broken if name == "next" else [broken]}))
    with pytest.raises(VaultError, match="damaged"):
        source.load()


# ---------------------------------------------------------------- sealed by a key service


def test_a_sealed_file_holds_no_key_and_is_what_the_docstring_says(service, tmp_path):
    source = open_source(service.address(tmp_path / "keys.json"))
    made = source.create()
    content = json.loads((tmp_path / "keys.json").read_text())
    assert set(content) == {"format", "sealed_by", "id", "sealed"}
    assert (content["format"], content["id"]) == (2, made.id)
    assert content["sealed_by"].startswith("hashicorp-vault:http://127.0.0.1:")
    text = (tmp_path / "keys.json").read_text()
    assert base64.b64encode(source.bare()[0]).decode() not in text
    assert (tmp_path / "keys.json").stat().st_mode & 0o777 == 0o600


def test_a_sealed_master_key_is_replaced_in_the_same_three_steps(service, tmp_path):
    source = open_source(service.address(tmp_path / "keys.json"))
    first = source.create()
    wrapped = Keyset.create("test").wrap(first)
    staged = source.stage()
    assert staged.id != first.id
    assert Keyset.unwrap(wrapped, source.load()).environment == "test"
    source.switch()
    key_sources._sealed_source.cache_clear()  # as another process has it
    afresh = open_source(service.address(tmp_path / "keys.json")).load()
    assert afresh.id == staged.id
    assert Keyset.unwrap(wrapped, afresh).environment == "test"


def test_keys_of_any_source_are_taken_over_and_open_the_same(filled, service, tmp_path):
    first = filled.load()
    wrapped = Keyset.create("test").wrap(first)
    target = open_source(service.address(tmp_path / "other.json"))
    assert target.rewrap(filled).id == first.id
    assert Keyset.unwrap(wrapped, target.load()).environment == "test"
    assert filled.load().id == first.id
    refuse(Code.BAD_KEYS, target.rewrap, filled)  # never overwritten


def test_a_file_is_sealed_where_it_stands_with_its_older_keys_and_opened_again(service, tmp_path):
    path = tmp_path / "keys.json"
    bare = open_source(f"file://{path}")
    old = bare.create()
    bare.stage()
    sealed = open_source(service.address(path))
    assert "about to follow" in refuse(Code.BAD_KEYS, sealed.rewrap, bare)
    bare.switch()
    present = bare.load()
    assert "rewrap --from file://" in refuse(Code.BAD_KEYS, sealed.load)
    assert sealed.rewrap(bare).id == present.id
    assert set(sealed.load().others) == {old.id}
    assert "was sealed by hashicorp-vault:" in refuse(Code.BAD_KEYS, bare.load)
    back = bare.rewrap(sealed)
    assert (back.id, set(back.others)) == (present.id, {old.id})


def test_a_file_is_sealed_anew_in_its_place(service, tmp_path):
    path = tmp_path / "keys.json"
    source = open_source(service.address(path))
    made, before = source.create(), path.read_text()
    assert source.rewrap(source).id == made.id
    assert path.read_text() != before


def test_a_file_that_another_key_has_sealed_names_both_and_asks_neither(
    service, tmp_path, monkeypatch
):
    path = tmp_path / "keys.json"
    (tmp_path / "other").mkdir()
    open_source(service.address(path)).create()
    with standing_in("aws-kms", tmp_path / "other") as other:
        for name, value in other.environment().items():
            monkeypatch.setenv(name, value)
        source, asked = open_source(other.address(path)), len(service.asked)
        message = refuse(Code.BAD_KEYS, source.load)
        assert "was sealed by hashicorp-vault:http" in message
        assert "names aws-kms:arn:" in message
        assert (len(service.asked), other.asked) == (asked, [])
        source.rewrap(open_source(service.address(path)))
        assert source.load().id == open_source(other.address(path)).load().id


def test_a_service_that_refuses_leaves_the_file_as_it_was(service, tmp_path):
    path = tmp_path / "keys.json"
    source = open_source(f"file://{path}")
    source.create()
    before, service.fault = path.read_bytes(), "denied"
    sealed = open_source(service.address(path))
    assert "grant it" in refuse(Code.BAD_KEYS, sealed.rewrap, source)
    assert path.read_bytes() == before
    refuse(Code.BAD_KEYS, open_source(service.address(tmp_path / "new.json")).create)
    assert not (tmp_path / "new.json").exists()


def test_two_who_change_a_key_file_at_once_do_it_one_after_the_other(service, tmp_path):
    path = tmp_path / "keys.json"
    source = open_source(service.address(path))
    first = source.create()
    refused: list[Code] = []

    def work(act) -> None:
        try:
            act()
        except VaultError as error:  # a key is about to follow
            refused.append(error.code)

    acts = [source.stage, *[lambda: source.rewrap(source)] * 3]
    threads = [threading.Thread(target=work, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(refused) <= {Code.BAD_KEYS}
    staged = source.staged()
    assert staged is not None
    source.switch()
    assert set(source.load().others) == {first.id}
