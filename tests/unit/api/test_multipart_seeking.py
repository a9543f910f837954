import ctypes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.api import multipart
from proxy.api.multipart import find_mark

FEW = st.text("\r\n-b\0", max_size=80).map(str.encode)


@pytest.mark.parametrize("library", [True, False], ids=["library", "without"])
@given(
    mark=FEW.filter(bool),
    content=st.lists(FEW, max_size=4).map(b"".join),
    filling=st.integers(0, 3000),
)
def test_a_mark_is_found_where_it_stands_first(library, mark, content, filling):
    inside = content + bytes(filling) + content
    with pytest.MonkeyPatch.context() as patched:
        if not library:
            patched.setattr(multipart, "_memmem", None)
        assert find_mark(mark, inside) == inside.find(mark)


def test_this_library_has_the_call_and_answers_for_the_bytes_alone():
    assert multipart._memmem is not None, "the images are made with the GNU C library"
    inside = b"\0" * 5000 + b"\r\n--b"
    assert find_mark(b"\r\n--b", inside) == 5000
    assert find_mark(b"\r\n--bc", inside) == -1


def test_a_library_without_the_call_is_done_without(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    assert multipart._searcher() is None
