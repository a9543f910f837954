"""``keep``: deletes that only mark a record in the application, so that its values stay."""

from collections.abc import Iterable

from proxy.redactor.forks import each_operation
from proxy.redactor.load.forms import Section
from proxy.redactor.load.yaml_tree import RuleFaults
from proxy.redactor.rules import Entity, Operation, Rule, Verb


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
