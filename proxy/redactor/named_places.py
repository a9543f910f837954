"""The places of a JSON body that an operation names, and those that may be called nearly so."""

from collections.abc import Iterator
from typing import Final

from proxy.model.schema import Path, PathStep
from proxy.redactor.rules import IdSource, Operation

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
    return spared


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
