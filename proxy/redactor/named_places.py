"""The places of a JSON body that an operation names, and those that may be called nearly so."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from proxy.model.schema import Path, PathStep
from proxy.redactor.json.tree import read_json_value
from proxy.redactor.json.walk import locate
from proxy.redactor.rules import BodyPlace, IdPlace, IdSource, Operation
from proxy.redactor.words import DocumentKind
from proxy.redactor.xml_documents import LONE, TEXT

#: Stands in a place where the objects are: an array there means each of its elements.
OBJECT: Final = None
#: Stands at the end of a place that passes, with all that is beneath it.
PASSED: Final = -1
#: A place that a rule names, from the root of the body.
Selector = tuple[str | int | PathStep | None, ...]


def named_places(operation: Operation) -> Iterator[Selector]:
    """The places that an operation names in a request's body of JSON."""
    body, search = operation.request.body, operation.request.search
    objects = None if body is None else body.objects
    if body is not None:
        inside = [*body.fields.values()]
        inside += [one.path for one in body.texts if one.source == "object"]
        if objects is not None:
            yield from ((*objects, OBJECT, *path) for path in inside)
        yield from body.anchored.values()
        yield from (one.path for one in body.texts if one.source == "root")
    ident = _id_selector(operation)
    if ident is not None:
        yield ident
    if search is not None:
        yield from (path for path, _ in search.values)
    yield from ((*path, PASSED) for path in operation.request.passed.values)


def spared_paths(operation: Operation) -> list[Path]:
    """The places that may be called nearly as others are: those that are named or let pass, and
    those of conditions. Where the objects are, each in an array of them as well.

    Documents often hold ``_id`` beside ``id`` and ``_type`` beside ``type``: what tells of records
    and conditions, and is no field, may have both.
    """
    spared: list[Path] = []
    harmless = [*filter(None, (_id_selector(operation), *(one.path for one in operation.when)))]
    for named in (*named_places(operation), *harmless, *filter(None, map(_underscored, harmless))):
        for array in ((), (PathStep.EACH,)) if OBJECT in named else ((),):
            steps = ((step,) if step is not OBJECT else array for step in named if step != PASSED)
            spared.append(sum(steps, ()))
    body = operation.request.body
    elements = body is not None and body.xml is not None and body.xml.nests
    return list(map(steps_in, spared)) if elements else spared


# Places in XML: each name selects every element that is called so, be it one or several, so
# ``[*]`` says nothing that the name does not.


def steps_in(path: Path, *, text: bool = True) -> Path:
    """The way of a place of elements through the JSON of a document; ``text``: to a value."""
    steps: list[str | int | PathStep] = []
    for step in path:
        if isinstance(step, int):
            steps[-1:] = [step]
        elif step is PathStep.DEEP or (isinstance(step, str) and is_last(step)):
            steps.append(step)
        elif step is not PathStep.EACH:
            steps += (step, PathStep.EACH)
    if text and not (steps and isinstance(steps[-1], str) and is_last(steps[-1])):
        steps.append(TEXT)
    return tuple(steps)


def deepest(levels: int) -> int:
    """The levels of the JSON that a document of so many elements in one another is read as."""
    return 4 * levels + 4


def document_path(path: Path, kind: DocumentKind | None) -> Path:
    """The way of a place through the JSON that a document of this kind is read as."""
    return steps_in(path) if kind is not None and kind.nests else path


def is_last(step: str) -> bool:
    """Whether a name is that of an attribute, a text or a name, in which nothing stands."""
    return step.startswith("@") or step in (TEXT, LONE)


def ways_to(path: Path) -> Iterator[Path]:
    """The texts of the elements on the way to a place, where no value may stand."""
    for number, step in enumerate(path):
        if step is PathStep.DEEP:
            return
        if not isinstance(step, str):
            yield (*path[: number + 1], TEXT)


