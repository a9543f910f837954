"""Words that people read above or before a field in pages and exports.

They are known of fields whose tokens look like a value. So a page is noticed that shows such a
field, and whose own rule does not name it there.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Final

from proxy.redactor.load.entities import lacks_word, needs_record
from proxy.redactor.page_heads import label_of
from proxy.redactor.rules import Entity, FieldRule, Operation, Verb
from proxy.tokenization import SHAPES

_WORD: Final = re.compile(r"[A-Z]?[^\W_A-Z]+|[A-Z]+(?![^\W_A-Z])")
#: How applications join the words of a name, in heads and in members.
_JOINTS: Final = (" ", "_", "-", "")
#: Names of one and the same date.
_BIRTH: Final = frozenset(
    ("born", "birth date", "birthdate", "birthday", "date of birth", "dateofbirth", "dob")
)


def with_labels(
    entity: Entity, fields: Mapping[str, FieldRule], operations: Iterable[Operation]
) -> dict[str, FieldRule]:
    """The fields; those whose tokens people would take for a value with their labels."""
    own = [one for one in operations if one.entity.name == entity.name]
    scattered = {name for name, *_ in scattered_fields(entity, own)}
    return {
        name: replace(rule, labels=frozenset(_labels(rule, own)), scattered=rule.name in scattered)
        if is_believed(rule)
        else rule
        for name, rule in fields.items()
    }


def scattered_fields(
    entity: Entity, operations: Iterable[Operation]
) -> Iterator[tuple[str, Operation, Operation]]:
    """Fields whose tokens people believe that one create takes, and of whose fields another one
    takes none, as two steps of a form do; with both.
    """
    creates = [
        (fields, one)
        for one in operations
        if one.verb is Verb.CREATE and one.entity.name == entity.name
        if (fields := _sent(one))
    ]
    for name in (one.name for one in entity.fields.values() if is_believed(one)):
        pairs = (
            (first, second)
            for fields, first in creates
            for others, second in creates
            if name in fields and fields.isdisjoint(others)
        )
        yield from ((name, *pair) for pair in islice(pairs, 1))


def _sent(operation: Operation) -> frozenset[str]:
    """The fields that a request carries."""
    body = operation.request.body
    if body is None:
        return frozenset()
    places = (body.form, body.multipart, body.file_names, body.csv)
    named = (field for each in places for field in each.values())
    return frozenset((*body.fields, *body.anchored, *named))


def is_believed(rule: FieldRule) -> bool:
    """Whether people take a token for a value, and only a record or a place tells it from one."""
    small = needs_record(rule.shape) or lacks_word(rule.shape)
    return small and bool(SHAPES[rule.shape.name].looks_like)


def _labels(rule: FieldRule, operations: Iterable[Operation]) -> Iterator[str]:
    """The words of the name and the member of a field, and those of the rules of other pages."""
    members = [step for step in rule.at if isinstance(step, str)][-1:]
    for one in (rule.name, *members):
        words = [word.lower() for word in _WORD.findall(one)]
        written = {joint.join(words) for joint in _JOINTS}
        yield from map(label_of, written | (_BIRTH if written & _BIRTH else set()))
    for operation in operations:
        body, answer = operation.request.body, operation.response
        for places in (answer.heads, answer.columns, body.csv if body is not None else {}):
            yield from (label_of(head) for head, field in places.items() if field == rule.name)
