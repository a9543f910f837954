"""Whether two selectors can select the same place, or one a place inside the other's."""

from functools import cache

from proxy.model.path import Path, Step
from proxy.redactor.names import fold


def selects_many(path: Path) -> bool:
    """Whether the selector can select several places."""
    return any(isinstance(step, Step) for step in path)


def overlap(one: Path, other: Path) -> bool:
    """Whether the two can select the same place, or the longer a place inside the shorter's.

    With ``..`` only the same place counts: ``$..email`` could always lie inside another field's value.
    """
    nested = Step.DEEP not in one and Step.DEEP not in other

    @cache
    def meets(left: int, right: int) -> bool:
        if left == len(one) or right == len(other):
            return nested or (left == len(one) and right == len(other))
        first, second = one[left], other[right]
        if first is Step.DEEP:
            return meets(left + 1, right) or meets(left, right + 1)
        if second is Step.DEEP:
            return meets(left, right + 1) or meets(left + 1, right)
        return _same_step(first, second) and meets(left + 1, right + 1)

    return meets(0, 0)


def _same_step(one: str | int | Step, other: str | int | Step) -> bool:
    if isinstance(one, Step) and isinstance(other, Step):
        return one is other
    if isinstance(one, Step):
        one, other = other, one
    if other is Step.EACH:
        return isinstance(one, int)
    if other is Step.MEMBERS:
        return isinstance(one, str)
    if isinstance(one, str) and isinstance(other, str):
        return fold(one) == fold(other)  # applications that ignore letter case would bind both
    return one == other
