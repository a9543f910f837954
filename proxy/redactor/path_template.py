"""Path templates of rules: ``/contacts/{id}``, ``/files/{path*}``, ``/contacts/{id}.json``.

A template is a sequence of segments. Specificity follows from the possible matches: a template is
more specific than another if the other matches every path that it matches.

The trie looks up which template matches a path; that costs the depth of the path, not the number
of templates. At each segment the most specific child is tried first; that this finds the most
specific template is what ``load/conflicts.py`` checks when rules load.
"""

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Generic, TypeAlias, TypeVar
from urllib.parse import parse_qs, unquote_to_bytes

from proxy.redactor import form

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FORBIDDEN = re.compile(r"[\s?#%\\;]")


class SegmentKind(enum.IntEnum):
    """Kind of a segment, the most specific first."""

    LITERAL = 0  #: exactly its text
    MIXED = 1  #: text around placeholders, ``{id}.json``
    ONE = 2  #: any one segment, ``{id}``
    REST = 3  #: one or more segments to the end, ``{path*}``


@dataclass(frozen=True, slots=True)
class TemplateSegment:
    """A segment with its placeholder names.

    Its text is literal (LITERAL) or a glob with ``*`` for the placeholders (MIXED).
    """

    kind: SegmentKind
    text: str
    names: tuple[str, ...] = ()

    def regex(self, flags: int = 0) -> re.Pattern[bytes]:
        """A MIXED segment as an expression over the bytes of a path segment, one group a
        placeholder.

        A placeholder takes as little as it can, for good (an atomic group): the time grows with the
        path, not with a power of it.
        """
        first, *others = (re.escape(part) for part in self.text.split("*"))
        source = (
            first
            + "".join(f"(?>(.+?){part})" for part in others[:-1])
            + "".join(f"(.+?){part}" for part in others[-1:])
        )
        return re.compile(source.encode(), re.DOTALL | flags)


@dataclass(frozen=True, slots=True)
class PathTemplate:
    """A parsed path template; ``names`` are all placeholders in order.

    ``query``: of a redirect, parameters that must have these values.
    """

    text: str
    segments: tuple[TemplateSegment, ...]
    query: tuple[tuple[str, str], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for segment in self.segments for name in segment.names)

    @property
    def shape(self) -> tuple[tuple[SegmentKind, str], ...]:
        """The template without the names of its placeholders: equal shapes match the same paths."""
        return tuple((segment.kind, segment.text) for segment in self.segments)


def parse_template(text: str) -> PathTemplate:
    """Parse a template; ``ValueError`` with a sentence that says what to write instead."""
    if not text.startswith(("/", "^/")):
        raise ValueError("a path begins with '/', such as /contacts")
    if near := _other_language(text):
        raise ValueError(near)
    if forbidden := _FORBIDDEN.search(text):
        raise ValueError(_forbidden(forbidden.group()))
    parts = [part for part in text.split("/") if part]
    segments = tuple(_segment(part) for part in parts)
    for part, segment in zip(parts[:-1], segments[:-1], strict=True):
        if segment.kind is SegmentKind.REST:
            raise ValueError(f"'{part}' takes the rest of the path and must stand last")
    if "." in parts or ".." in parts:
        raise ValueError("write the path without '.' and '..' segments")
    template = PathTemplate(text, segments)
    names: set[str] = set()
    for name in template.names:
        if name in names:
            raise ValueError(f"the placeholder {{{name}}} stands twice; give each its own name")
        names.add(name)
    return template


#: Placeholders of other frameworks, and what tells them; each is followed by a name, or by none.
_COLON = re.compile(r"/:([A-Za-z_][A-Za-z0-9_]*)[?*+]?(?:\([^/]*\))?(?=[/.-]|$)")
_ANGLE = re.compile(r"<(?:[A-Za-z_]+:)?([A-Za-z_][A-Za-z0-9_]*)>")
_TYPED = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*):[^{}]*(?:\{[^{}]*\}[^{}]*)*\}")
_NAMED_GROUP = re.compile(r"\(\?P?<([A-Za-z_][A-Za-z0-9_]*)>(?:[^()]|\([^()]*\))*\)")
_GROUP = re.compile(
    r"\((?:[^()]|\([^()]*\))*\)[*+?]?|\[[^\[\]/]*\][*+?]?(?:\{[0-9,]+\})?|\\[dwsDWS][*+?]?|\.[*+]|[*+]"
)
_EXPRESSION = re.compile(r"^\^|\$$|\\[dwsDWS.]|\.[*+]|\[[^\[\]/]*\]|\((?:\?|[^()]*[|\\*+])")
_STAR = re.compile(r"/\*\*?$")


