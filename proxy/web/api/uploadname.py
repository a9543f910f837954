"""What an uploaded file is called: by the field ``x-filename`` of the request, or by the head of the part that it is in."""

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote_to_bytes

from proxy.errors import Code, Detail, VaultError
from proxy.model.filename import fault_of_filename

HEADER: Final = "x-filename"

_ESCAPED: Final = re.compile(r"%[0-9A-Fa-f]{2}", re.ASCII)
_EXTENDED: Final = re.compile(r"utf-8'[A-Za-z0-9-]*'", re.ASCII | re.IGNORECASE)  # RFC 8187, section 3.2
_ANY_CASE: Final = re.IGNORECASE
_IN_PART: Final = re.compile(r';[ \t]*filename=(?:"([^"]*)"|([^\s;"]+))', _ANY_CASE)
_EXTENDED_IN_PART: Final = re.compile(r";[ \t]*filename\*=([^\s;]+)", _ANY_CASE)

#: What browsers and common libraries escape in the name of a part, and nothing else (HTML, "multipart/form-data encoding algorithm").
_OF_PARTS: Final = {"%22": '"', "%0A": "\n", "%0D": "\r"}
_FEW: Final = re.compile("|".join(_OF_PARTS))


def of_header(given: Sequence[str]) -> str:
    """The name in the header field: as it is, percent-encoded, or as RFC 8187 writes it; UTF-8 in every case.

    Raises ``VaultError`` (INVALID_FILE), as ``of_part`` does.
    """
    if len(given) != 1:
        raise _unusable(HEADER, "Has to be there, once.")
    text = given[0].strip()
    extended = _EXTENDED.match(text)
    if extended is not None or _ESCAPED.search(text):
        return _checked(_decoded(text[extended.end() if extended else 0 :], HEADER), HEADER)
    return _checked(text, HEADER)


def of_part(disposition: str) -> str:
    """The name in the ``Content-Disposition`` of a part: ``filename*`` (RFC 8187), or else ``filename``."""
    if (extended := _EXTENDED_IN_PART.search(disposition)) is not None:
        charset = _EXTENDED.match(extended[1])
        if charset is None:
            raise _unusable("file", "Its filename* has to be UTF-8.")
        return _checked(_decoded(extended[1][charset.end() :], "file"), "file")
    found = _IN_PART.search(disposition)
    if found is None:
        raise _unusable("file", "The part names no file: filename is missing in its Content-Disposition.")
    return _checked(_FEW.sub(lambda escaped: _OF_PARTS[escaped[0]], found[1] or found[2] or ""), "file")


def _decoded(text: str, place: str) -> str:
    try:
        return unquote_to_bytes(text.encode("utf-8", "surrogateescape")).decode()
    except UnicodeDecodeError:
        raise _unusable(place, "What is percent-encoded has to be UTF-8.") from None


def _checked(name: str, place: str) -> str:
    if (fault := fault_of_filename(name)) is not None:
        raise _unusable(place, f"A file name {fault}")
    return name


def _unusable(place: str, text: str) -> VaultError:
    return VaultError(Code.INVALID_FILE, "The upload lacks a file name that can be used.", (Detail(place, text),))
