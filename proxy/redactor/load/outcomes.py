"""``success`` compiled: the statuses that count as they are, and those that count on a condition."""

from proxy.redactor.load.faults import Faults
from proxy.redactor.load.forms import Item, Section
from proxy.redactor.rules import Condition, IdPlace, Source
from proxy.redactor.template import overlaps, parse_template

Success = tuple[frozenset[int], tuple[Condition, ...]]


def compile_success(section: Section | None, default: frozenset[int], faults: Faults) -> Success:
    """The statuses and conditions that ``response`` names; the default where it names none."""
    items: list[Item] = [] if section is None else section.value("success", [])
    plain = frozenset(item.value for item in items if isinstance(item.value, int))
    conditions = [_condition(item, plain, faults) for item in items if isinstance(item.value, Section)]
    if not plain and not conditions:
        return default, ()
    return plain, tuple(conditions)


def statuses(success: Success) -> frozenset[int]:
    """Every status that may mean success."""
    return success[0].union(*(condition.statuses for condition in success[1]))


def check_named(section: Section, place: IdPlace | None, success: Success, faults: Faults) -> None:
    """Note an id in ``Location`` that no answer of success can tell, because all of them lead elsewhere."""
    plain, conditions = success
    if place is None or place.source is not Source.HEADER or place.name != "location" or place.template[:1] != "/":
        return
    template = parse_template(place.template)
    if not plain and not any(
        not one.locations or any(overlaps(template, path) for path in one.locations) for one in conditions
    ):
        faults.add(
            section.place("id"),
            f"no redirect of 'success' leads to {place.template}, so this id is never told; name that path under location",
        )


def _condition(item: Item, plain: frozenset[int], faults: Faults) -> Condition:
    section: Section = item.value
    named: list[Item] = [one for one in section.value("status", []) if one.value is not None]
    locations: list[Item] = section.value("location", [])
    if not section.strange and "status" in section and "location" not in section and "text" not in section:
        faults.add(item.at, "this names no condition; add location or text, or write the status alone")
    for one in named:
        if one.value in plain:
            faults.add(one.at, f"{one.value} stands in 'success' without a condition as well; keep one of the two")
        elif locations and not 300 <= one.value < 400:
            faults.add(
                one.at, f"'location' is about redirects, and {one.value} is none; write a status from 300 to 399"
            )
    return Condition(
        frozenset(one.value for one in named),
        tuple(one.value for one in locations if one.value is not None),
        section.value("text", ""),
    )