def _other_language(text: str) -> str | None:
    """Translate a placeholder of another framework or an expression; ``None`` if there is none."""
    written = _NAMED_GROUP.sub(r"{\1}", text)
    written = _TYPED.sub(
        r"{\1}", _ANGLE.sub(r"{\1}", _COLON.sub(r"/{\1}", _STAR.sub("/{rest*}", written)))
    )
    bare = _PLACEHOLDER.sub("", written)
    if _EXPRESSION.search(bare):
        numbers = count(2)
        names = set(_PLACEHOLDER.findall(written))
        written = written.removeprefix("^").removesuffix("$")

        def name(_: re.Match[str]) -> str:
            fresh = (
                "id"
                if "id" not in names
                else next(f"id{n}" for n in numbers if f"id{n}" not in names)
            )
            names.add(fresh)
            return f"{{{fresh}}}"

        parts = [
            part if _PLACEHOLDER.fullmatch(part) else _GROUP.sub(name, part)
            for part in written.split("/")
        ]
        return f"a path is a template and no regular expression; write {'/'.join(parts)}"
    return (
        None
        if written == text
        else f"a placeholder is written in braces, by its name alone; write {written}"
    )


def _forbidden(character: str) -> str:
    if character == "#":
        return "a path ends before '#', which browsers do not send"
    if character == "?":
        return "a path ends before '?'; name query parameters under query:"
    if character == "%":
        return "write the character itself, not its percent-escape; every spelling is matched"
    if character == ";":
        return "leave out ';' parameters; they are matched by themselves"
    return "a path holds no spaces and no backslashes"


def _segment(part: str) -> TemplateSegment:
    names = []
    for inner in _PLACEHOLDER.findall(part):
        name = inner.removesuffix("*")
        if not _NAME.fullmatch(name):
            raise ValueError(f"'{{{inner}}}' is not a placeholder; write {{id}} or {{path*}}")
        if inner.endswith("*") and part != f"{{{inner}}}":
            raise ValueError(f"'{{{inner}}}' takes slashes and must be a whole segment")
        names.append(name)
    text = _PLACEHOLDER.sub("*", part)
    if "{" in text or "}" in text:
        raise ValueError(f"unmatched brace in '{part}'; a placeholder is {{id}}")
    return _typed(part, text, tuple(names))


def _typed(part: str, text: str, names: tuple[str, ...]) -> TemplateSegment:
    if "**" in text or text.count("*") != len(names):
        raise ValueError(
            f"'{part}': put text between two placeholders, and no '*' outside of braces"
        )
    if not names:
        return TemplateSegment(SegmentKind.LITERAL, text)
    if text != "*":
        return TemplateSegment(SegmentKind.MIXED, text, names)
    return TemplateSegment(SegmentKind.REST if part.endswith("*}") else SegmentKind.ONE, "", names)


def covers(wide: PathTemplate, narrow: PathTemplate) -> bool:
    """Whether every path that ``narrow`` matches is matched by ``wide`` as well."""
    for index, segment in enumerate(narrow.segments):
        if index >= len(wide.segments):
            return False
        if wide.segments[index].kind is SegmentKind.REST:
            return True
        if not _holds(wide.segments[index], segment):
            return False
    return len(wide.segments) == len(narrow.segments)


def leads_to(template: PathTemplate, path: str, query: str) -> bool:
    """Whether path and query of an address are those of a redirect that a rule names."""
    parts = [unquote_to_bytes(part) for part in path.encode("latin-1").split(b"/") if part]
    said = parse_qs(query, encoding="utf-8", errors="replace") if template.query else {}
    return fits(template, parts) and all(said.get(name) == [text] for name, text in template.query)


def fits(template: PathTemplate, parts: Sequence[bytes]) -> bool:
    """Whether the template matches a path of these segments."""
    segments = template.segments
    if segments and segments[-1].kind is SegmentKind.REST:
        if len(parts) < len(segments):
            return False
        segments = segments[:-1]
        parts = parts[: len(segments)]
    return len(parts) == len(segments) and all(map(_takes, segments, parts))


def _takes(segment: TemplateSegment, part: bytes) -> bool:
    if segment.kind is SegmentKind.LITERAL:
        return segment.text.encode() == part
    if segment.kind is SegmentKind.MIXED:
        return segment.regex().fullmatch(part) is not None
    return True


def overlaps(one: PathTemplate, other: PathTemplate) -> bool:
    """Whether some path is matched by both."""
    for first, second in zip(one.segments, other.segments, strict=False):
        if SegmentKind.REST in (first.kind, second.kind):
            return True
        if not _meets(first, second):
            return False
    return len(one.segments) == len(other.segments)


def meet(one: PathTemplate, other: PathTemplate) -> tuple[tuple[SegmentKind, str], ...] | None:
    """The shape of a template for exactly the paths of both; ``None`` if no template can say it."""
    longer, shorter = (one, other) if len(one.segments) >= len(other.segments) else (other, one)
    shape = []
    for index, segment in enumerate(longer.segments):
        rival = shorter.segments[min(index, len(shorter.segments) - 1)]
        if not (_holds(segment, rival) or _holds(rival, segment)):
            return None
        chosen = rival if _holds(segment, rival) and rival.kind is not SegmentKind.REST else segment
        shape.append((chosen.kind, chosen.text))
    return tuple(shape)


