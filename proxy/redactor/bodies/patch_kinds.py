"""The kinds of patch documents: JSON Patch (RFC 6902), SCIM PATCH (RFC 7644, section 3.5.2), and
members whose names write out a way. Each is read as a series of changes.
"""

import enum
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from proxy.errors import Code, VaultError
from proxy.model.schema import Path
from proxy.redactor.json.text import fold_name, loose_name
from proxy.redactor.json.tree import read_json_value
from proxy.redactor.json.walk import locate, walk
from proxy.redactor.rules import PatchKind
from proxy.redactor.select import Selection

#: Members of one object whose names are paths.
_MOST_MEMBERS: Final = 200

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])


class PatchAct(enum.Enum):
    """Effect of a change at its path."""

    TEST = enum.auto()
    SET = enum.auto()
    MERGE = enum.auto()
    REMOVE = enum.auto()
    TRANSFER = enum.auto()  #: a copy or a move


class PatchChange(NamedTuple):
    """A change: its act, its path, and the span of its value in the body, if any."""

    act: PatchAct
    steps: tuple[str, ...]
    span: tuple[int, int] = (0, 0)
    source: tuple[str, ...] = ()  #: where a transfer takes its value


MakeRefusal = Callable[..., VaultError]
Changes = Callable[[bytes, int], Iterator[PatchChange]]


class _Entry(NamedTuple):
    """An entry of a list of operations: its texts, and the span of its value."""

    act: str
    path: str | None
    source: str | None
    span: tuple[int, int]


class _ListReader:
    """Reads the entries of a list of operations."""

    def __init__(self, entries: Path, paths: Sequence[Path], refusal: MakeRefusal) -> None:
        members = ("op", "path", "from", "value")
        self._entries = Selection(entries, [(name,) for name in members])
        self._refused_members = Selection(None, (), paths, nested=True)
        self._at = entries
        self._refusal = refusal

    def read(self, body: bytes, depth: int) -> Iterator[_Entry]:
        """Raises as ``PatchReader.read``."""
        objects = self._entries.find(body, depth).objects
        listed = [body[start:end] for start, end in locate(self._at, body, depth)]
        lists = len(listed) == 1 and listed[0][:1] == b"["
        if not lists or len(objects) != len(_ELEMENTS.decode(listed[0])):
            raise self._refusal("is no list of operations", Code.UNREADABLE_BODY)
        if self._at and self._refused_members.find(body, depth).anchored:
            raise self._refusal("stands beside protected members")
        for entry in objects:
            texts: list[str | None] = [None, None, None]
            span = (0, 0)
            for leaf in entry.leaves:
                if leaf.name == 3:
                    span = (leaf.start, leaf.end)
                    continue
                value = read_json_value(body[leaf.start : leaf.end])
                if value is None or value.json:
                    raise self._refusal("has a member that is no text", Code.BAD_REQUEST)
                texts[leaf.name] = value.text
            act, path, source = texts
            if act is None:
                raise self._refusal("has no op", Code.UNREADABLE_BODY)
            yield _Entry(act, path, source, span)


def _json_patch(objects: Path, paths: Sequence[Path], refusal: MakeRefusal) -> Changes:  # noqa: ARG001  # one signature for every kind
    entries = _ListReader((), paths, refusal)
    acts = {
        "add": PatchAct.SET,
        "replace": PatchAct.SET,
        "test": PatchAct.TEST,
        "remove": PatchAct.REMOVE,
        "copy": PatchAct.TRANSFER,
        "move": PatchAct.TRANSFER,
    }

    def changes(body: bytes, depth: int) -> Iterator[PatchChange]:
        for entry in entries.read(body, depth):
            act = acts.get(entry.act)
            if act is None or entry.path is None:
                raise refusal("is no operation of RFC 6902", Code.BAD_REQUEST)
            if act in (PatchAct.SET, PatchAct.TEST) and entry.span == (0, 0):
                raise refusal("has no value", Code.BAD_REQUEST)
            if act == PatchAct.TRANSFER and entry.source is None:
                raise refusal("has no from", Code.BAD_REQUEST)
            source = _pointer(entry.source, refusal) if entry.source is not None else ()
            yield PatchChange(act, _pointer(entry.path, refusal), entry.span, source)

    return changes


def _pointer(text: str, refusal: MakeRefusal) -> tuple[str, ...]:
    """The steps of a JSON Pointer (RFC 6901)."""
    if text and (not text.startswith("/") or re.search(r"~(?![01])", text)):
        raise refusal("has a path that is no JSON Pointer", Code.BAD_REQUEST)
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in text.split("/")[1:])


#: An attribute of SCIM with its filter, as RFC 7644 has it in figure 7.
_ATTRIBUTE: Final = re.compile(r"([A-Za-z$][\w$-]*)(?:\[([^\[\]]*)\])?(?:\.([A-Za-z$][\w$-]*))?")
_FILTER: Final = re.compile(
    r'\s*(?:"(?:[^"\\]|\\.)*"|[()]|-?\d[\d.eE+-]*|(?P<word>[A-Za-z$][\w$:.-]*))'
)
_WORDS: Final = frozenset("and or not eq ne co sw ew gt ge lt le pr true false null".split())
_CORE: Final = re.compile(r"(?i)urn:ietf:params:scim:schemas:core:[\d.]+:\w+:")


