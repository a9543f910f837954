"""Bodies that tell changes instead of values: JSON Patch (RFC 6902), SCIM PATCH (RFC 7644, section
3.5.2), and members whose names write out a way, as MongoDB has them.

Each change becomes a small document with the value at its path. The selectors of the rule find the
places in it as in any document, so other letter case, a name that spells out a path, and a
deviating path are refused alike.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import eq
from typing import Final, NamedTuple
from urllib.parse import unquote

from msgspec.structs import replace

from proxy.errors import Code, VaultError
from proxy.model.schema import Path, PathStep, Value
from proxy.redactor.bodies.patch_kinds import CHANGES, PatchAct, PatchChange
from proxy.redactor.checks import Emptied, Outline
from proxy.redactor.json.nested import pieces
from proxy.redactor.json.text import fold_name, loose_name, without_format
from proxy.redactor.json.tree import Leaf, read_json_value
from proxy.redactor.message import Media, Request, classify
from proxy.redactor.redact import BodyObject, ParsedBody, Spot
from proxy.redactor.rules import Operation, PatchKind
from proxy.redactor.select import Selection

#: Changes in one request: each is parsed separately.
MOST_CHANGES: Final = 1000
_NULL: Final = b"null"
#: A step that means elements, or nothing, in some application: ``-1``, ``*``, ``$[]``.
_SKIPPED: Final = re.compile(r"|[+-]?\d+|-|\*|\$(?:\[.*\])?")
_SIGNS: Final = re.compile(r"[\\`'\"\s]")
#: The name of a schema of SCIM, and one that ends in an attribute of it, for sure.
_SCHEMA: Final = re.compile(r"(?i)urn:")
_ATTRIBUTE_OF: Final = re.compile(r"(?i)urn:.*:\d+(?:\.\d+)*:[^:]+:[^:]+")
#: The number of an element, or the sign for one behind the last (RFC 6901).
_ELEMENT: Final = re.compile(r"0|[1-9][0-9]*|-")


class _Frame(NamedTuple):
    """A document with room for one value at the end of a path, and the ways of the rule's places
    that go along the path: the number of each and how many of its steps the path covers.
    """

    before: bytes
    after: bytes
    steps: Sequence[str]
    ways: tuple[tuple[int, int], ...]
    element: bool  #: whether the path leads through an element of an array


class PatchReader:
    """Reads the patch documents of one operation. Made when rules load."""

    def __init__(self, operation: Operation, kind: PatchKind) -> None:
        body = operation.request.body
        objects: Path = (body.objects if body is not None else None) or ()
        named = {} if body is None else {name: objects + at for name, at in body.fields.items()}
        named |= {} if body is None else body.anchored
        self._operation = operation
        self._depth = 2 * operation.endpoint.limits.json_depth  #: of a value at the end of a path
        self._fields = tuple(named)
        self._paths = tuple(named.values())
        self._objects = objects
        self._folds = kind is PatchKind.SCIM
        self._operators = kind is PatchKind.DOTTED
        self._names = [
            _loosely([one for one in way if isinstance(one, str)]) for way in self._paths
        ]
        self._selection = Selection(None, (), self._paths, nested=True)
        self._outline = Outline(None, (), self._paths)
        self._emptied = Emptied(self._fields, self._paths)
        self._changes = CHANGES[kind](objects, self._paths, self._unclear)

    def read(self, request: Request) -> ParsedBody | None:
        """Return the effect of a request's changes on its one record.

        Raises ``VaultError``: UNREADABLE_BODY where the body is no such document, BAD_REQUEST where
        a change is malformed, VALUE_UNFIT where it cannot be followed, and as ``Selection.find``.
        """
        media = classify(request.headers, request.body)
        if media is Media.NONE:
            return None
        if media is not Media.JSON:
            raise self._unclear("is of another type than JSON", Code.UNREADABLE_BODY)
        body = request.body
        depth = self._operation.endpoint.limits.json_depth
        changes = list(self._changes(body, depth))
        if len(changes) > MOST_CHANGES:
            raise VaultError(
                Code.TOO_LARGE, f"The patch has more than {MOST_CHANGES} changes: send it in parts."
            )
        outcome = _Outcome()
        for change in changes:
            self._follow(change, body, outcome)
        return ParsedBody(Media.JSON, [outcome.item()])

    def _follow(self, change: PatchChange, body: bytes, outcome: "_Outcome") -> None:
        start, end = change.span
        frame = self._frame(change.steps)
        content = body[start:end] or _NULL
        if change.act in (PatchAct.SET, PatchAct.MERGE) and self._is_element(frame, content):
            # SCIM lets one element of an array stand without the array
            frame = frame._replace(before=frame.before + b"[", after=b"]" + frame.after)
        spots = [
            Spot(self._fields[leaf.name], start + first, start + last, value)
            for leaf, first, last, value in self._located(frame, content, strict=bool(start))
        ]
        if change.act == PatchAct.TRANSFER:
            self._check_transfer(change, frame)
        covered = [self._fields[way] for way, _ in frame.ways]
        if change.act in (PatchAct.TEST, PatchAct.TRANSFER):
            outcome.transient(spots)
        elif change.act == PatchAct.REMOVE:
            outcome.transient(spots if start else ())
            outcome.erase(covered if not frame.element else ())
        elif change.act == PatchAct.MERGE:
            document = frame.before + content + frame.after
            among = self._emptied.among({spot.field for spot in spots}, document, self._depth)
            outcome.write(spots, self._single, appends=True)
            outcome.erase(among, nothing=among)
        else:
            outcome.write(spots, self._single, appends=frame.element)
            written = {spot.field for spot in spots} if not frame.element else covered
            outcome.erase([name for name in covered if name not in written])

    def _single(self, field: str) -> bool:
        return PathStep.EACH not in self._paths[self._fields.index(field)]

    def _located(
        self, frame: _Frame, content: bytes, *, strict: bool
    ) -> Iterator[tuple[Leaf, int, int, Value | None]]:
        """The places in the value at the end of a path, counted from the value's first byte."""
        document = frame.before + content + frame.after
        for leaf in self._selection.find(document, self._depth).anchored:
            first, last = leaf.start - len(frame.before), leaf.end - len(frame.before)
            if first < 0 or last > len(content):
                raise self._unclear("reaches into a protected value")
            yield leaf, first, last, read_json_value(document[leaf.start : leaf.end])
        self._check_steps(frame, content)
        if strict and self._outline.strayed(document):
            raise self._unclear("carries something else where the rule goes on to a place")

    def _check_steps(self, frame: _Frame, content: bytes) -> None:
        """Raise where a forgiving application finds the way to a place that the rule does not."""
        steps, followed = _loosely(frame.steps), {way for way, _ in frame.ways}
        schema = ":".join(frame.steps)
        in_schema = _SCHEMA.match(schema) is not None
        named = [self._names[way] for way in followed]
        if (steps or not in_schema) and any(
            names not in named and all(map(eq, steps, names)) for names in self._names
        ):
            raise self._unclear("has a path that some applications take for that of a place")
        whole = in_schema and len(frame.steps) < 3 and not _ATTRIBUTE_OF.fullmatch(schema)
        whole = whole and self._folds and content[:1] == b"{"
        if whole and any(self._located(self._frame(()), content, strict=True)):
            raise self._unclear("has protected values under the name of a schema")
        ahead = [self._names[way][len(steps) :] for way in followed]
        if self._operators and any(ahead):
            value = json.loads(content, parse_int=float, object_pairs_hook=tuple)
            if _holds_operator(ahead, value, within=False):
                raise self._unclear("uses an operator on the way to a protected value")

    def _is_element(self, frame: _Frame, content: bytes) -> bool:
        return (
            self._folds
            and content[:1] == b"{"
            and any(self._paths[way][at : at + 1] == (PathStep.EACH,) for way, at in frame.ways)
        )

    def _check_transfer(self, change: PatchChange, frame: _Frame) -> None:
        """Raise unless a copy or move leads from and to the same fields, or none."""
        origin = self._frame(change.source)
        for _ in self._located(origin, _NULL, strict=False):
            pass  # a source inside a value, or that is ambiguous
        if self._rest(origin) != self._rest(frame):
            raise self._unclear("copies or moves a protected value to another place, or over one")

    def _rest(self, frame: _Frame) -> set[tuple[int, Path]]:
        return {(way, self._paths[way][at:]) for way, at in frame.ways}

    def _frame(self, steps: Sequence[str]) -> _Frame:
        """The document round a value at these steps."""
        before, after, element = b"", b"", False
        ways = [(number, 0) for number in range(len(self._paths))]
        if len(steps) > self._operation.endpoint.limits.json_depth:
            raise self._unclear("has too long a path", Code.TOO_LARGE)
        for number, step in enumerate(steps):
            ahead = {self._paths[way][at] for way, at in ways if at < len(self._paths[way])}
            if step in ("", ".", "..") and step not in ahead:
                raise self._unclear("has a path with a step that some applications skip")
            arrays = PathStep.EACH in ahead
            if arrays and len(ahead) > 1:
                raise self._unclear("leads where the rule has both an array and an object")
            if arrays and self._folds and not _ELEMENT.fullmatch(step):
                # SCIM: a sub-attribute of all elements
                before, after, element = before + b"[", b"]" + after, True
                ways = [(way, at + 1) for way, at in ways if at < len(self._paths[way])]
                ahead = {self._paths[way][at] for way, at in ways if at < len(self._paths[way])}
                arrays = False
            if arrays and _ELEMENT.fullmatch(step):
                before, after, element = before + b"[", b"]" + after, True
                ways = [(way, at + 1) for way, at in ways if at < len(self._paths[way])]
                continue
            count = len(self._objects)
            at_object = number == count and tuple(steps[:count]) == self._objects
            if _ELEMENT.fullmatch(step) and (at_object or (self._folds and ahead)):
                raise self._unclear("names an element where the rule has one object")
            name = self._named(step, ahead)
            before += b"{" + json.dumps(name, ensure_ascii=False).encode() + b":"
            after = b"}" + after
            element = element or arrays  # ``[*]`` selects the members of an object, too
            ways = [
                (way, at + 1)
                for way, at in ways
                if self._paths[way][at : at + 1] in ((name,), (PathStep.EACH,))
            ]
        return _Frame(before, after, steps, tuple(ways), element)

    def _named(self, step: str, ahead: Iterable[object]) -> str:
        """A step in the spelling of the rule, where names of attributes have no letter case."""
        if not self._folds:
            return step
        names = (name for name in ahead if isinstance(name, str))
        return next((name for name in names if fold_name(name) == fold_name(step)), step)

    def _unclear(self, text: str, code: Code = Code.VALUE_UNFIT) -> VaultError:
        return VaultError(
            code,
            f"The request matches {self._operation.label}, and a change of its patch {text}: send "
            "the changed members themselves, or each in a change of its own.",
        )


