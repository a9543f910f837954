"""Rule files for tests: texts around the part that a test is about, and the faults that loading
names.
"""

from functools import lru_cache

import pytest

from proxy.errors import Code, Detail, VaultError
from proxy.redactor.load import load_text
from proxy.redactor.load.value_forms import Context, Form
from proxy.redactor.load.yaml_tree import RuleFaults, read_tree
from proxy.redactor.rules import Match, Operation, PassRule, RuleSet

#: Points at the place of a fault: the character after it.
MARK = "▲"

HEAD = """version: 1
endpoint: {name: crm, upstream: "http://127.0.0.1:3000"}
"""
ENTITIES = """entities:
  contact:
    fields:
      name:  {kind: name}
      email: {kind: email, token: {shape: email, same: true}, find: [exact]}
      born:  {kind: date}
  note:
    fields:
      text: {kind: text}
"""


def with_operations(*operations: str) -> str:
    """A rule file with these operations, each a flow mapping."""
    return f"{HEAD}{ENTITIES}operations:\n" + "".join(
        f"  - {operation}\n" for operation in operations
    )


def with_fields(*fields: str, entity: str = "") -> str:
    """A rule file with one entity of these fields, each ``name: {…}``; ``entity`` are further keys
    of it.
    """
    extra = f"    {entity}\n" if entity else ""
    return f"{HEAD}entities:\n  person:\n{extra}    fields:\n" + "".join(
        f"      {field}\n" for field in fields
    )


@lru_cache(64)
def loaded(text: str) -> RuleSet:
    """The rules of a text that refers to nothing outside it: loaded once, for nothing changes them."""
    return load_text(text)


def rules_of(*operations: str) -> RuleSet:
    return loaded(with_operations(*operations))


def matched(found: Match | PassRule | None) -> Match:
    """The match of a request that an operation names."""
    assert isinstance(found, Match)
    return found


def operation_of(operation: str) -> Operation:
    return rules_of(operation).operations[0]


def faults_of(text: str, name: str = "rules.yaml") -> tuple[Detail, ...]:
    """What loading the text names; fails when it names nothing."""
    with pytest.raises(VaultError) as caught:
        load_text(text, name)
    assert caught.value.code is Code.BAD_RULES
    return caught.value.details


def marked(text: str) -> tuple[str, list[str]]:
    """The text without its marks, and the ``line:column`` of each."""
    places = []
    while MARK in text:
        before = text.partition(MARK)[0]
        places.append(f"{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}")
        text = text.replace(MARK, "", 1)
    return text, places


def read_form(
    form: Form, text: str, environ: dict[str, str] | None = None, folder: str = "."
) -> tuple[object, list[str]]:
    """What a form reads in a YAML text, and the faults it names."""
    from pathlib import Path

    faults = RuleFaults()
    node = read_tree(text, "f", faults)
    assert node is not None
    value = form.read(node, Context(faults, Path(folder), environ or {}))
    return value, messages(faults)


def messages(faults: RuleFaults) -> list[str]:
    try:
        faults.raise_any()
    except VaultError as error:
        return [f"{detail.source}: {detail.text}" for detail in error.details]
    return []


def fields_searched(operation: Operation) -> dict[str, str]:
    """The field of each parameter of a query, by its name or pattern."""
    search = operation.request.search
    return {} if search is None else {name: one.of for name, one in search.query.items()}
