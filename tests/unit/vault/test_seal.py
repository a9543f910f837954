from typing import Any

import pytest

from proxy.crypto.keyset import Keyset
from proxy.errors import Code, VaultError
from proxy.storage.rows import File, Past, Row, RowState, Staged, StagedKind
from proxy.vault.body import RecordBody, TokenizedValue, pack
from proxy.vault.proxied.staging import stage_creates
from proxy.vault.seal import Sealer, Tampered
from tests.support.table import table
from tests.support.vaults import draft, make_bench

CONTENT = RecordBody({"name": (TokenizedValue(1, "Zorbina", False, "t1", False),)}, 2)
ONE, TWO = RecordBody(fields={"name": "one"}, at=1), RecordBody(fields={"name": "two"}, at=2)


def sealer(keyset: Keyset, schema: str = "person") -> Sealer:
    return Sealer(keyset.aead(), keyset.environment, schema)


def row(made: Sealer, rid: int = 7, version: int = 1) -> Row:
    salt = made.new_salt()
    key = made.record(rid, salt).key("17", 0)
    bare = Row(rid, b"k" * 16, key, RowState.LIVE, version, 0, 0, None, salt, b"")
    return made.with_body(bare, CONTENT)


def test_open_gives_back_what_was_sealed_and_the_row_shows_nothing() -> None:
    made = sealer(Keyset.create("test"))
    sealed = row(made)
    assert made.open(sealed) == CONTENT
    assert made.open_key(sealed) == "17"
    assert b"Zorbina" not in sealed.body
    assert made.open_key(sealed._replace(key_sealed=None)) is None


@table(
    "change",
    [
        lambda sealed: sealed._replace(rid=8),
        lambda sealed: sealed._replace(version=2),
        lambda sealed: sealed._replace(salt=b"\x00" * 16),
        lambda sealed: sealed._replace(body=sealed.body[:-1]),
        lambda sealed: sealed._replace(body=sealed.key_sealed),
    ],
)
def test_a_body_that_was_moved_or_changed_does_not_open(change: object) -> None:
    made = sealer(Keyset.create("test"))
    with pytest.raises(VaultError) as caught:
        made.open(change(row(made)))  # type: ignore[operator]  # a function of the table above
    assert caught.value.code is Code.CANNOT_OPEN


def test_another_schema_environment_or_keyset_does_not_open_it() -> None:
    keyset = Keyset.create("test")
    sealed = row(sealer(keyset))
    for other in (
        sealer(keyset, "other"),
        Sealer(keyset.aead(), "elsewhere", "person"),
        sealer(Keyset.create("test")),
    ):
        with pytest.raises(VaultError):
            other.open(sealed)


def test_a_staged_body_opens_as_staged_alone() -> None:
    made = sealer(Keyset.create("test"))
    sealed = row(made)
    change = Staged(3, 7, StagedKind.UPDATE, 0, None, False, b"")
    staged = made.record(7, sealed.salt).staged(change, CONTENT)
    assert made.open_staged(staged, sealed.salt) == CONTENT
    with pytest.raises(VaultError):
        made.open(sealed._replace(body=staged.body, version=3))
    with pytest.raises(VaultError):
        made.open_staged(staged._replace(sid=4), sealed.salt)
    packed, record = made.stage(change, sealed.salt, pack(CONTENT))
    assert packed[:-1] == change[:-1]
    assert made.open_staged(packed, sealed.salt) == CONTENT
    binding = made.columns.bind(0, 0, None, ())
    following = sealed._replace(version=2, body=record.body(CONTENT, 2, binding))
    assert made.open(following) == CONTENT
    with pytest.raises(VaultError):
        made.open_staged(packed._replace(sid=4), sealed.salt)


def test_bodies_that_are_made_together_open_as_first_versions_of_their_own_records() -> None:
    made = sealer(Keyset.create("test"))
    rows = [
        Row(rid, b"k" * 16, None, RowState.LIVE, 1, 0, 0, None, salt, body)
        for rid, (salt, body) in zip(
            (7, 8),
            made.new_bodies((7, 8), (ONE, TWO), [made.columns.bind(0, 0, None, ())] * 2),
            strict=True,
        )
    ]
    assert [made.open(row) for row in rows] == [ONE, TWO]
    for other in (
        rows[0]._replace(rid=8),
        rows[0]._replace(version=2),
        rows[0]._replace(salt=rows[1].salt),
    ):
        with pytest.raises(VaultError):
            made.open(other)


def test_what_is_sealed_anew_says_the_same_in_the_same_place_and_what_is_current_stays():
    keyset = Keyset.create("test")
    made = Sealer(keyset.aead(), "test", "person")
    salt = made.new_salt()
    record = made.record(7, salt)
    bare = Row(7, b"k", record.key("name", 0), RowState.LIVE, 3, 0, 0, None, salt, b"")
    held = made.with_body(bare, ONE)
    past = Past(7, 2, b"k", 0, salt, made.past_body(bare, TWO, 2))
    change = Staged(9, 7, StagedKind.UPDATE, 0, None, False, b"")
    staged = record.staged(change, RecordBody({}))
    file = record.file(b"known", File(b"f" * 16, 7, b"n", "object", 1, 0, 0, b""))
    assert made.row_again(held) == (held.body, held.key_sealed)
    keyset.adopt(keyset.rotated())
    body, key = made.row_again(held)
    again = held._replace(body=body, key_sealed=key)
    assert (made.open(again), made.open_key(again)) == (ONE, "name")
    assert made.open(past._replace(body=made.past_again(past))) == TWO
    assert made.open_staged(
        staged._replace(body=made.staged_again(staged, salt)), salt
    ) == RecordBody({})
    assert made.open_file(file._replace(sealed=made.file_again(file, salt)), salt) == b"known"
    for sealed in (
        body,
        key or b"",
        made.past_again(past),
        made.staged_again(staged, salt),
        made.file_again(file, salt),
    ):
        assert made.current(sealed)
    assert made.row_again(again._replace(key_sealed=None))[1] is None
    with pytest.raises(VaultError):
        made.row_again(held._replace(version=4))


@table("name", ["version", "expires_at", "created_at", "updated_at"])
async def test_a_text_in_the_place_of_a_number_is_no_record(name: str) -> None:
    """A column of SQLite holds what somebody wrote to it, whatever its type."""
    bench = await make_bench()
    (made,) = await stage_creates(bench.people, [draft(name="Ann")], [None])
    (row,) = (await bench.store.rows(bench.people.table, [made.rid])).values()
    columns: dict[str, Any] = {name: "red"}
    changed = row._replace(**columns)
    assert bench.people.alive(changed)
    with pytest.raises(Tampered):
        bench.people.sealer.open_with_key(changed)
