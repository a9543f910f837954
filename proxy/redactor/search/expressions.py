"""Filters of SCIM (RFC 7644, section 3.4.2.2) as values of a search parameter: which comparisons
they hold, with which attributes, and where the values stand.

It is written here because the positions of values are needed, so that every other byte stays, and
RFC 8259's strings and numbers as they are. Input outside the grammar is refused: an application
might still read a value in it.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from proxy.errors import Code, VaultError
from proxy.model.schema import Path, PathStep, Value
from proxy.redactor.inner_texts import Spelling
from proxy.redactor.json.tree import read_json_value, write_json_value
from proxy.redactor.request_rules import Attribute, Parameter
from proxy.redactor.search.sought import SoughtValue, field_word, search_refused

#: Characters of a filter, and parentheses and brackets within one another.
LONGEST_FILTER: Final = 10_000
_DEEPEST: Final = 32

_URN: Final = r"(?:urn:[\w.:~%+-]+:)?"
_NAME: Final = r"[A-Za-z$][\w$-]*"
_ATTRIBUTE: Final = re.compile(rf"({_URN})({_NAME}(?:\.{_NAME})*)", re.IGNORECASE | re.ASCII)
_TOKEN: Final = re.compile(
    rf"""[ \t]*(?:
        (?P<text>"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{{4}}))*+")
        |(?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)(?![\w.])
        |(?P<word>{_URN}{_NAME}(?:\.{_NAME})*)
        |(?P<sub>\.{_NAME}(?:\.{_NAME})*)
        |(?P<sign>[()\[\]])
        |(?P<end>\Z)
    )""",
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
_OPERATORS: Final = frozenset("eq ne co sw ew gt ge lt le".split())
_LITERALS: Final = ("true", "false", "null")


class ScimComparison(NamedTuple):
    """An attribute that is compared with a value."""

    attribute: Attribute
    operator: str  #: in small letters
    start: int  #: where the value stands in the filter, with its quotes
    end: int


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


def attribute_of(text: str) -> Attribute | None:
    """The steps of an attribute's path, as ``field_word`` writes them, without the schema's URN.

    ``None`` for an invalid path.
    """
    match = _ATTRIBUTE.fullmatch(text)
    return None if match is None else tuple(map(field_word, match[2].split(".")))


def attribute_at(path: Path) -> Attribute:
    """The attribute that stands at a place of the resource."""
    start = len(path) - path[::-1].index(PathStep.DEEP) if PathStep.DEEP in path else 0
    names = (step for step in path[start:] if isinstance(step, str))
    return tuple(field_word(name) for name in names if not name.lower().startswith("urn:"))


class _Reader:
    """Reads one filter by recursive descent."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._next = self._read()
        self.comparisons: list[ScimComparison] = []

    def _read(self) -> _Token:
        match = _TOKEN.match(self._text, self._at)
        if match is None or match.lastgroup is None:
            raise ValueError
        self._at = match.end()
        kind = match.lastgroup
        return _Token(kind, match[kind], match.start(kind), match.end(kind))

    def _take(self) -> _Token:
        taken, self._next = self._next, self._read() if self._next.kind != "end" else self._next
        return taken

    def _expect(self, sign: str) -> None:
        if self._take().text != sign:
            raise ValueError

    def whole(self) -> list[ScimComparison]:
        self._filter((), 0)
        if self._next.kind != "end":
            raise ValueError
        return self.comparisons

    def _filter(self, above: Attribute, depth: int) -> None:
        if depth > _DEEPEST:
            raise ValueError
        self._term(above, depth)
        while self._next.kind == "word" and self._next.text.lower() in ("and", "or"):
            self._take()
            self._term(above, depth)

    def _term(self, above: Attribute, depth: int) -> None:
        token = self._take()
        if token.text.lower() == "not" and self._next.text == "(":
            token = self._take()
        if token.text == "(" and token.kind == "sign":
            self._filter(above, depth + 1)
            self._expect(")")
            return
        attribute = attribute_of(token.text) if token.kind == "word" else None
        if attribute is None:
            raise ValueError
        attribute = above + attribute
        if self._next.text == "[" and self._next.kind == "sign":
            self._take()
            self._filter(attribute, depth + 1)
            self._expect("]")
            if self._next.kind != "sub":
                return
            # emails[type eq "work"].value eq "…", as some callers write it
            steps = self._take().text[1:].split(".")
            attribute += tuple(map(field_word, steps))
        self._compared(attribute)

    def _compared(self, attribute: Attribute) -> None:
        operator = self._take()
        word = operator.text.lower() if operator.kind == "word" else ""
        if word == "pr":
            return
        value = self._take()
        literal = value.kind == "word" and value.text.lower() in _LITERALS
        if word not in _OPERATORS or not (literal or value.kind in ("text", "number")):
            raise ValueError
        self.comparisons.append(ScimComparison(attribute, word, value.start, value.end))


