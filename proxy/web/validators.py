"""Entity tags around a restored answer (RFC 9110 section 8.8.3): its bytes are not those that the application gave a tag to.

So the caller gets the tag as a weak one: the same state of the record, whatever the bytes. Sent back in ``If-Match`` it is
turned into the application's own again, which protects an update from overwriting another. In ``If-None-Match`` it is left
out: the application would answer 304 for its tokens, and cannot know whether the values behind them are still the same.
"""

import re
from typing import Final

_TAG: Final = re.compile(rb'(W/)?("[\x21\x23-\x7e\x80-\xff]*")')
_TAGS: Final = re.compile(rb"[ \t,]*(?:%b[ \t,]*)+" % _TAG.pattern)


def told(value: bytes) -> bytes | None:
    """The ETag of a restored answer; ``None`` where the application's is none."""
    tag = _TAG.fullmatch(value.strip())
    return b"W/" + tag[2] if tag is not None else None


def matching(value: bytes) -> bytes:
    """An If-Match for the application. A weak tag may have been a strong one, and an application may give weak ones: both stand."""
    if b"W/" not in value or _TAGS.fullmatch(value) is None:
        return value
    tags = _TAG.finditer(value)
    return b", ".join(b"%b, W/%b" % (tag[2], tag[2]) if tag[1] else tag[2] for tag in tags)


def unmatched(value: bytes) -> bytes | None:
    """An If-None-Match for the application, without weak tags; ``None`` where no tag is left."""
    if b"W/" not in value or _TAGS.fullmatch(value) is None:
        return value
    return b", ".join(tag[2] for tag in _TAG.finditer(value) if not tag[1]) or None
