"""Places in a JSON document, as steps from a root.

A ``Path`` is what a JSONPath selector of a rule file compiles to: member names, array elements, wildcards
and descent; no filters, no slices, no scripts.
"""

import enum


class Step(enum.Enum):
    """The steps that are not a plain name or index.

    ``[*]`` and ``.*`` select the same, all elements of an array or members of an object (RFC 9535, 2.3.2); the
    spelling is kept because it tells which of both a rule expects, and the fast path reckons with that.
    """

    EACH = "[*]"  #: every element, an array is expected
    MEMBERS = ".*"  #: every member, an object is expected
    DEEP = ".."  #: the node itself and everything below it


#: Steps from the root (or from an object): ``str`` a member, ``int`` an element (0 or more), or a ``Step``.
Path = tuple[str | int | Step, ...]


def spell(path: Path, root: str = "$") -> str:
    """The path as JSONPath text, for messages and ``rules explain``."""
    out = root
    for step in path:
        if isinstance(step, int):
            out += f"[{step}]"
        elif isinstance(step, str):
            plain = step.replace("_", "a").isalnum() and not step[0].isdigit()
            separator = "" if out.endswith("..") else "."
            out += separator + step if plain else "[" + repr(step) + "]"
        elif step is Step.MEMBERS:
            out += "*" if out.endswith("..") else ".*"
        else:
            out += step.value
    return out
