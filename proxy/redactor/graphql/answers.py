"""Places of the objects of a GraphQL field in an answer: in one document, or in the parts of an
answer that comes bit by bit (``@defer``, ``@stream``).

A part continues the answer at a path. The path stands beside its data, as in ``{"incremental":
[{"path": ["contact"], "data": …}]}`` of the draft of 2022 and at the root in that of 2020; or an
earlier part has told it (``pending``), and the data name it by an ``id``. A subscription over
``multipart/mixed`` has each answer in ``payload``.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from proxy.model.schema import Path, PathStep
from proxy.redactor.graphql.requests import FieldUse, RequestedField
from proxy.redactor.plan import BodyPlan

#: Paths of parts to come that one answer may tell.
_MOST_PENDING: Final = 1_000

_EACH: Final = PathStep.EACH


class _Part(NamedTuple):
    """Data of a part: where they stand in its document, and where in the answer they belong."""

    at: Path
    path: tuple[str | int, ...]


def answered_at(document: Any, requested: RequestedField) -> tuple[Path, Sequence[Any]]:
    """The place of a use's objects in an answer, lists on the way, and what stands there: nothing
    where the field was not executed.
    """
    wrapped = isinstance(document, dict) and "data" not in document and "payload" in document
    head: Path = ("payload", "data") if wrapped else ("data",)
    start = head if requested.position is None else (requested.position, *head)
    return _walked(document, start, requested.use.path)


class ContinuedAnswer:
    """The parts of one answer, as far as they are about one field."""

    def __init__(self, requested: RequestedField) -> None:
        self._requested = requested
        self._pending: dict[str, tuple[str | int, ...]] = {}  #: paths of parts to come, by id

    def plans(self, document: Any) -> list[BodyPlan] | None:
        """The plans of a document's objects; ``None`` where it continues what was never told."""
        objects, values = answered_at(document, self._requested)
        use = self._requested.use
        # data with a path beside them are a part, also where that leads to the root
        part = isinstance(document, dict) and "path" in document
        plans = [use.plan(objects)] if stands(values) and not part else []
        if isinstance(document, dict):
            parts = self._parts(document)
            if parts is None:
                return None
            plans += [plan for part in parts if (plan := _plan(document, part, use)) is not None]
        return plans

    def _parts(self, document: dict[str, Any]) -> list[_Part] | None:
        for _, one in _objects(document.get("pending")):
            path = _steps(one.get("path"))
            if path is not None and len(self._pending) < _MOST_PENDING:
                self._pending[str(one.get("id"))] = path
        increments_at: list[tuple[Path, dict[str, Any]]] = (
            [((), document)] if "path" in document else []
        )
        increments_at += [
            (("incremental", at), one) for at, one in _objects(document.get("incremental"))
        ]
        parts: list[_Part] = []
        for at, one in increments_at:
            path = self._path(one)
            if path is None:
                return None
            parts += [_Part((*at, name), path) for name in ("data", "items") if one.get(name)]
        for _, one in _objects(document.get("completed")):
            self._pending.pop(str(one.get("id")), None)
        return parts

    def _path(self, part: dict[str, Any]) -> tuple[str | int, ...] | None:
        """The place that a part continues; ``None`` where it cannot be told."""
        if "path" in part:
            return _steps(part["path"])
        begun, further = self._pending.get(str(part.get("id"))), _steps(part.get("subPath", []))
        return (*begun, *further) if begun is not None and further is not None else None


def _plan(document: Any, part: _Part, use: FieldUse) -> BodyPlan | None:
    """The plan of a part's objects, or of the rest of one; ``None`` where it has none of them."""
    left, inner = list(use.path), list[str | int]()
    listed = part.at[-1] == "items" and part.path and isinstance(part.path[-1], int)
    steps = part.path[:-1] if listed else part.path
    for step in steps:
        if inner or not left:
            if inner or isinstance(step, str):
                inner.append(step)
        elif isinstance(step, str) and step != left.pop(0):
            return None
    if left or not inner:
        objects, values = _walked(document, part.at, left)
        return use.plan(objects) if stands(values) else None
    leaves = [(name, rest) for name, leaf in zip(use.names, use.leaves, strict=True)
              if (rest := _beyond(leaf, inner)) is not None]  # fmt: skip
    if not leaves:
        return None
    names = tuple(name for name, _ in leaves)
    within = tuple((part.at[-1], *rest) for _, rest in leaves)
    return use._replace(names=names, leaves=within, ids=()).plan(part.at[:-1])


def _beyond(leaf: Path, inner: Sequence[str | int]) -> Path | None:
    """The rest of a place behind these steps; ``None`` where they do not lead to it."""
    for step in inner:
        if isinstance(step, int):
            leaf = leaf[1:] if leaf[:1] == (_EACH,) else leaf
        elif leaf[:1] == (step,):
            leaf = leaf[1:]
        else:
            return None
    return leaf


def stands(values: Sequence[Any]) -> bool:
    """Whether anything but null and false stands in a place."""
    return any(one is not None and one is not False for one in values)


def json_document(body: bytes) -> Any:
    """The document of an answer; ``None`` where it is none."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    return document if isinstance(document, dict | list) else None


def was_executed(answer: Any) -> bool:
    """Whether an answer has data, whatever its status: one mutation of two may have failed."""
    several = answer if isinstance(answer, list) else [answer]
    return any(isinstance(one, dict) and "data" in one for one in several)


def came_first(answer: Mapping[str, Any], errors: Any) -> bool:
    """Whether errors were raised before anything was executed: they say where in the document, and
    of no field of the answer.
    """
    if answer.get("data") is not None or not isinstance(errors, list):
        return False
    return "data" not in answer or all(
        isinstance(one, dict) and one.get("locations") and "path" not in one for one in errors
    )


def _walked(document: Any, start: Path, steps: Sequence[str | int]) -> tuple[Path, Sequence[Any]]:
    """The place behind these steps, with lists on the way, and what stands there."""
    path: Path = ()
    level = [document]
    for step in (*start, *steps):
        lists = isinstance(step, str) and any(isinstance(one, list) for one in level)
        while lists and any(isinstance(one, list) for one in level):
            level = [inner for one in level if isinstance(one, list) for inner in one]
            path = (*path, _EACH)
        if isinstance(step, int):
            level = [one[step] for one in level if isinstance(one, list) and len(one) > step]
        else:
            level = [one[step] for one in level if isinstance(one, dict) and step in one]
        path = (*path, step)
    return path, level


def _objects(value: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a list, with their numbers."""
    for at, one in enumerate(value if isinstance(value, list) else ()):
        if isinstance(one, dict):
            yield at, one


def _steps(value: Any) -> tuple[str | int, ...] | None:
    """The steps of a path as an answer spells it; ``None`` for anything else."""
    if not isinstance(value, list) or not all(type(one) in (str, int) for one in value):
        return None
    return tuple(value)