def _loosely(steps: Sequence[str]) -> list[str]:
    """Steps as the most forgiving applications read them: without the schema in front, elements,
    escapes, quotes and other signs, and each in its pieces.
    """
    if steps and _SCHEMA.match(steps[0]):
        steps = steps[1:]
    cleaned = (_SIGNS.sub("", without_format(unquote(step))) for step in steps)
    several = (pieces(step) or [step] for step in cleaned if not _SKIPPED.fullmatch(step))
    return [loose_name(one) for some in several for one in some if not _SKIPPED.fullmatch(one)]


def _holds_operator(ahead: Iterable[Sequence[str]], value: object, *, within: bool) -> bool:
    """Whether a value holds an operator of MongoDB where these ways go on, and something in it.

    ``value``: as ``json`` decodes it, an object as a tuple of its members.
    """
    ahead = [names for names in ahead if names]
    if isinstance(value, list):
        return any(_holds_operator(ahead, one, within=within) for one in value)
    if not isinstance(value, tuple):
        nothing = value is None or isinstance(value, bool) or value == ""
        return within and bool(ahead) and not nothing
    for name, one in value:
        along = [names[1:] for names in ahead if names[0] == loose_name(name)]
        operator = name.startswith("$") and not along
        if within and [] in along:
            return True
        if _holds_operator(ahead if operator else along, one, within=within or operator):
            return True
    return False


