"""Entity tags around a restored answer (RFC 9110 section 8.8.3): its bytes are not those that the
application gave a tag to.

So the caller gets another tag. It holds the application's own, and a keyed hash of the restored
body in its coding: bodies that differ between callers, or over time behind one token, get different
tags. The hash is keyed because tags travel: no reader of one may test guesses of values against it.

``"v1"`` of the application becomes ``"v1-domicile.s0123456789abcdef0123456789abcdef"``; the letter
says how the application wrote its own: ``s`` strong, ``w`` weak, ``u`` without quotes. Where the
record has values that the application cannot tell apart, because they share a token, a mark of them
follows, as ``.0123456789abcdef``: an update that expects this tag is refused once they have
changed.

The tag alone gives back its origin: after a restart, on another replica, and if a server in between
made it weak. In ``If-Match`` the application gets exactly its own, which protects an update from
overwriting another. A GET is sent without ``If-None-Match``: the application would answer 304 for
its tokens, and cannot know whether the values behind them are unchanged. The proxy answers that
itself.
"""

import re
from collections.abc import Callable
from typing import Final

from proxy.redactor.message import http_seconds

#: A keyed hash of 16 bytes.
KeyedTags = Callable[[bytes], bytes]

_OPAQUE: Final = rb"[\x21\x23-\x7e\x80-\xff]*"
_TAG: Final = re.compile(rb'(W/)?"(%b)"' % _OPAQUE)
_UNQUOTED: Final = re.compile(rb"[\x21\x23-\x2b\x2d-\x7e\x80-\xff]+")
#: Form of our tags, which hardly any other has.
MARK: Final = b"-domicile."
#: Finds, in a head, what ``expected_marks`` may read.
CONDITIONED: Final = re.compile(re.escape(MARK) + b"|(?i:if-unmodified-since)").search
#: A tag of ours, also with what servers add that compress an answer on its way (``-gzip``,
#: ``;br``).
_MARKED: Final = re.compile(
    rb'(?:W/)?"(%b)%b([swu])(?:[0-9a-f]{32}(?:\.([0-9a-f]{16})|()))?(?:[-;:][A-Za-z]+)?"'
    % (_OPAQUE, re.escape(MARK))
)


def restored_tag(
    value: bytes, body: bytes | None, coding: bytes | None, keyed: KeyedTags, mark: bytes = b""
) -> bytes | None:
    """The ETag of an answer restored to ``body`` in ``coding``; ``None`` where the application's is
    no tag at all.

    ``mark``: of the record's values that the application cannot tell apart.

    Without a body, as to HEAD, the content of a GET is unknown: the tag then equals none of those.
    """
    return tag_of(value, None if body is None else body_hash(body, coding, keyed, mark))


def body_hash(body: bytes, coding: bytes | None, keyed: KeyedTags, mark: bytes = b"") -> bytes:
    """A keyed hash of a body in its coding, and the record's mark, as ``restored_tag`` has them."""
    digest = keyed(b"%b\0%b" % (coding or b"", body)).hex().encode()
    return b"%b.%b" % (digest, mark) if mark else digest


def tag_of(value: bytes, hashed: bytes | None) -> bytes | None:
    """The tag with that hash in place of the application's; as ``restored_tag``."""
    value = value.strip()
    tag = _TAG.fullmatch(value)
    if tag is not None:
        weak, kind, opaque = tag[1], b"w" if tag[1] else b"s", tag[2]
    elif _UNQUOTED.fullmatch(value) is not None:
        weak, kind, opaque = None, b"u", value
    else:
        return None
    if hashed is None:
        return b'W/"%b%b%b"' % (opaque, MARK, kind)
    return b'%b"%b%b%b%b"' % (weak or b"", opaque, MARK, kind, hashed)


def expected_marks(if_match: bytes | None, unmodified_since: bytes | None) -> tuple[bytes, ...]:
    """Conditions of a request on the record that it changes: it has one of these marks, or was not
    corrected after ``@`` and milliseconds since the epoch. Empty: none.

    A date that cannot be read is the oldest: the application may read it.
    """
    if if_match is not None or unmodified_since is None:  # RFC 9110 section 13.1.4
        return tag_marks(if_match or b"")
    seconds = http_seconds(unmodified_since) or 0
    return (b"@%d" % max(0, seconds * 1000 - 1),)


def tag_marks(value: bytes) -> tuple[bytes, ...]:
    """The marks of our tags in a condition, which may have others beside them; that of a tag
    without any is empty.
    """
    tags = [_MARKED.fullmatch(tag[0]) for tag in _TAG.finditer(value)]
    return tuple([tag[3] or b"" for tag in tags if tag is not None])


def own_tag(value: bytes) -> bytes:
    """The value of a condition with the application's tags in place of those that were shown."""
    return _MARKED.sub(_unmarked, value) if MARK in value else value


def _unmarked(tag: re.Match[bytes]) -> bytes:
    if tag[2] == b"u":
        return tag[1]
    return b'%b"%b"' % (b"W/" if tag[2] == b"w" else b"", tag[1])


def lists_tag(value: bytes, tag: bytes) -> bool:
    """Whether an If-None-Match lists this tag, by weak comparison (RFC 9110 section 13.1.2)."""
    wanted = _TAG.fullmatch(tag)
    return wanted is not None and any(listed[2] == wanted[2] for listed in _TAG.finditer(value))
