"""Rules that match the same request: order never matters, so a tie must be settled in the file.

Of two templates that match a common path, one must match a part of what the other matches, or a third rule must stand
for exactly the common part. Looking for such pairs walks a tree of segments, so ten thousand rules load in a second.
"""

from collections.abc import Iterable, Iterator

from proxy.redactor.load.faults import Faults
from proxy.redactor.rules import Position, Rule
from proxy.redactor.template import Kind, Segment, Template, covers, meet, overlaps, parse_template

_Shape = tuple[tuple[Kind, str], ...]


class _Tree:
    """Operations of one method by the shapes of their segments; a thousand literal siblings are one look-up."""

    def __init__(self) -> None:
        self.literals: dict[str, _Tree] = {}
        self.wide: dict[tuple[Kind, str], _Tree] = {}
        self.here: list[tuple[Template, Rule]] = []

    def add(self, template: Template, operation: Rule) -> None:
        node = self
        for kind, text in template.shape:
            if kind is Kind.LITERAL:
                node = node.literals.setdefault(text, _Tree())
            else:
                node = node.wide.setdefault((kind, text), _Tree())
        node.here.append((template, operation))

    def everything(self) -> Iterator[tuple[Template, Rule]]:
        yield from self.here
        for child in (*self.literals.values(), *self.wide.values()):
            yield from child.everything()

    def near(self, segments: tuple[Segment, ...]) -> Iterator[tuple[Template, Rule]]:
        """What may match a path that these segments match; ``overlaps`` then decides."""
        if not segments:
            yield from self.here
            return
        first = segments[0]
        if first.kind is Kind.REST:
            yield from self.everything()
            return
        for (kind, _), child in self.wide.items():
            yield from child.here if kind is Kind.REST else child.near(segments[1:])
        if first.kind is Kind.LITERAL:
            same = self.literals.get(first.text)
            yield from same.near(segments[1:]) if same else ()
        else:
            for child in self.literals.values():
                yield from child.near(segments[1:])


def check_rivals(operations: Iterable[Rule], places: dict[int, Position], faults: Faults) -> None:
    """Note every tie between operations of one endpoint; ``places`` holds the place of each ``match`` by ``id``."""
    trees: dict[str, _Tree] = {}
    shapes: dict[str, set[_Shape]] = {}
    entries = [(parse_template(operation.template), operation) for operation in operations]
    for template, operation in entries:
        for method in operation.methods:
            trees.setdefault(method, _Tree()).add(template, operation)
            shapes.setdefault(method, set()).add(template.shape)
    for template, operation in entries:
        for method in operation.methods:
            before = [
                rival for rival in trees[method].near(template.segments) if _is_before(rival[1], operation, places)
            ]
            ties = (_tie(method, template, rival, shapes[method]) for rival in before)
            for text in filter(None, ties):
                faults.add(places[id(operation)], text)


def _is_before(one: Rule, other: Rule, places: dict[int, Position]) -> bool:
    return _order(one, places) < _order(other, places)


def _order(operation: Rule, places: dict[int, Position]) -> tuple[int, int]:
    return places[id(operation)].line, places[id(operation)].column


def _tie(method: str, template: Template, other: tuple[Template, Rule], shapes: set[_Shape]) -> str | None:
    rival, operation = other
    line = operation.position.line
    if not overlaps(template, rival):
        return None
    if template.shape == rival.shape:
        return f"'{operation.label}' in line {line} names the same requests ({method}); keep one of the two"
    if covers(template, rival) or covers(rival, template):
        return None
    common = meet(template, rival)
    if common is not None and common in shapes:
        return None
    advice = f"add a rule for {method} {_spelled(common)}" if common is not None else "make one of the two paths longer"
    return (
        f"'{operation.label}' in line {line} matches some of the same requests and neither is more specific; {advice}"
    )


def _spelled(shape: _Shape) -> str:
    out = ""
    for number, (kind, text) in enumerate(shape, start=1):
        placeholder = f"{{p{number}*}}" if kind is Kind.REST else f"{{p{number}}}"
        out += "/" + (text.replace("*", placeholder) if kind in (Kind.LITERAL, Kind.MIXED) else placeholder)
    return out or "/"