class _Outcome:
    """Result of a series of changes: a later write of a place wins over an earlier one."""

    def __init__(self) -> None:
        self._spots: list[Spot] = []
        self._erased: dict[str, Value | None] = {}
        self._written: dict[str, int] = {}  #: where the one place of a field was written
        self._appended: set[str] = set()

    def transient(self, spots: Iterable[Spot]) -> None:
        """These are compared with the application's data, or ignored."""
        self._spots += [replace(spot, transient=True) for spot in spots]

    def write(self, spots: Iterable[Spot], single: Callable[[str], bool], *, appends: bool) -> None:
        """These are what their fields hold from now on, or, with ``appends``, one value more."""
        for spot in spots:
            if single(spot.field):
                self._overwrite(spot.field)
                self._written[spot.field] = len(self._spots)
                self._erased.pop(spot.field, None)
            elif appends:
                self._appended.add(spot.field)
            else:
                self._erased[spot.field] = None
            self._spots.append(spot)

    def erase(
        self, fields: Iterable[str], nothing: Mapping[str, Value | None] | None = None
    ) -> None:
        """These hold nothing from now on."""
        for field in fields:
            self._overwrite(field)
            self._erased[field] = (nothing or {}).get(field)

    def _overwrite(self, field: str) -> None:
        before = self._written.pop(field, None)
        if before is not None:
            self._spots[before] = replace(self._spots[before], transient=True)

    def item(self) -> BodyObject:
        written = {spot.field for spot in self._spots if not spot.transient}
        return BodyObject(
            self._spots,
            None,
            {field: value for field, value in self._erased.items() if field not in written},
            frozenset(self._appended - self._erased.keys()),
        )