def read_scim_filter(text: str) -> list[ScimComparison]:
    """The comparisons of a filter, in order. ``ValueError`` for an invalid filter."""
    if len(text) > LONGEST_FILTER:
        raise ValueError
    return _Reader(text).whole()


def compared_field(attributes: Mapping[Attribute, str], attribute: Attribute) -> str | None:
    """The field of an attribute's values; empty: of what has or is inside one; else ``None``."""
    value = ("value",)  # compared member of a multi-valued attribute (RFC 7643, section 2.4)
    for one in (attribute, attribute + value):
        if one in attributes:
            return attributes[one]
    if attribute[-1:] == value and attribute[:-1] in attributes:
        return attributes[attribute[:-1]]
    for one in attributes:
        size = min(len(one), len(attribute))
        if one[:size] == attribute[:size]:
            return ""
    return None


def expressed_values(
    parameter: Parameter, at: tuple[bytes, int, int], spelling: Spelling
) -> Iterator[SoughtValue]:
    """The values that a filter compares fields with, where they stand between two bytes.

    Raises ``VaultError``: BAD_REQUEST for an invalid filter, SEARCH_REFUSED for a comparison that
    the application must get wrong.
    """
    data, start, end = at
    text = spelling.read(data[start:end])
    if not text.strip():
        return
    spans = [one.span() for one in spelling.character.finditer(data, start, end)]
    try:
        if len(spans) != len(text) or sum(stop - first for first, stop in spans) != end - start:
            raise ValueError  # spelled in a way that only some read
        comparisons = read_scim_filter(text)
    except ValueError:
        raise VaultError(
            Code.BAD_REQUEST,
            f"The parameter '{parameter.name}' is no filter of SCIM (RFC 7644, section 3.4.2.2), "
            'or too long: write userName eq "ann@example.com".',
        ) from None
    for one in comparisons:
        field = compared_field(parameter.attributes, one.attribute)
        literal = text[one.start : one.end]
        if field is None or literal.lower() in _LITERALS:
            continue
        value = read_json_value(literal.encode("utf-8", "surrogatepass"))
        if value is None or not value.text:
            continue
        _refuse(parameter, field, one.operator)
        quoted = literal[0] == '"'
        first, stop = spans[one.start + quoted][0], spans[one.end - 1 - quoted][1]

        def write(token: Value, *, quoted: bool = quoted) -> bytes:
            written = write_json_value(Value(token.text) if quoted else token).decode()
            return spelling.write(Value(written[1:-1] if quoted else written))

        yield SoughtValue(field, first, stop, value, parameter.name, write)


def _refuse(parameter: Parameter, field: str, operator: str) -> None:
    """Raise where a comparison cannot be made with tokens."""
    if not field:
        raise search_refused(
            parameter, "it compares an attribute that holds protected values within; name the one"
        )
    if field not in parameter.swapped:
        raise search_refused(
            parameter,
            f"the application keeps tokens in place of values of {field}, and equal values have "
            "different ones",
        )
    if operator not in ("eq", "ne"):
        raise search_refused(
            parameter,
            f"'{operator}' needs values, and the application keeps tokens in place of those of "
            f"{field}; ask with eq, or leave {field} out",
        )
