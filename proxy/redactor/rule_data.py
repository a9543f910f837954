"""Rule sets, their tests and their differences as JSON-ready data, for commands and the console."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from proxy.redactor.difference import RuleChange, RuleEffect
from proxy.redactor.rules import RuleSet
from proxy.redactor.validation import unchecked


def rules_data(rules: RuleSet) -> dict[str, Any]:
    """Return the content of a rule set with its warnings and hints."""
    hints = [unchecked(one.name, one.fields.values()) for one in rules.entities]
    return {
        "ok": True,
        "version": rules.version,
        "endpoints": [endpoint.name for endpoint in rules.endpoints],
        "operations": [operation.label for operation in rules.operations],
        "tests": len(rules.tests),
        "warnings": list(rules.warnings),
        "hints": list(filter(None, hints)),
    }


def results_data(results: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the results of a rule set's tests: by name, the problems."""
    return {
        "ok": not any(results.values()),
        "tests": [{"name": name, "problems": list(lines)} for name, lines in results.items()],
    }


def changes_data(changes: Iterable[RuleChange]) -> dict[str, Any]:
    """Return the changes by effect; ``ok`` if no value loses protection."""
    several = list(changes)
    data = {
        str(effect): [
            {"subject": one.subject, "text": one.text} for one in several if one.effect is effect
        ]
        for effect in RuleEffect
    }
    return {"ok": not data[str(RuleEffect.LOSES)], **data}
