"""What an attachment may be called, and of which type it may be said to be."""

import re
import unicodedata
from typing import Final

#: Characters of a file name.
LONGEST: Final = 255
#: Bytes of it in UTF-8: with percent-encoding three times as many, which fits a header field.
LONGEST_ENCODED: Final = 1020

#: Format characters that words and emoji are written with (zero width joiner and non-joiner).
_JOINERS: Final = "\u200c\u200d"
#: What some file systems and fonts take for a path separator.
_SEPARATORS: Final = "/\\\u2044\u2215\u29f5\u29f8\ufe68\uff0f\uff3c"

#: What an attachment is said to be where nobody says more (RFC 2046, section 4.5.1).
UNKNOWN_TYPE: Final = "application/octet-stream"

_TOKEN: Final = (
    r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,127}"  # RFC 9110, section 5.6.2; the length is that of RFC 6838, section 4.2
)
_PARAMETER: Final = rf"[ \t]*;[ \t]*{_TOKEN}=(?:{_TOKEN}|\"[\x20\x21\x23-\x5b\x5d-\x7e]*\")"
_MIME_TYPE: Final = re.compile(rf"{_TOKEN}/{_TOKEN}(?:{_PARAMETER})*", re.ASCII)


def fault_of_filename(name: str) -> str | None:
    """What is wrong with a file name, as the rest of "The file name …"; ``None`` when nothing is. Never quotes it."""
    if not 1 <= len(name) <= LONGEST:
        return f"has 1 to {LONGEST} characters."
    if name in (".", "..") or any(separator in name for separator in _SEPARATORS):
        return "is a name alone, without a path."
    if any(_misleads(character) for character in name):
        return "has no control characters, nothing that turns the direction of text or is not seen, and no halves of characters."
    if len(name.encode()) > LONGEST_ENCODED:
        return f"has at most {LONGEST_ENCODED} bytes in UTF-8."
    return None


def _misleads(character: str) -> bool:
    """Whether a character makes a name look like another one (Unicode TR 36), or cannot be written to a file system or a header."""
    kind = unicodedata.category(character)
    return kind in ("Cc", "Cs", "Cn", "Zl", "Zp") or (kind == "Cf" and character not in _JOINERS)


def fault_of_mime_type(text: str) -> str | None:
    """What is wrong with a MIME type, as the rest of "The type …"; ``None`` when nothing is."""
    if len(text) > LONGEST or not _MIME_TYPE.fullmatch(text):
        return f"is written as in text/plain, in at most {LONGEST} characters (RFC 9110, section 8.3.1)."
    return None


def same_name(name: str) -> bytes:
    """What two spellings of one file name have in common (NFC); names differ by letter case."""
    return unicodedata.normalize("NFC", name).encode()