def _scim_patch(objects: Path, paths: Sequence[Path], refusal: MakeRefusal) -> Changes:
    entries = _ListReader(("Operations",), paths, refusal)
    acts = {"add": PatchAct.MERGE, "replace": PatchAct.MERGE, "remove": PatchAct.REMOVE}
    start = tuple(str(step) for step in objects)

    def steps(path: str) -> tuple[str, ...]:
        return start + _attribute(path, [one[len(start) :] for one in paths], refusal)

    def changes(body: bytes, depth: int) -> Iterator[PatchChange]:
        def how(entry: _Entry, span: tuple[int, int]) -> PatchAct:
            """Arrays are replaced, all else is merged."""
            replaces = entry.act.lower() == "replace" and body[span[0]] == 0x5B
            return PatchAct.SET if replaces else PatchAct.MERGE

        for entry in entries.read(body, depth):
            act = acts.get(entry.act.lower())
            valueless = entry.span == (0, 0)
            if act is None or (act == PatchAct.MERGE and valueless):
                raise refusal("is no operation of RFC 7644", Code.BAD_REQUEST)
            if entry.path is not None:
                along = steps(entry.path)
                yield PatchChange(
                    act if act == PatchAct.REMOVE else how(entry, entry.span), along, entry.span
                )
            elif act == PatchAct.REMOVE or body[entry.span[0]] != 0x7B:
                raise refusal("says no path", Code.BAD_REQUEST)
            else:
                for name, span in _members(body, entry.span, refusal):
                    yield PatchChange(how(entry, span), steps(name), span)

    return changes


def _attribute(text: str, paths: Sequence[Path], refusal: MakeRefusal) -> tuple[str, ...]:
    """The steps of a SCIM path; ``0`` stands for the elements that a filter selects."""
    first = {fold_name(path[0]) for path in paths if path and isinstance(path[0], str)}
    schema: tuple[str, ...] = ()
    rest = _CORE.sub("", text, count=1) if _CORE.match(text) else text
    if fold_name(rest) in first:
        return (rest,)
    if rest.lower().startswith("urn:"):
        head, _, tail = rest.partition("[")
        urn, _, name = head.rpartition(":")
        schema, rest = (urn,), name + (f"[{tail}" if tail else "")
    match = _ATTRIBUTE.fullmatch(rest)
    if match is None:
        raise refusal("has a path that cannot be followed")
    name, condition, sub = match.groups()
    along = (*schema, name)
    if condition is not None:
        for way in (along, along[-1:]):  # some applications skip the schema
            _check_filter(condition, way, paths, refusal)
        along = (*along, "0")
    return along if sub is None else (*along, sub)


def _check_filter(
    condition: str, along: Sequence[str], paths: Sequence[Path], refusal: MakeRefusal
) -> None:
    """Raise if a filter compares fields that the application holds as tokens."""
    at, attributes = 0, set()
    while at < len(condition.rstrip()):
        match = _FILTER.match(condition, at)
        if match is None:
            raise refusal("has a filter that cannot be followed")
        at = match.end()
        word = match["word"]
        if word is not None and word.lower() not in _WORDS:
            attributes.add(loose_name(re.split(r"[.:]", word)[-1]))
            attributes.update(loose_name(piece) for piece in re.split(r"[.:]", word))
    folded = [loose_name(step) for step in along]
    for path in paths:
        head, rest = path[: len(along)], path[len(along) :]
        if [loose_name(str(step)) for step in head] != folded:
            continue
        names = {loose_name(step) for step in rest if isinstance(step, str)}
        if not names or names & attributes:
            raise refusal("has a filter on a protected value")


def _dotted(objects: Path, paths: Sequence[Path], refusal: MakeRefusal) -> Changes:  # noqa: ARG001  # as above
    start = tuple(str(step) for step in objects)

    def changes(body: bytes, depth: int) -> Iterator[PatchChange]:
        walk(None, (), (), body, depth)  # it is a document
        spans = locate(objects, body, depth)
        if len(spans) != 1 or body[spans[0][0]] != 0x7B:
            raise refusal("is no object", Code.UNREADABLE_BODY)
        for name, span in _members(body, spans[0], refusal):
            if not name.startswith("$"):
                yield PatchChange(PatchAct.SET, (*start, *name.split(".")), span)
                continue
            if name not in ("$set", "$unset") or body[span[0]] != 0x7B:
                raise refusal("uses an operator other than $set and $unset")
            for inner, value in _members(body, span, refusal):
                if inner.startswith("$"):
                    raise refusal("uses an operator within another")
                act = PatchAct.SET if name == "$set" else PatchAct.REMOVE
                yield PatchChange(act, (*start, *inner.split(".")), value)

    return changes


def _members(
    body: bytes, span: tuple[int, int], refusal: MakeRefusal
) -> Iterator[tuple[str, tuple[int, int]]]:
    """The members of an object with the spans of their values; raises where a name stands twice."""
    start, end = span
    names = _MEMBERS.decode(body[start:end])
    if len(names) > _MOST_MEMBERS:
        raise refusal(f"has more than {_MOST_MEMBERS} members", Code.TOO_LARGE)
    for name in names:
        spans = locate((name,), body[start:end], 1000)
        if len(spans) != 1:
            raise refusal("has a member twice", Code.AMBIGUOUS_JSON)
        ((first, last),) = spans
        yield name, (start + first, start + last)


CHANGES: Final[Mapping[PatchKind, Callable[[Path, Sequence[Path], MakeRefusal], Changes]]] = {
    PatchKind.JSON: _json_patch,
    PatchKind.SCIM: _scim_patch,
    PatchKind.DOTTED: _dotted,
}
