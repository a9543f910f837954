"""Which functions are installed: entry points of the group ``domicile.functions``, read once at
start.

Nothing is imported here: the code of a function is loaded in its worker alone.
"""

import re
from collections.abc import Mapping
from importlib.metadata import entry_points

from proxy.errors import Code, Detail, VaultError

ENTRY_POINT_GROUP = "domicile.functions"

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def installed() -> Mapping[str, str]:
    """Target (``package.module:name``) by name of the function, in order of the alphabet.

    Raises ``VaultError(BAD_SETTINGS)`` with one detail per fault: a name that cannot stand in a
    path, one that two packages give, a target without a function.
    """
    targets: dict[str, str] = {}
    faults: list[Detail] = []
    for point in sorted(entry_points(group=ENTRY_POINT_GROUP)):
        package = point.dist.name if point.dist is not None else "a package without a name"
        source = f"{package}: {point.name} = {point.value}"
        if not _NAME.fullmatch(point.name):
            faults.append(
                Detail(
                    source,
                    "a name has letters, digits, - and _, 64 at most, and begins with a letter",
                )
            )
        elif not _TARGET.fullmatch(point.value):
            faults.append(Detail(source, "write package.module:function"))
        elif targets.setdefault(point.name, point.value) != point.value:
            faults.append(
                Detail(source, "another package has a function of that name: remove one of the two")
            )
    if faults:
        raise VaultError(
            Code.BAD_SETTINGS, "Functions that are installed cannot be used.", tuple(faults)
        )
    return targets
