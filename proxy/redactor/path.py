"""Every usual reading of a request path, so that no spelling of it leads past a rule.

Servers and frameworks disagree on the meaning of a path: some decode escapes twice, some take
``%2f`` or a backslash for a slash, some drop ``;x`` parameters before they resolve dot segments and
some after, some take the first name after two slashes for a host, and some stop at NUL. Invalid
UTF-8 is dropped by some, replaced by others, and taken for Latin-1 by older ones. A reading is the
list of segments from one such order of steps. The target itself is never changed: rules are matched
against readings, and the original is forwarded.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from proxy.errors import Code, VaultError

#: One reading of a path: its segments, without empty ones.
PathReading = tuple[bytes, ...]

_BLANK = b" \t\r\n\v\f\0"

#: Distinct intermediate spellings looked at before a path counts as unreadable; honest paths need
#: fewer than ten.
MOST_READINGS = 256
#: Bytes of all of them, for each is processed whole; the number of spellings is limited for every
#: path.
MOST_BYTES = 16 * 1024
LEAST = 6

_ESCAPE = re.compile(rb"%(?:[0-9A-Fa-f]{2}|[uU])")
_SLASHES = re.compile(rb"/{2,}")
_PARAMETERS = re.compile(rb";[^/]*")
_SEPARATOR_ESCAPES = re.compile(rb"%(2f|5c)", re.IGNORECASE)
_WIDE_ESCAPE = re.compile(rb"%[uU]00([0-9A-Fa-f]{2})")
#: ASCII written in two or three bytes, as no UTF-8 may (RFC 3629 section 3) and lenient decoders
#: take it all the same.
_OVERLONG = re.compile(rb"[\xc0\xc1][\x80-\xbf]|\xe0[\x80\x81][\x80-\xbf]")
_FORMAT = re.compile(rb"\.[A-Za-z0-9_-]{1,16}\Z")
#: A program that serves every address below its own, as PHP's frameworks do.
_FRONT_CONTROLLER = re.compile(rb"(?i)[\w-]+\.php\d?")
#: A path that goes on behind the name of a program.
_SCRIPT = re.compile(rb"(?is)(.*?/[^/]+\.php\d?)/.")
#: The parameter by which WordPress is told a path; PHP reads ``_`` in all.
_ROUTE = re.compile(rb"[ +]*rest[_. +\[]route")
#: A path of the interface of WordPress, by the usual prefix or by its own namespaces.
_REST = re.compile(r"(?:.*(/wp-json)/|(.*)/w[pc]/v[0-9]+/)")
#: Folders in which such an application may lie.
_FOLDERS = 8
#: Last segments by which page libraries ask for the data of a page alone: SvelteKit, Qwik, Nuxt,
#: React Router.
_PAGE_DATA = frozenset({b"__data.json", b"q-data.json", b"_payload.json", b"_root.data"})
_QUERY_OR_FRAGMENT = re.compile(rb"[?#]")
_ABSOLUTE = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)")


class Target(NamedTuple):
    """A request target in its parts; ``authority`` only for the absolute form (RFC 9112, 3.2.2)."""

    path: bytes
    query: bytes
    authority: bytes | None
    marked: bytes = b""  #: the path with a fragment in it, which Kestrel and Go know none of


@lru_cache(maxsize=256)
def bare_host(host: str) -> str:
    """A host in lower case without port and trailing dot; ``[::1]:80`` gives ``[::1]``."""
    host = host.strip().lower()
    if not host.endswith("]"):
        name, colon, port = host.rpartition(":")
        host = name if colon and (port.isdigit() or not port) else host
    return host.removesuffix(".")


def split_target(target: bytes) -> Target:
    """Origin form, absolute form or ``*`` (read as ``/``) in parts.

    A fragment, which should not be there, is dropped.
    """
    authority = None
    if not target.startswith(b"/"):
        if absolute := _ABSOLUTE.match(target):
            authority = absolute.group(1).rpartition(b"@")[2]
            target = target[absolute.end() :]
        target = b"/" + target.removeprefix(b"*").removeprefix(b"/")
    path, _, query = target.partition(b"?")
    if target.find(b"#") >= 0:
        before, mark, _ = path.partition(b"#")
        return Target(before, query.partition(b"#")[0], authority, path if mark else b"")
    return Target(path, query, authority)


def is_plain(path: bytes) -> bool:
    """Whether the path begins with a slash and has one reading only: its own segments."""
    if not path.isascii() and not is_text(path):
        return False
    text = path.decode("latin-1")  # searching text costs a fifth of searching bytes
    return text[:1] == "/" != text[-1:] and not (
        "%" in text or "//" in text or "/." in text or ";" in text or "\\" in text or "#" in text
    )


def is_text(data: bytes) -> bool:
    """Whether the bytes are UTF-8, as nearly always."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def path_segments(path: bytes) -> PathReading:
    """The path split at slashes, empty segments dropped, nothing decoded."""
    return tuple(part for part in path.split(b"/") if part)


