import pytest

from proxy.errors import Code, VaultError
from proxy.storage import open_store
from proxy.storage.sqlite.file import peek


async def test_notes_are_read_beside_the_process_that_owns_the_database(tmp_path):
    path = tmp_path / "vault.db"
    store = await open_store(f"sqlite:///{path}")
    await store.put_note("one", b"1", None)
    assert peek(path, ("one", "two")) == {"one": b"1"}
    await store.put_note("two", b"2", None)
    assert peek(path, ("one", "two")) == {"one": b"1", "two": b"2"}
    await store.close()


def test_what_is_no_database_is_told(tmp_path):
    (tmp_path / "vault.db").write_bytes(b"x" * 5000)
    for path in (tmp_path / "vault.db", tmp_path / "none.db"):
        with pytest.raises(VaultError) as raised:
            peek(path, ("one",))
        assert raised.value.code is Code.BAD_STORE
