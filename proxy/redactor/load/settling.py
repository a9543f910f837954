"""Entities of the record schema in its names: the last step of a load, when every check is done (``keeping``)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from proxy.model.schema import Field, Schema
from proxy.redactor.load.checks import FileRules
from proxy.redactor.rules import BodyPlace, Entity, Operation

_T = TypeVar("_T")


def settled(file: FileRules) -> FileRules:
    """The file with entities of the record schema, and their operations, in the names of that schema."""
    entities = {draft.entity.name: _entity(draft.entity) for draft in file.entities}
    drafts = tuple(replace(draft, entity=entities[draft.entity.name]) for draft in file.entities)
    operations = tuple(_operation(one, entities[one.entity.name]) for one in file.operations)
    return replace(file, entities=drafts, operations=operations)


def _entity(entity: Entity) -> Entity:
    names = entity.kept_as
    if names is None:
        return entity
    fields = {names.get(name, name): replace(rule, name=names.get(name, name)) for name, rule in entity.fields.items()}
    schema = Schema(entity.schema.name, tuple(Field(rule.name, kind=rule.kind) for rule in fields.values()))
    return replace(entity, fields=fields, schema=schema)


def _operation(operation: Operation, entity: Entity) -> Operation:
    names = entity.kept_as
    if names is None:
        return operation
    request = replace(
        operation.request,
        body=_body(operation.request.body, names),
        query={parameter: names.get(field, field) for parameter, field in operation.request.query.items()},
    )
    response = replace(operation.response, body=_body(operation.response.body, names))
    return replace(operation, entity=entity, request=request, response=response)


def _body(body: BodyPlace | None, names: Mapping[str, str]) -> BodyPlace | None:
    if body is None:
        return None
    form = {member: names.get(field, field) for member, field in body.form.items()}
    return replace(body, fields=_named(body.fields, names), anchored=_named(body.anchored, names), form=form)


def _named(places: Mapping[str, _T], names: Mapping[str, str]) -> dict[str, _T]:
    return {names.get(field, field): place for field, place in places.items()}
