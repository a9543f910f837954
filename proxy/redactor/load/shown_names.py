"""Words that people read above or before a field in pages and exports.

They are known of fields whose tokens look like a value. So a page is noticed that shows such a
field, and whose own rule does not name it there.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from proxy.redactor.load.entities import lacks_word, needs_record
from proxy.redactor.page_heads import label_of
from proxy.redactor.rules import Entity, FieldRule, Operation
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
    return {
        name: replace(rule, labels=frozenset(_labels(rule, own))) if is_believed(rule) else rule
        for name, rule in fields.items()
    }


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
