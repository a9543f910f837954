"""``schema: records``: entities whose records are kept among those of the record-based family, each field in a field of it.

While a file is being read its fields go by the names that it gives them. Then ``settling`` exchanges those names for the fields of the
record schema that ``keep_as`` says, so that whatever runs the rules, and what the vault seals, knows these alone.
"""

from collections.abc import Mapping

from proxy.model.builtin import IN_THE_CLEAR, KEPT_AS, RECORDS, SEVERAL
from proxy.redactor.load.faults import Faults, did_you_mean
from proxy.redactor.load.forms import Item, Section
from proxy.redactor.load.overlaps import selects_many
from proxy.redactor.rules import FieldRule


def kept_as(name: str, item: Item, fields: Mapping[str, FieldRule], faults: Faults) -> Mapping[str, str] | None:
    """By the names of fields: what each is kept in. ``None``: the entity has a schema of its own; faults are noted."""
    section: Section = item.value
    hosted = section.value("schema") == RECORDS
    declared: Mapping[str, Item] = section.value("fields", {})
    chosen = {field: part for field, part in declared.items() if isinstance(part.value, Section)}
    if not hosted:
        _refuse_name(name, item, faults)
        for part in chosen.values():
            if "keep_as" in part.value:
                faults.add(
                    part.value.key("keep_as"),
                    f"only fields of the record schema are kept as one; write 'schema: {RECORDS}' at {name}, or leave keep_as out",
                )
        return None
    taken: dict[str, str] = {}
    for field, part in chosen.items():
        target = part.value.value("keep_as", field if field in KEPT_AS else None)
        if target is not None and field in fields:
            _check(fields[field], part, target, (taken, faults))
    if not taken:
        faults.add(
            section.key("schema"),
            f"no field of {name} is kept in one of the record schema; write keep_as: key1 at a field, or leave schema out",
        )
    return {field: target for target, field in taken.items()}


def _refuse_name(name: str, item: Item, faults: Faults) -> None:
    section: Section = item.value
    if section.value("schema", name).lower() == RECORDS:
        at = section.place("schema") if "schema" in section else item.key
        faults.add(
            at,
            f"'{RECORDS}' is the schema of the record-based interface; write 'schema: {RECORDS}' and keep_as at the fields to keep "
            "them there, or give this entity another schema",
        )


def _check(rule: FieldRule, part: Item, target: str, so_far: tuple[dict[str, str], Faults]) -> None:
    """Note what is wrong with keeping a field so; else it is kept so."""
    taken, faults = so_far
    section: Section = part.value
    at = section.place("keep_as") if "keep_as" in section else part.key
    if target not in KEPT_AS:
        faults.add(at, f"the record schema has no field '{target}' for this; {did_you_mean(target, KEPT_AS)}")
    elif target in taken:
        faults.add(at, f"{taken[target]} is kept as {target} already; choose another field")
    elif selects_many(rule.at) and target not in SEVERAL:
        faults.add(
            at, f"{rule.name} can have several values, and {target} holds one; keep it as {' or '.join(SEVERAL)}"
        )
    elif target in IN_THE_CLEAR and not rule.plain:
        faults.add(
            at,
            f"{target} can be read in the vault's own table; write 'stored: plain' beside it to accept that, or keep {rule.name} as a keyN",
        )
    elif "find" in section:
        faults.add(
            section.key("find"),
            "what can be asked of a field of the record schema is a matter of that schema; leave find out",
        )
    else:
        taken[target] = rule.name
