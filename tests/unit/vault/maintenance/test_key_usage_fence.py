import pytest

from proxy.crypto.aead import sealed_prefix
from proxy.storage.changes import (
    AddVersion,
    Attach,
    Bind,
    Conflict,
    Insert,
    Remember,
    Remove,
    Replace,
    ReplaceCiphertext,
    SealedPart,
    StageRow,
    UpdateFile,
)
from proxy.storage.memory import MemoryStore
from proxy.storage.rows import File, Past, Row, RowState, Staged, StagedKind, StoredReply
from proxy.vault.maintenance.key_usage import Fence, fence_of

OLD, NEW = "0a0b0c0d", "01020304"


def body(key: str) -> bytes:
    return sealed_prefix(key) + b"nonce and the rest"


def changes(key: str, sealed: bytes | None = None):
    """Every change that brings something sealed, one by one."""
    sealed = sealed or body(key)
    row = Row(1, None, None, RowState.PENDING, 1, 0, 0, None, b"", sealed)
    other = row._replace(body=body(NEW), key_sealed=sealed)
    file = File(b"", 1, b"", "", 0, 0, 0, sealed)
    return [
        Insert(row),
        Insert(other),
        Replace(row, 1),
        Bind(1, b"", sealed, 0),
        StageRow(Staged(1, 1, StagedKind.UPDATE, 0, None, False, sealed)),
        AddVersion(Past(1, 1, b"", 0, b"", sealed)),
        Attach(file),
        UpdateFile(file, 1),
        Remember(StoredReply(b"", 0, b"", bytes(16) + sealed), 0),
        ReplaceCiphertext(SealedPart.ROW, (1,), (b"", None), (body(NEW), sealed)),
    ]


@pytest.mark.parametrize("change", changes(OLD), ids=lambda change: type(change).__name__)
def test_whatever_brings_bytes_of_a_key_is_noticed_while_it_is_watched_and_refused_once_it_is_gone(
    change,
):
    fence = Fence()
    fence([change])
    assert not fence.seen(OLD)
    fence.watch([OLD])
    fence([Remove(1), change])
    assert (fence.seen(OLD), fence.seen(NEW)) == (True, False)
    fence.watch([OLD])
    assert not fence.seen(OLD)
    fence.ease([OLD])
    fence([change])
    assert not fence.seen(OLD)
    fence.refuse([OLD])
    with pytest.raises(Conflict) as caught:
        fence([Remove(1), change])
    assert caught.value.change is change


def test_what_the_key_of_now_has_sealed_is_nobodys_business():
    fence = Fence()
    fence.watch([OLD])
    fence.refuse([OLD])
    fence([*changes(NEW), Remove(1)])
    assert not fence.seen(OLD)


def test_a_store_has_one_fence_which_is_there_when_it_is_needed():
    store = MemoryStore()
    assert store.guard is None
    assert fence_of(store) is fence_of(store) is store.guard
