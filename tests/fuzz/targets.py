"""What is fuzzed: one function a target, which takes any bytes and raises ``AssertionError`` where
a law does not hold.
"""

import json
import posixpath
import re
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from typing import Final
from urllib.parse import parse_qsl, unquote_to_bytes

from proxy.errors import Code, VaultError
from proxy.model.schema import Path, PathStep, Value
from proxy.net.http1.body import ChunkReader
from proxy.net.http1.fields import BadMessageError
from proxy.net.http1.head import Heads
from proxy.net.http1.reader import SWITCH, RequestReader
from proxy.redactor import form
from proxy.redactor.json import tree as codec
from proxy.redactor.json.tree import TreeSelection
from proxy.redactor.json.walk import walk
from proxy.redactor.method_override import override_method
from proxy.redactor.path import looser, readings, split_target
from proxy.redactor.restore import splice
from proxy.redactor.routing import Router
from proxy.redactor.select import Selection
from tests.support.rules import rules_of

Target = Callable[[bytes], None]

# ---------------------------------------------------------------------- heads and chunks


class _Flow:
    """A connection that holds nothing back."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


#: A request that was read: its method, its target, its fields, and its body if that is complete.
_Read = tuple[str, bytes, bytes, bytes | None]


def _requests(pieces: Iterable[bytes]) -> tuple[list[_Read], bool]:
    """The requests in a stream, however it is cut, and whether something in it was refused."""
    reader = RequestReader(_Flow(), Heads())
    found = []
    refused = False
    for piece in pieces:
        for head, body in reader.feed(piece):
            if isinstance(head, BadMessageError):
                refused = True
            else:
                found.append((head, body))
        if refused or reader.state == SWITCH:
            break
    complete = [(head, body.take() if body.done else None) for head, body in found]
    return [(head.method, head.target, head.block, body) for head, body in complete], refused


def request_head(data: bytes) -> None:
    """However a stream is cut, the same requests are in it; nothing of a head is made up or holds a
    line end.
    """
    data = data[:8192]
    whole, refused = _requests([data])
    assert (
        _requests(data[at : at + 1] for at in range(len(data)))[0][: len(whole)] == whole or refused
    )
    cut = len(data) // 3
    assert _requests([data[:cut], data[cut:]])[0][: len(whole)] == whole or refused
    for method, target, block, body in whole:
        assert method.encode() + b" " + target + b" HTTP/1." in data
        assert block in data
        assert not re.search(rb"[\x00-\x20\x7f]", target)
        assert not re.search(rb"\r(?!\n)|(?<!\r)\n|\x00|\n[ \t]", block)
        assert not (
            b"content-length" in block.lower() and b"transfer-encoding" in block.lower()
        ) or re.search(
            rb"(?i)[^\n]\S*(?:content-length|transfer-encoding)|(?:content-length|transfer-encoding)[^:]",
            block,
        )
        assert body is None or body in data or b"chunked" in block.lower()


def chunks(data: bytes) -> None:
    """However a chunked body is cut, its content is the same, and what follows it too."""

    def read(pieces: Iterable[bytes]) -> tuple[bytes, bytes, object] | None:
        reader = ChunkReader(4096)
        content = b""
        rest = b""
        try:
            for piece in pieces:
                if reader.done:
                    rest += piece
                else:
                    content += b"".join(reader.feed(piece))
        except BadMessageError:
            return None
        return (
            (content, reader.rest + rest, reader.trailers) if reader.done else (content, b"", None)
        )

    data = data[:8192]
    whole = read([data])
    for step in (1, 3, 1000):
        assert read(data[at : at + step] for at in range(0, len(data), step)) == whole
    if whole is not None:
        assert len(whole[0]) + len(whole[1]) <= len(data)


# ---------------------------------------------------------------------- bodies

_SELECTIONS: list[tuple[Path | None, list[Path], list[Path]]] = [
    ((), [("name",), ("address", "street"), ("tags", PathStep.EACH)], [("id",)]),
    (("items", PathStep.EACH), [("name",)], []),
    (None, [], [(PathStep.DEEP, "name")]),
    ((PathStep.DEEP, "item"), [("name",)], [("a", 0)]),
    ((PathStep.MEMBERS,), [("name",)], []),
]
_COMPILED = [(paths, Selection(*paths)) for paths in _SELECTIONS]


def _outcome(find: Callable[[], TreeSelection]) -> TreeSelection | Code:
    try:
        return find()
    except VaultError as fault:
        return fault.code


def json_body(data: bytes) -> None:
    """Both ways to select agree; what is selected is a value, and a swap changes it and nothing
    else.
    """
    for (objects, leaves, anchored), selection in _COMPILED:
        found = _outcome(partial(selection.find, data))
        slow = _outcome(partial(walk, objects, leaves, anchored, data, 64))
        assert found == slow
        if isinstance(found, Code):
            continue
        every = [leaf for one in found.objects for leaf in one.leaves] + found.anchored
        spans = sorted((leaf.start, leaf.end) for leaf in every)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))
        for start, end in spans:
            codec.read_json_value(data[start:end])
        changed = splice(
            data, [(start, end, codec.write_json_value(Value("token"))) for start, end in spans]
        )
        assert len(changed) == len(data) + sum(7 - (end - start) for start, end in spans)
        again = _outcome(partial(selection.find, changed))
        assert isinstance(again, TreeSelection)
        assert len(again.anchored) == len(found.anchored)
        assert [len(one.leaves) for one in again.objects] == [
            len(one.leaves) for one in found.objects
        ]
        if not _LONG_NUMBER.search(data):  # the library refuses such
            json.loads(changed.decode())


_LONG_NUMBER = re.compile(rb"[0-9]{4000}")


_DECLARED = ("name", "email", "person[name]", "tag_*")


def form_body(data: bytes) -> None:
    """After a swap no reader finds another value under a declared name, and all other members are
    as they were.
    """
    try:
        members = form.form_members(data, 200, _DECLARED)
    except VaultError:
        return
    wanted = [
        m for m in members if any(form.pattern_matches(pattern, m.name) for pattern in _DECLARED)
    ]
    changed = splice(data, [member.edit("token") for member in wanted])
    before = parse_qsl(
        data.decode("latin-1"), keep_blank_values=True, encoding="utf-8", errors="replace"
    )
    after = parse_qsl(
        changed.decode("latin-1"), keep_blank_values=True, encoding="utf-8", errors="replace"
    )
    assert len(before) == len(after)
    ruled = re.compile(r"(?i)\s*(?:name|email|person\[name\]|tag_.*)\s*")
    for old, new in zip(before, after, strict=True):
        assert new in (old, (old[0], "token"))
        assert not ruled.fullmatch(old[0].partition("\0")[0]) or new[1] == "token"


def override(data: bytes) -> None:
    """The method that a body names is found or the body is refused, whatever type it is said to
    have.
    """
    for types in (
        [],
        ["application/json"],
        ["application/x-www-form-urlencoded"],
        ["text/plain", "a/json"],
    ):
        try:
            method = override_method(types, data, 200)
        except VaultError:
            continue
        assert method is None or method == method.upper().strip()


# ---------------------------------------------------------------------- paths

_RULES = rules_of(
    "{match: POST /people, create: note}", '{match: "POST /people/{id}/notes", create: note}'
)
_ROUTER = Router(_RULES.operations, _RULES.endpoints)


def _plain(path: bytes) -> bytes:
    return posixpath.normpath(re.sub(rb"/+", b"/", b"/" + path))


#: How some servers read a path, written without a look at ours.
_READERS: Final[list[Callable[[bytes], bytes]]] = [
    lambda path: _plain(unquote_to_bytes(path)),
    lambda path: unquote_to_bytes(_plain(path)),
    lambda path: _plain(unquote_to_bytes(unquote_to_bytes(path))),
    lambda path: _plain(re.sub(rb";[^/]*", b"", unquote_to_bytes(path))),
    lambda path: _plain(unquote_to_bytes(re.sub(rb";[^/]*", b"", path))),
    lambda path: _plain(unquote_to_bytes(path).replace(b"\\", b"/")),
    lambda path: re.sub(rb"\.[a-z]{1,5}\Z", b"", _plain(unquote_to_bytes(path))),
    lambda path: _plain(unquote_to_bytes(path)).rstrip(b" ."),
]


def path(data: bytes) -> None:
    """What some server reads as a ruled path is that rule's, or refused."""
    target = b"/" + data[:300].translate(None, b"\r\n ")
    try:
        parts = split_target(target)
        for reading in readings(parts.path):
            assert all(reading)
            list(looser(reading))
        found = _ROUTER.match("POST", "a", target)
        _ROUTER.endpoint("a", target)
        _ROUTER.overridable("a", target)
    except VaultError:
        return
    for read in _READERS:
        assert found is not None or read(parts.path).lower() != b"/people", read


#: Every target by its name, which is also that of its folder in ``corpus``.
TARGETS: Final[dict[str, Target]] = {
    "head": request_head, "chunks": chunks, "json": json_body, "form": form_body,
    "override": override, "path": path,
}  # fmt: skip
