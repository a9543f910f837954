"""Whether what rules keep among the records of the record-based family may be kept there as the settings have it (``schema: records``)."""

from collections.abc import Sequence

from proxy.errors import Code, Detail, VaultError
from proxy.model.schema import Field, Schema, Storage
from proxy.redactor.rules import Entity, FieldRule


def unfit(entities: Sequence[Entity], schema: Schema) -> tuple[Detail, ...]:
    """Each field that is kept as one of the schema which is kept otherwise than the rules say: the entity's name and the field's."""
    return tuple(
        Detail(f"{entity.name}.{name}", f"is kept as {kept}, {text}")
        for entity in entities
        for name, kept in (entity.kept_as or {}).items()
        if (text := _unfit(schema.field(kept), entity.fields[kept]))
    )


def refuse_unfit(entities: Sequence[Entity], schema: Schema) -> None:
    """Raise ``VaultError(BAD_RULES)`` where there is such a field."""
    if faults := unfit(entities, schema):
        raise VaultError(
            Code.BAD_RULES, "Rules keep values in keys of records that the settings keep otherwise.", faults
        )


def _unfit(field: Field, rule: FieldRule) -> str:
    """Why a value must not be kept in the field; empty when it may."""
    if field.partial_match:
        return "of which records.partial_match lets parts be searched for, and those of what rules collect are not: take another key"
    if field.storage is Storage.INDEXED and not rule.plain:
        return "which can be read in the vault's own table: write 'stored: plain' beside it to accept that, or take another key"
    return ""
