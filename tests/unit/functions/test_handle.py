import io
from decimal import Decimal
from typing import Any

import pytest

from proxy.functions.handle import (
    LONGEST_FRAME,
    BrokenFrameError,
    Handle,
    NotJsonError,
    RefusedError,
    encode_frame,
    read_frame,
    size_of,
    write_frame,
)
from tests.support.table import table


def test_each_method_asks_one_operation():
    asked: list[tuple[str, Any]] = []

    def ask(operation: str, given: Any) -> Any:
        asked.append((operation, given))
        return {"data": [], "meta": {}}

    handle = Handle(ask)
    assert handle.get("contact", "c1") is None
    handle.aggregate("contact", {"metrics": {}})
    handle.create("contact", ({"id": "1"},))
    handle.update("contact", [{"id": "1"}])
    handle.delete("contact", "1")
    assert asked == [
        ("find", {"schema": "contact", "filter": {"record_key": "c1"}, "options": {"limit": 1}}),
        ("aggregate", {"schema": "contact", "request": {"metrics": {}}}),
        ("create", {"schema": "contact", "records": [{"id": "1"}]}),
        ("update", {"schema": "contact", "records": [{"id": "1"}]}),
        ("delete", {"schema": "contact", "key": "1"}),
    ]


def test_a_refusal_tells_status_and_code():
    assert str(RefusedError(404, "not_found")) == "404 not_found"


@table("document", [None, {"a": [1, "ä", True, None]}, Decimal("0.10"), 2**70, ""])
def test_what_is_written_is_read(document):
    pipe = io.BytesIO()
    write_frame(pipe, document)
    pipe.seek(0)
    assert read_frame(pipe) == document


@table("document", [object(), {1j: 2}, "\ud800"])
def test_what_is_not_json_is_not_written(document):
    with pytest.raises(NotJsonError):
        encode_frame(document)


def test_a_document_without_end_is_not_written():
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(NotJsonError):
        encode_frame(endless)


@table(
    "sent",
    [
        b"", b"\0\0\0", b"\0\0\0\x05{}", b"\0\0\0\x02{]", b"\0\0\0\x161e99999999999999999999",
        (LONGEST_FRAME + 1).to_bytes(4, "big"),
    ],
)  # fmt: skip
def test_half_a_frame_is_told_from_a_whole_one(sent):
    with pytest.raises(BrokenFrameError):
        read_frame(io.BytesIO(sent))


def test_the_longest_document_is_still_one():
    assert size_of(LONGEST_FRAME.to_bytes(4, "big")) == LONGEST_FRAME
