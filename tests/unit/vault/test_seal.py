import pytest

from proxy.crypto.keyset import Keyset
from proxy.errors import Code, VaultError
from proxy.storage.rows import Row, Staged, StagedKind, State
from proxy.vault.content import Content, Kept
from proxy.vault.seal import Sealer

CONTENT = Content({"name": (Kept(1, "Zorbina", False, "t1", False),)}, 2)


def sealer(keyset: Keyset, schema: str = "person") -> Sealer:
    return Sealer(keyset.aead(), keyset.environment, schema)


def row(made: Sealer, rid: int = 7, version: int = 1) -> Row:
    salt = made.new_salt()
    record = made.record(rid, salt)
    body = record.body(CONTENT, version)
    return Row(rid, b"k" * 16, record.key("17"), State.LIVE, version, 0, 0, None, salt, body)


def test_open_gives_back_what_was_sealed_and_the_row_shows_nothing() -> None:
    made = sealer(Keyset.create("test"))
    sealed = row(made)
    assert made.open(sealed) == CONTENT
    assert made.open_key(sealed) == "17"
    assert b"Zorbina" not in sealed.body
    assert made.open_key(sealed._replace(key_sealed=None)) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda sealed: sealed._replace(rid=8),
        lambda sealed: sealed._replace(version=2),
        lambda sealed: sealed._replace(salt=b"\x00" * 16),
        lambda sealed: sealed._replace(body=sealed.body[:-1]),
        lambda sealed: sealed._replace(body=sealed.key_sealed),
    ],
    ids=["another record", "another version", "another salt", "cut", "another part of the same record"],
)
def test_a_body_that_was_moved_or_changed_does_not_open(change: object) -> None:
    made = sealer(Keyset.create("test"))
    with pytest.raises(VaultError) as caught:
        made.open(change(row(made)))  # type: ignore[operator]  # a function of the table above
    assert caught.value.code is Code.CANNOT_OPEN


def test_another_schema_environment_or_keyset_does_not_open_it() -> None:
    keyset = Keyset.create("test")
    sealed = row(sealer(keyset))
    for other in (sealer(keyset, "other"), Sealer(keyset.aead(), "elsewhere", "person"), sealer(Keyset.create("test"))):
        with pytest.raises(VaultError):
            other.open(sealed)


def test_a_staged_body_opens_as_staged_alone() -> None:
    made = sealer(Keyset.create("test"))
    sealed = row(made)
    staged = Staged(3, 7, StagedKind.UPDATE, 0, None, False, made.record(7, sealed.salt).staged_body(CONTENT, 3))
    assert made.open_staged(staged, sealed.salt) == CONTENT
    with pytest.raises(VaultError):
        made.open(sealed._replace(body=staged.body, version=3))
    with pytest.raises(VaultError):
        made.open_staged(staged._replace(sid=4), sealed.salt)


def test_bodies_that_are_made_together_open_as_first_versions_of_their_own_records() -> None:
    made = sealer(Keyset.create("test"))
    rows = [
        Row(rid, b"k" * 16, None, State.LIVE, 1, 0, 0, None, salt, body)
        for rid, (salt, body) in zip((7, 8), made.new_bodies((7, 8), [b"one", b"two"]), strict=True)
    ]
    assert [made.open_plain(row) for row in rows] == [b"one", b"two"]
    for other in (rows[0]._replace(rid=8), rows[0]._replace(version=2), rows[0]._replace(salt=rows[1].salt)):
        with pytest.raises(VaultError):
            made.open_plain(other)