def twin(path: Path) -> Iterator[Path]:
    """The attribute that is called as the element of a value, or the element as the attribute: to
    Rails and Jackson both are members.
    """
    if PathStep.DEEP in path:
        return
    last = path[-1]
    if len(path) > 2 and last == TEXT and isinstance(path[-3], str):
        yield (*path[:-3], f"@{path[-3]}")
    elif isinstance(last, str) and last.startswith("@"):
        yield (*path[:-1], last[1:], PathStep.EACH, TEXT)


def misplaced(path: Path) -> str:
    """The step of a place that selects nothing in a document of elements; empty: none."""
    before: str | int | PathStep = PathStep.DEEP
    for number, step in enumerate(path):
        numbers = isinstance(step, int) or step is PathStep.EACH
        last = isinstance(step, str) and is_last(step) and number + 1 < len(path)
        if last or (numbers and not isinstance(before, str)):
            return f"'{step}'" if isinstance(step, str) else f"[{getattr(step, 'value', step)}]"
        before = step
    return "'..'" if before is PathStep.DEEP and path else ""


#: Begins the names of texts that stand on the way to the places of XML, and are no fields.
ON_THE_WAY: Final = "\1"


def in_document(
    body: BodyPlace, ident: IdPlace | None, *, strict: bool
) -> tuple[BodyPlace, IdPlace | None]:
    """The same places in the JSON that a document of XML is read as; ``strict``: with the texts of
    elements on the way.
    """
    if body.xml is None or not body.xml.nests:
        return replace(body, xml=None), ident
    objects = steps_in(body.objects or (), text=False)
    fields = {name: steps_in(path) for name, path in body.fields.items()}
    anchored = {name: steps_in(path) for name, path in body.anchored.items()}
    if strict:
        named = {*fields.values(), *anchored.values()}
        whole = named | {objects + path for path in fields.values()}
        if ident is not None and ident.source is IdSource.BODY:
            whole.add(steps_in(ident.path))
        inside = {way for path in fields.values() for way in (*ways_to(path[:-2]), *twin(path))}
        inside = {way for way in inside if whole.isdisjoint((way, objects + way))}
        rooted = {way for path in anchored.values() for way in (*ways_to(path[:-2]), *twin(path))}
        rooted |= {*ways_to(objects)}
        fields |= {f"{ON_THE_WAY}{way}": way for way in inside}
        anchored |= {f"{ON_THE_WAY}{way}": way for way in rooted - whole}
    if ident is not None and ident.source is IdSource.BODY:
        ident = replace(ident, path=steps_in(ident.path))
    return replace(body, objects=objects, fields=fields, anchored=anchored, xml=None), ident


def inner_calls(content: bytes, depth: int) -> Iterator[str]:
    """The names of the calls in a call of XML-RPC that holds several, as JSON."""
    if b'"system.multicall"' not in content:  # nearly always, and a walk takes longer
        return
    outer = [content[start:end] for start, end in locate(("methodName",), content, depth)]
    if outer != [b'"system.multicall"']:
        return
    for start, end in locate(("params", 0, PathStep.EACH, "methodName"), content, depth):
        value = read_json_value(content[start:end])
        yield "" if value is None else value.text


def _id_selector(operation: Operation) -> Selector | None:
    """The place of the record's id in the body, if it stands there."""
    body, ident = operation.request.body, operation.id
    if ident is None or ident.source is not IdSource.BODY:
        return None
    objects = None if body is None else body.objects
    rooted = ident.absolute or objects is None
    return ident.path if rooted else (*(objects or ()), OBJECT, *ident.path)


def _underscored(selector: Selector) -> Selector | None:
    """The place that differs in an underscore before its name."""
    name = selector[-1]
    if not isinstance(name, str):
        return None
    return (*selector[:-1], name[1:] if name.startswith("_") else f"_{name}")


def names_ids(operation: Operation) -> bool:
    """Whether the rule names a list of ids, which says what was done."""
    ident = operation.response.id
    return ident is not None and PathStep.EACH in ident.path


def may_be_several(operation: Operation) -> bool:
    """Whether the rule names a list of ids or of objects in the request, be it one of them."""
    ident, body = operation.id, operation.request.body
    paths = [ident.path if ident is not None else (), (body and body.objects) or ()]
    return any(isinstance(step, PathStep) for path in paths for step in path)
