r"""Equality of member names for lenient readers: letter case, escapes, and JSON spellings.

A rule names a member once, and applications bind it in their own ways: Go and .NET ignore letter
case, and every parser undoes ``\u0065``. A name that only some of them would take for a declared
one makes a message ambiguous.
"""

import re
import unicodedata
from collections.abc import Iterable

#: Letters that Java's and .NET's case-insensitive look-ups take for "i", though Unicode case
#: folding does not.
_DOTTED = str.maketrans({"\u0130": "i", "\u0131": "i"})

#: JSON's two-character escapes (RFC 8259, section 7), by character.
_SHORT_NAME = {
    '"': '"',
    "\\": "\\",
    "/": "/",
    "\b": "b",
    "\f": "f",
    "\n": "n",
    "\r": "r",
    "\t": "t",
}


def fold_name(name: str) -> str:
    """Fold a name as careless readers do: letter case, U+017F, U+212A; C ends at NUL."""
    return name.partition("\0")[0].translate(_DOTTED).casefold()


def fold_all(names: str) -> str:
    """``fold`` of a text of several names, in which NUL ends nothing."""
    return names.translate(_DOTTED).casefold()


def without_format(name: str) -> str:
    """The name without signs of no width, byte order marks among them."""
    if name.isascii():
        return name
    return "".join(char for char in name if unicodedata.category(char) != "Cf")


def needle(name: str) -> bytes:
    """The name as a JSON string with the fewest escapes."""
    out = "".join(f"\\{_SHORT_NAME[char]}" if char in '"\\' else char for char in name)
    return f'"{out}"'.encode()


def escapes(names: Iterable[str]) -> re.Pattern[bytes]:
    """Finds the sign that one of the names may be spelled with escapes somewhere in a document.

    For plain ASCII names that is an escaped ASCII character, which serialisers hardly ever write;
    for other names any escape will do.
    """
    text = "".join(names)
    if any(char in _SHORT_NAME or char < " " for char in text):
        return re.compile(rb"\\")
    return re.compile(rb"\\u00[2-7]" if text.isascii() else rb"\\u")
