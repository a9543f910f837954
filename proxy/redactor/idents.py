"""Ids of records as the vault compares them: one spelling where the spelling means nothing. What is forwarded stays as it came."""

import re
from typing import Final

#: UUIDs and other long ids of hexadecimal digits. Nobody has two of them that differ in the case of a letter alone.
_HEXADECIMAL: Final = re.compile(r"[0-9A-Fa-f-]{24,}")
_LONGEST_NUMBER: Final = 20  # 64 bits


def plain(text: str) -> str:
    """The id, in lower case where it is a long one of hexadecimal digits (RFC 9562 section 4)."""
    if len(text) < 24 or _HEXADECIMAL.fullmatch(text) is None:
        return text
    return text.lower()


def number(text: str) -> str | None:
    """How an application that reads ids as numbers writes this one: ``1`` for ``01``; ``None`` where it is written so, or is none."""
    if text[:1].isalpha() or (text.isdecimal() and text[0] != "0" and text.isascii()):
        return None
    try:
        plainly = str(int(text)) if len(text) <= _LONGEST_NUMBER else text
    except ValueError:
        return None
    return None if plainly == text else plainly
