from proxy.storage.changes import Attach, Remove
from proxy.storage.memory_table import Table
from proxy.storage.rows import File
from tests.support.rows import LAYOUT, h, insert


def test_a_copy_is_a_snapshot_and_tells_only_what_it_let_go_itself() -> None:
    table = Table(LAYOUT)
    table.apply(insert(1, hashes=(h("a"),)))
    table.apply(Attach(File(h("f"), 1, h("n"), "object", 1, 1, 1, b"")))
    copy = table.copy()
    copy.apply(Remove(1))
    assert (copy.rows, copy.files, copy.tokens, copy.doomed) == ({}, {}, {}, ["object"])
    assert (set(table.rows), set(table.files)) == ({1}, {h("f")})
    assert table.doomed == []
    assert copy.copy().doomed == []
