"""Ends of records: deletes that only mark one in the application (``keep``), and lists whose lack
of a record says that its delete has happened (``complete``).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from proxy.model.schema import PathStep
from proxy.redactor.forks import each_operation
from proxy.redactor.load.conflicts import FileRules
from proxy.redactor.load.value_forms import Section
from proxy.redactor.load.yaml_tree import RuleFaults
from proxy.redactor.rules import Entity, IdSource, Operation, Position, Rule, Verb


def keep_of(section: Section, verb: Verb, entity: Entity, faults: RuleFaults) -> int | None:
    """For how long the values of a record stay that the operation deletes; ``None``: not at all."""
    if "keep" not in section:
        return None
    if verb is not Verb.DELETE:
        faults.add(
            section.key("keep"),
            f"'keep' says how long a delete keeps values, and this is something else ({verb}); "
            "leave it out" + ", or write delete where it marks records" * (verb is Verb.UPDATE),
        )
    keep: int | None = section.value("keep")
    if keep and entity.expires is not None and keep > entity.expires:
        faults.add(
            section.position("keep"),
            f"records of '{entity.name}' expire before that; write a shorter time here, or a "
            "longer one at expires",
        )
    return keep


def check_ends(operations: Iterable[Rule], faults: RuleFaults) -> None:
    """Note deletes that keep values until another one, where there is none."""
    whole = [one for one in operations if isinstance(one, Operation)]
    deletes = [one for one in each_operation(whole) if one.verb is Verb.DELETE]
    ended = {one.entity.name for one in deletes if one.keep is None}
    for one in deletes:
        if one.keep == 0 and one.entity.name not in ended and one.entity.expires is None:
            faults.add(
                one.position,
                f"no other delete of '{one.entity.name}' removes what this one keeps; add it, "
                "such as that of the bin, or write a duration, such as keep: 30d",
            )


def check_complete(operation: Operation, section: Section, faults: RuleFaults) -> None:
    """Note a list that is said to be complete, and could not be known as that."""
    if not operation.response.complete:
        return
    creates = operation.verb is Verb.CREATE
    at = section.value("response").key("complete")
    if operation.verb in (Verb.UPDATE, Verb.DELETE):
        _check_changes(operation, at, faults)
        return
    body, ident = operation.response.body, operation.response.id
    objects = body.objects if body is not None and body.each else None
    way = objects[:-1] if objects and objects[-1] is PathStep.EACH else objects
    gets = operation.verb is Verb.READ and operation.methods == ("GET",) and "match" in section
    if not (gets or creates):
        faults.add(
            at,
            "a complete list is the whole answer to a GET; write it at match: GET and a read, at a "
            "create of several records that lists those it has made, or at a change of several",
        )
    elif gets and ("{" in operation.template or operation.when):
        faults.add(
            at,
            "a path with a placeholder, or a condition, chooses some of the records; leave "
            "'complete' out, or write it at the list of all of them",
        )
    elif way is None or not all(isinstance(step, str) for step in way):
        faults.add(
            at, "a complete list says where its records stand; write each, such as $.items[*]"
        )
    elif ident is None or ident.source is not IdSource.BODY or ident.absolute:
        faults.add(
            at, "only ids tell which records a list lacks; write id: $.id with the member of each"
        )


def _check_changes(operation: Operation, at: Position, faults: RuleFaults) -> None:
    """Note a change that is said to be complete where nothing could be missing, or is named."""
    named = operation.response.id
    one = operation.id is not None and operation.id.source is IdSource.PATH
    statuses = operation.response.success.union(
        *(condition.statuses for condition in operation.response.conditions)
    )
    if one and max(statuses, default=0) < 300:  # a redirect does not show the record
        faults.add(at, "a success means the one record of this request anyway; leave it out")
    elif named is not None and PathStep.EACH in named.path:
        faults.add(
            at,
            "the answer names the records that were changed, and others were not; leave out "
            "'complete', or the id",
        )


def check_lists(files: Sequence[FileRules], faults: RuleFaults) -> None:
    """Note complete lists of some of the records of a schema."""
    owners = Counter(
        _shared(draft.entity) for draft in (draft for file in files for draft in file.entities)
    )
    for one in _complete(files):
        if owners[_shared(one.entity)] > 1:
            faults.add(
                one.position,
                f"{one.label} is 'complete', and the schema '{one.entity.schema.name}' holds "
                "records of another entity, too, which it does not list; leave 'complete' out, "
                "or give the entity a 'schema' of its own",
            )


def warn_of_lists(files: Sequence[FileRules]) -> Iterator[str]:
    """Warn of what an operator claims with ``complete`` where callers differ."""
    for one in _complete(files):
        if one.endpoint.views:
            yield (
                f"{one.position}: {one.label} is 'complete', and callers have roles: values of a "
                "record that the application hides from one of them are erased, if its delete is "
                "in doubt; leave 'complete' out unless every caller is listed every record"
            )


def _complete(files: Sequence[FileRules]) -> Iterator[Operation]:
    every = (one for file in files for one in each_operation(file.operations))
    return (one for one in every if one.response.complete and one.verb is Verb.READ)


def _shared(entity: Entity) -> tuple[str, str]:
    """Return the name under which the vault stores the records of an entity."""
    return entity.schema.name.lower(), entity.name if entity.kept_as is not None else ""