def unmistakable(path: bytes, marked: bytes = b"") -> tuple[PathReading, ...]:
    """The readings of a path that leave its segments where they stand: decoded once and without
    parameters, and ``looser`` ones. None of a path with dot segments, in its fragment either.

    By others some applications carry out something else, and its success would end values that
    nobody was to change.
    """
    parts = [unquote_to_bytes(part.partition(b";")[0]) for part in path.split(b"/")]
    reading = tuple(filter(None, parts))
    if b"." in parts or b".." in parts or (marked and not unmistakable(marked)):
        return ()
    return reading, *looser(reading)


def readings_of(parts: Target) -> tuple[PathReading, ...]:
    """Every usual reading of a target's path. Raises as ``readings``."""
    ways = (path_segments(parts.path),) if is_plain(parts.path) else readings(parts.path)
    return (*ways, *readings(parts.marked)) if parts.marked else ways


def readings(path: bytes) -> tuple[PathReading, ...]:
    """Every usual reading, without repetition, the standard one first (RFC 3986: split, decode
    once, resolve dots).

    Raises ``VaultError(BAD_REQUEST)`` for a path that is made to have more than ``MOST`` spellings,
    or more than ``MOST_BYTES`` of them.
    """
    decoded = unquote_to_bytes(path)
    if is_plain(decoded) and decoded.count(b"/") == path.count(b"/") and b"\0" not in decoded:
        # nothing but harmless escapes, such as %20
        return path_segments(decoded), path_segments(path)
    most = max(LEAST, min(MOST_READINGS, MOST_BYTES // len(path)))
    by_reading: dict[PathReading, None] = {_standard(path): None}
    states = {(path, 2)}
    waiting = [(path, 2)]
    while waiting:
        text, decodes = waiting.pop()
        for reading in _segmentwise(text, decodes):
            by_reading.setdefault(reading)
        for state in _steps(text, decodes):
            if state not in states:
                states.add(state)
                waiting.append(state)
        if len(states) > most:
            raise VaultError(
                Code.BAD_REQUEST,
                "The request path can be read in too many ways; write it without escapes.",
            )
    for reading in tuple(by_reading):
        if not is_text(b"".join(reading)):
            by_reading.update(dict.fromkeys(_as_text(reading)))
    return tuple(by_reading)


def _as_text(reading: PathReading) -> Iterator[PathReading]:
    """The same segments for applications that make text of them whatever they hold."""
    for make in (without_foreign, _shortened, _replaced, _from_latin):
        yield tuple(filter(None, map(make, reading)))


def without_foreign(data: bytes) -> bytes:
    """The bytes without those that are no UTF-8."""
    return data.decode(errors="ignore").encode()


def _replaced(data: bytes) -> bytes:
    return data.decode(errors="replace").encode()


def _from_latin(data: bytes) -> bytes:
    return data if is_text(data) else data.decode("latin-1").encode()


def _shortened(data: bytes) -> bytes:
    return without_foreign(
        _OVERLONG.sub(lambda match: bytes([(match[0][-2] & 3) << 6 | match[0][-1] & 63]), data)
    )


def looser(reading: PathReading) -> Iterator[PathReading]:
    """The same path for applications that see less in it than is there; none for most paths.

    IIS and Windows drop dots and white space at the end of a segment; Rails, Spring and ASP.NET
    take ``.json`` and any other ending of the last segment for a wish, not for a part of the name.
    PHP serves ``/index.php/contacts`` as ``/contacts``, and page libraries the data of a page below
    its address (``page_of_data``).
    A server that decodes a path and hands it on undoes ``%3f`` and ``%23`` as well, and the next
    one sees a query or a fragment begin there.
    """
    trimmed = tuple(
        stripped for part in reading if (stripped := part.strip(_BLANK).rstrip(_BLANK + b"."))
    )
    if trimmed != reading:
        yield trimmed
    if trimmed and (mark := _QUERY_OR_FRAGMENT.search(trimmed[-1])):
        yield (*trimmed[:-1], *path_segments(trimmed[-1][: mark.start()]))
    if trimmed and b"." in trimmed[-1]:
        bare = _FORMAT.sub(b"", trimmed[-1])
        if bare != trimmed[-1]:
            yield (*trimmed[:-1], bare) if bare else trimmed[:-1]
    below = [part for part in reading[:-1] if not _FRONT_CONTROLLER.fullmatch(part)]
    if len(below) < len(reading) - 1:
        path = (*below, reading[-1])
        yield path
        yield from looser(path)
    if (page := page_of_data(reading)) is not None:
        yield page


def page_of_data(reading: PathReading) -> PathReading | None:
    """The page whose data alone a page library asks for at this path; ``None``: it is no such path.

    ``/contacts/__data.json`` is about ``/contacts``, and so is
    ``/_next/data/BUILD/contacts.json``.
    """
    if reading and reading[-1] in _PAGE_DATA:
        return reading[:-1]
    if b"_next" not in reading or not reading[-1].endswith(b".json"):
        return None
    at = reading.index(b"_next")
    if reading[at + 1 : at + 2] != (b"data",) or len(reading) < at + 4:
        return None
    page = (*reading[:at], *reading[at + 3 : -1], reading[-1].removesuffix(b".json"))
    return page[:-1] if len(reading) == at + 4 and page[-1] == b"index" else page


def script_of(path: bytes) -> tuple[bytes, bool]:
    """The path of the program that PHP runs for a path, and whether that is ``index.php`` with more
    behind it: of ``/save.php/more`` it is ``/save.php``, of ``/`` it is ``/index.php``.
    """
    script = _SCRIPT.match(unquote_to_bytes(path))
    if script is None:
        return path.rstrip(b"/") + b"/index.php", False
    return script[1], script[1].lower().endswith(b"/index.php")


def rest_prefix(template: str) -> bytes | None:
    """The prefix of a path that WordPress serves by a parameter as well; ``None``: it is none of
    these. A site may call ``/wp-json`` as it likes.
    """
    match = _REST.match(template + "/")
    return None if match is None else (match[1] or match[2]).encode()


def paths_in_query(target: bytes, prefixes: Iterable[bytes] = ()) -> list[bytes]:
    """The paths in a query that applications in PHP serve in place of that of the request, each
    with a query: ``?/contacts`` (CodeIgniter), ``rest_route`` (WordPress; ``prefixes``: of its
    interface), be it in a folder.
    """
    path, _, query = target.partition(b"?")
    paths = [query.replace(b"&", b"?", 1)] if query[:1] == b"/" else []
    for part in query.split(b"&") if b"%" in query or b"route" in query else ():
        name, _, route = part.partition(b"=")
        if _ROUTE.fullmatch(unquote_to_bytes(name)):
            served = unquote_to_bytes(route).replace(b"?", b"%3F") + b"?" + query
            paths += [before + served for before in {b"/wp-json", b"", *prefixes}]
    if not paths:
        return paths
    folders = path.split(b"/")[1 : 1 + _FOLDERS]
    above = [b"".join([b"/" + one for one in folders[:size]]) for size in range(len(folders) + 1)]
    return [before + one for before in above for one in paths]


def _standard(path: bytes) -> PathReading:
    segments: list[bytes] = []
    for part in path.split(b"/")[1:]:
        segment = unquote_to_bytes(part)
        if segment == b"..":
            del segments[-1:]
        elif segment != b".":
            segments.append(segment)
    return tuple(segment for segment in segments if segment)


def _segmentwise(text: bytes, decodes: int) -> list[PathReading]:
    """The text split as it is, and with each segment decoded after the split."""
    current = path_segments(text)
    out = [current]
    if _ESCAPE.search(text):
        for _ in range(decodes):
            current = tuple(
                [unquote_to_bytes(segment) if b"%" in segment else segment for segment in current]
            )
            out.append(current)
    return out


def _steps(text: bytes, decodes: int) -> list[tuple[bytes, int]]:
    """The spellings one step further: decoded, or cleaned in one of the ways that servers clean."""
    steps = []
    if decodes and _ESCAPE.search(text):
        steps.append((unquote_to_bytes(text), decodes - 1))
        steps.append((_decode_but_separators(text), decodes - 1))
        if _WIDE_ESCAPE.search(text):  # IIS
            steps.append((_WIDE_ESCAPE.sub(rb"%\1", text), decodes))
    if b"\\" in text:
        steps.append((text.replace(b"\\", b"/"), decodes))
    if b";" in text:
        steps.append((_PARAMETERS.sub(b"", text), decodes))
    if b"//" in text:
        steps.append((_SLASHES.sub(b"/", text), decodes))
    if text.startswith(b"//"):
        # what WHATWG's parser takes for a host
        steps.append((b"/" + text.lstrip(b"/").partition(b"/")[2], decodes))
    if b"\0" in text:
        steps.append((text.partition(b"\0")[0], decodes))  # where text in C ends
    if b"/." in text:
        steps.append((_resolve(text), decodes))
    if not is_text(text):
        steps.append((without_foreign(text), decodes))
        if _OVERLONG.search(text):
            steps.append((_shortened(text), decodes))
    return steps


def _decode_but_separators(text: bytes) -> bytes:
    parts = _SEPARATOR_ESCAPES.split(text)
    parts[::2] = [unquote_to_bytes(part) for part in parts[::2]]
    parts[1::2] = [b"%" + part for part in parts[1::2]]
    return b"".join(parts)


def _resolve(text: bytes) -> bytes:
    """Dot segments resolved (RFC 3986, 5.2.4); an empty segment counts as one, as it does there."""
    parts: list[bytes] = []
    for part in text.split(b"/")[1:]:
        if part == b"..":
            del parts[-1:]
        elif part != b".":
            parts.append(part)
    return b"/" + b"/".join(parts)
