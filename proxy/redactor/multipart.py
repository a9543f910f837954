"""Bodies of ``multipart/form-data`` (RFC 7578): their parts, and where the content of each stands.

Frameworks disagree on unusual forms, and one of their readings could match a rule's name. So the
grammar is exactly that of browsers: one boundary that occurs only between parts, one ``Content-
Disposition`` per part, no escapes in names, no coding, nothing before the first part or after the
last.

The name of a file is read where a rule names it: plain, or coded (RFC 8187). Applications decode it
in several ways, or cut it; a token stands in place of all of it, so none of them matters.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from proxy.errors import Code, VaultError
from proxy.redactor.message import RawHeaders, header

_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_TYPE: Final = re.compile(rb"[ \t]*multipart/form-data[ \t]*(?=;|\Z)", re.IGNORECASE)
_TYPE_PARAMETER: Final = re.compile(
    rb'[ \t]*;[ \t]*(boundary|charset)=(?:"([0-9A-Za-z\'()+_,./:=? -]+)"'
    rb"|([0-9A-Za-z'()+_,./:=?-]+))[ \t]*",
    re.IGNORECASE,
)
_CSV: Final = re.compile(
    rb"[ \t]*(?:text/csv|application/csv|text/tab-separated-values)[ \t]*"
    rb'(?:;[ \t]*(?:charset="?(?:utf-?8|us-ascii|ascii)"?|header="?present"?)[ \t]*)*',
    re.IGNORECASE,
)
_FIELD: Final = re.compile(rf"({_TOKEN}):([^\r\n\0]*)")
#: A quoted text holds no quote, and no backslash that some would take for the escape of one.
_DISPOSITION: Final = re.compile(
    r'[ \t]*;[ \t]*(name|filename|filename\*)=("(?:[^"\\]|\\(?!"))*"|' + _TOKEN + r")[ \t]*"
)
#: Escapes of some parsers, and encoded words (RFC 2047), which those of Java decode in names.
_ESCAPED: Final = re.compile(r"\\|%(?:22|0[AaDd]|5[CcBbDd])|[\0-\x1f\x7f]|=\?")
_TEXT: Final = re.compile(
    r'text/plain(?:[ \t]*;[ \t]*charset="?(?:utf-?8|us-ascii|ascii)"?)?', re.IGNORECASE
)
_CODINGS: Final = ("7bit", "8bit", "binary")
#: As browsers write what would end the name of a file (HTML standard, "multipart/form-data").
_BROWSER_ESCAPES: Final = (("%22", '"'), ("%0D", "\r"), ("%0A", "\n"))
#: What only some programs decode or end a name at.
_UNCLEAR: Final = re.compile(r"[\0-\x1f\x7f]|=\?")
#: A coded name: charset, language, and bytes that are percent-encoded where they are not allowed.
_CODED: Final = re.compile(
    r"(?i:(utf-8|iso-8859-1))'[A-Za-z0-9-]*'((?:[!#$&+.^_`|~0-9A-Za-z-]|%[0-9A-Fa-f]{2})*)"
)
#: The way to a file on the computer of the caller, as old browsers and some programs send it.
_FULL_PATH: Final = re.compile(r"(?s)(?:[A-Za-z]:(?=[\\/])|(?=\\\\|/)).*[\\/](?=[^\\/])")

_LONGEST_BOUNDARY: Final = 70
_LONGEST_HEAD: Final = 8192


class SentName(NamedTuple):
    """A name of a file as it was sent, and its place in the body, without quotes and charset."""

    start: int
    end: int
    text: str
    coded: bool

    def read(self) -> str:
        """The name, of a full path the last part.

        Raises ``VaultError`` (UNREADABLE_BODY) where programs read it otherwise.
        """
        name = _decoded(self.text) if self.coded else self.text
        if name is None or _UNCLEAR.search(name):
            raise _unreadable("has the name of a file in a coding that only some programs read")
        if not self.coded:
            for escaped, sign in _BROWSER_ESCAPES:
                name = name.replace(escaped, sign)
        path = _FULL_PATH.match(name)
        return name if path is None else name[path.end() :]


def _decoded(coded: str) -> str | None:
    match = _CODED.fullmatch(coded)
    try:
        return unquote_to_bytes(match[2]).decode(match[1]) if match is not None else None
    except UnicodeDecodeError:
        return None


class FormPart(NamedTuple):
    """A part. ``is_file``: it is a file, or anything else but plain text."""

    name: str
    is_file: bool
    start: int
    end: int
    file_names: tuple[SentName, ...] = ()


def is_multipart(headers: RawHeaders) -> bool:
    """Whether a message says that its body is ``multipart/form-data``."""
    return _TYPE.match(header(headers, b"content-type") or b"") is not None


def is_csv(headers: RawHeaders) -> bool:
    """Whether a message says that its body is CSV, in UTF-8 where it names a charset."""
    return _CSV.fullmatch(header(headers, b"content-type") or b"") is not None


def form_parts(headers: RawHeaders, body: bytes, limit: int) -> Iterator[FormPart]:
    """The parts in their order.

    Raises ``VaultError``: UNREADABLE_BODY for what not every application reads alike, TOO_LARGE for
    more than ``limit`` parts.
    """
    delimiter = b"--" + _boundary(header(headers, b"content-type") or b"")
    ends = [match.start() for match in re.finditer(re.escape(delimiter), body)]
    if len(ends) > limit + 1:
        raise VaultError(
            Code.TOO_LARGE,
            f"The form has more than {limit} parts: send fewer, or raise limits.form_fields.",
        )
    size = len(delimiter)
    if len(ends) < 2 or ends[0] or body[ends[-1] + size :] not in (b"--", b"--\r\n"):
        raise _unreadable("is cut off, or has something before its first part or behind its last")
    for first, last in pairwise(ends):
        if body[first + size : first + size + 2] != b"\r\n" or body[last - 2 : last] != b"\r\n":
            raise _unreadable("has its boundary elsewhere than alone on a line")
        yield _part(body, first + size + 2, last - 2)


def _boundary(declared: bytes) -> bytes:
    match = _TYPE.match(declared)
    at = match.end() if match is not None else len(declared)
    values: dict[bytes, bytes] = {}
    while (parameter := _TYPE_PARAMETER.match(declared, at)) is not None:
        name = parameter[1].lower()
        if name in values:
            raise _unreadable(f"has its {name.decode()} twice")
        values[name] = parameter[2] or parameter[3]
        at = parameter.end()
    boundary = values.get(b"boundary", b"")
    charset = values.get(b"charset", b"utf-8").lower()
    if at < len(declared) or not 0 < len(boundary) <= _LONGEST_BOUNDARY or boundary[-1:] == b" ":
        raise _unreadable("has no boundary, or parameters beside it")
    if charset not in (b"utf-8", b"utf8", b"us-ascii", b"ascii"):
        raise _unreadable("is in another charset than UTF-8")
    return boundary


def _part(body: bytes, start: int, end: int) -> FormPart:
    stop = body.find(b"\r\n\r\n", start, min(end, start + _LONGEST_HEAD))
    content = stop + 4
    if stop < 0 or content > end:
        raise _unreadable("has a part without a head, or with a very long one")
    fields = _fields(body[start:stop], start)
    name, is_file, file_names = _disposition(*fields.get("content-disposition", ("", 0)))
    if fields.get("content-transfer-encoding", ("binary", 0))[0].lower() not in _CODINGS:
        raise _unreadable("has a part in a transfer coding")
    declared = fields.get("content-type", ("text/plain", 0))[0]
    if declared.lower().startswith("multipart/"):
        raise _unreadable("has a part that is made of parts")
    is_file = is_file or _TEXT.fullmatch(declared) is None
    return FormPart(name, is_file, content, end, file_names)


def _fields(head: bytes, at: int) -> dict[str, tuple[str, int]]:
    """The fields of a part by lower-case name, each with its place; ``at``: that of the head."""
    fields: dict[str, tuple[str, int]] = {}
    try:
        lines = head.decode().split("\r\n")
    except UnicodeDecodeError:
        raise _unreadable("has the head of a part that is not UTF-8") from None
    for line in lines:
        match = _FIELD.fullmatch(line)
        if match is None or match[1].lower() in fields:
            raise _unreadable("has a field of a part twice, or one that is none")
        text = match[2].lstrip(" \t")
        fields[match[1].lower()] = text.rstrip(" \t"), at + len(line) - len(text)
        at += len(line.encode()) + 2
    return fields


def _disposition(text: str, start: int) -> tuple[str, bool, tuple[SentName, ...]]:
    """The name of a part, whether it names a file, and how; ``start``: the place of the text."""
    kind, at = "form-data", len("form-data")
    values: dict[str, str] = {}
    file_names: list[SentName] = []
    while (parameter := _DISPOSITION.match(text, at)) is not None:
        if parameter[1] in values:
            raise _unreadable(f"has a part with two values of {parameter[1]}")
        # PHP takes single quotes for quotes; RFC 8187 has two of them in ``filename*``
        single = 0 if parameter[2].startswith('"') else parameter[2].count("'")
        if single and (single != 2 or parameter[1] != "filename*"):
            raise _unreadable(f"has a part with single quotes round its {parameter[1]}")
        values[parameter[1]] = parameter[2]
        if parameter[1] != "name":
            file_names.append(_sent_name(text, parameter, start))
        at = parameter.end()
    if not text.startswith(kind) or at < len(text) or "name" not in values:
        raise _unreadable("has a part without a name, or with more than a name and a file's name")
    name = values["name"].strip('"')
    if _ESCAPED.search(name):
        raise _unreadable("has a part with escapes in its name")
    return name, len(values) > 1, tuple(file_names)


def _sent_name(text: str, parameter: re.Match[str], start: int) -> SentName:
    quotes = int(parameter[2].startswith('"'))
    first, last = parameter.start(2) + quotes, parameter.end(2) - quotes
    coded = parameter[1] == "filename*"
    said = text[first:last]
    start += len(text[:first].encode())
    end = start + len(said.encode())
    if coded:  # charset and language stay
        start = end - len(said[said.rfind("'") + 1 :].encode())
    return SentName(start, end, said, coded)


def _unreadable(what: str) -> VaultError:
    return VaultError(
        Code.UNREADABLE_BODY,
        f"The multipart form {what}: send it as browsers do (RFC 7578), in UTF-8.",
    )
