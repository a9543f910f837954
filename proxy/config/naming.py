"""How the names of settings hang together, and what somebody who wrote an unknown one may have meant."""

import difflib
import re
from typing import Final

from proxy.config.setting import Setting
from proxy.config.table import SETTINGS

#: Where an application has settings of its own: ``applications.crm.tls.ca`` counts before ``upstream.tls.ca``.
APPLICATIONS: Final = "applications"

#: Names that hold other names: ``listen``, ``upstream.tls`` and so on.
SECTIONS: Final = frozenset(name[: place.start()] for name in SETTINGS for place in re.finditer(r"\.", name))


def general(name: str) -> str:
    """The setting that counts where an application has none of its own; any other name as it is."""
    first, _, rest = name.partition(".")
    return f"upstream.{rest.partition('.')[2]}" if first == APPLICATIONS and "." in rest else name


def find(name: str) -> Setting | None:
    """The setting of that name, or ``None``."""
    return SETTINGS.get(general(name))


def is_section(name: str) -> bool:
    """Whether the name holds other names."""
    return (
        name == APPLICATIONS
        or (name.startswith(f"{APPLICATIONS}.") and name.count(".") == 1)
        or general(name) in SECTIONS
    )


def members(section: str) -> list[str]:
    """The names directly inside a section, without the section's own; ``""`` for the outermost."""
    if not section:
        return sorted({name.partition(".")[0] for name in SETTINGS} | {APPLICATIONS})
    inside = [name.removeprefix(f"{section}.") for name in SETTINGS if name.startswith(f"{section}.")]
    return list(dict.fromkeys(name.partition(".")[0] for name in inside))


def nearest(name: str) -> str:
    """What somebody who wrote an unknown name may have meant, as a sentence."""
    if general(name) != name:
        return nearest(general(name)).replace("upstream", ".".join(name.split(".")[:2]))
    section, _, last = name.rpartition(".")
    known = members(section) if section in SECTIONS or not section else []
    if close := difflib.get_close_matches(last, known, n=1):
        return f"did you mean {f'{section}.{close[0]}' if section else close[0]}?"
    if elsewhere := [setting for setting in SETTINGS if setting.rpartition(".")[2] == last]:
        return f"did you mean {elsewhere[0]}?"
    if known and section:
        return f"{section} has {', '.join(known)}"
    if close := difflib.get_close_matches(name, SETTINGS, n=1):
        return f"did you mean {close[0]}?"
    return f"there are {', '.join(members(''))}"