def _holds(wide: TemplateSegment, narrow: TemplateSegment) -> bool:
    if wide.kind is SegmentKind.REST:
        return True
    if narrow.kind is SegmentKind.REST:
        return False
    if wide.kind is SegmentKind.ONE:
        return True
    if narrow.kind is SegmentKind.ONE or (
        narrow.kind is SegmentKind.MIXED and wide.kind is SegmentKind.LITERAL
    ):
        return False
    if wide.kind is SegmentKind.LITERAL:
        return wide.text == narrow.text
    # A character that no template holds stands for whatever the narrow placeholders take.
    return wide.regex().fullmatch(narrow.text.replace("*", "\0").encode()) is not None


def _meets(one: TemplateSegment, other: TemplateSegment) -> bool:
    if SegmentKind.ONE in (one.kind, other.kind):
        return True
    if one.kind is SegmentKind.LITERAL and other.kind is SegmentKind.LITERAL:
        return one.text == other.text
    if one.kind is SegmentKind.MIXED and other.kind is SegmentKind.MIXED:
        return form.patterns_overlap(one.text, other.text)
    mixed, literal = (one, other) if one.kind is SegmentKind.MIXED else (other, one)
    return mixed.regex().fullmatch(literal.text.encode()) is not None


_T = TypeVar("_T")

#: The value of the template that matched, its placeholders' names and the bytes that stood there.
RouteMatch: TypeAlias = tuple[_T, tuple[str, ...], tuple[bytes, ...]]


class _Node(Generic[_T]):
    __slots__ = ("leaf", "literals", "mixed", "one", "rest")

    def __init__(self) -> None:
        self.literals: dict[bytes, _Node[_T]] = {}
        self.mixed: list[tuple[str, re.Pattern[bytes], _Node[_T]]] = []
        self.one: _Node[_T] | None = None
        self.rest: _Node[_T] | None = None
        self.leaf: tuple[_T, tuple[str, ...]] | None = None


class Trie(Generic[_T]):
    """Templates to values.

    ``fold`` ignores the case of ASCII letters; matches of placeholders stay unchanged.
    """

    def __init__(self, *, fold: bool = False) -> None:
        self._root: _Node[_T] = _Node()
        self._fold = fold

    def add(self, template: PathTemplate, value: _T) -> None:
        """Put a template in; the first of two with the same shape stays."""
        node = self._root
        for segment in template.segments:
            node = self._child(node, segment)
        if node.leaf is None:
            node.leaf = (value, template.names)

    def _child(self, node: _Node[_T], segment: TemplateSegment) -> _Node[_T]:
        if segment.kind is SegmentKind.LITERAL:
            key = segment.text.encode()
            return node.literals.setdefault(key.lower() if self._fold else key, _Node())
        if segment.kind is SegmentKind.ONE:
            node.one = node.one or _Node()
            return node.one
        if segment.kind is SegmentKind.REST:
            node.rest = node.rest or _Node()
            return node.rest
        for text, _, child in node.mixed:
            if text == segment.text:
                return child
        child = _Node()
        node.mixed.append((segment.text, segment.regex(re.IGNORECASE if self._fold else 0), child))
        node.mixed.sort(key=lambda entry: form.pattern_weight(entry[0]), reverse=True)
        return child

    def find(self, path: Sequence[bytes]) -> RouteMatch[_T] | None:
        """The most specific template for these segments, or ``None``."""
        keys = [segment.lower() for segment in path] if self._fold else path
        node = self._root
        values: list[bytes] = []
        # a less specific child was passed by, so that a dead end is not the last word
        passed = False
        for index, key in enumerate(keys):
            child = node.literals.get(key)
            if child is None:
                if node.mixed or node.rest is not None or node.one is None:
                    passed = passed or bool(node.mixed) or node.rest is not None
                    return _walk(self._root, keys, path, ()) if passed else None
                child = node.one
                values.append(path[index])
            elif node.one is not None or node.mixed or node.rest is not None:
                passed = True
            node = child
        if node.leaf is not None:
            return (*node.leaf, tuple(values))
        return _walk(self._root, keys, path, ()) if passed else None


def _walk(
    node: _Node[_T],
    keys: Sequence[bytes],
    path: Sequence[bytes],
    values: tuple[bytes, ...],
    index: int = 0,
) -> RouteMatch[_T] | None:
    """Depth first, the most specific child first; ``index`` is the segment to match next."""
    if index == len(keys):
        return (*node.leaf, values) if node.leaf else None
    child = node.literals.get(keys[index])
    if child is not None and (hit_below := _walk(child, keys, path, values, index + 1)):
        return hit_below
    for _, regex, child in node.mixed:
        hit = regex.fullmatch(path[index])
        if hit and (hit_below := _walk(child, keys, path, values + hit.groups(), index + 1)):
            return hit_below
    if node.one is not None and (
        hit_below := _walk(node.one, keys, path, (*values, path[index]), index + 1)
    ):
        return hit_below
    if node.rest is not None and node.rest.leaf:
        return (*node.rest.leaf, (*values, b"/".join(path[index:])))
    return None
