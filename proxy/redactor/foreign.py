"""Bodies of a kind that no rule can follow, such as a multipart upload, where a rule says that they may pass.

``other_kinds: pass`` opens a door on purpose, and it must stay as narrow as it looks: a body that any application could take
for JSON, XML, text or a form in spite of its type is no upload, and is refused like any other that was not understood.
"""

from typing import Final

from proxy.redactor.codecs import form as form_codec
from proxy.redactor.message import RawHeaders, header

#: In the names of types that some application may read as JSON or as a form.
_READABLE: Final = (b"json", b"xml", b"form-urlencoded", b"graphql", b"javascript", b"yaml")

#: What may stand before the first sign of a text: white space, NUL, the byte order marks.
_BEFORE: Final = b" \t\r\n\x00\xef\xbb\xbf\xfe\xff"


def is_foreign(headers: RawHeaders, body: bytes) -> bool:
    """Whether type and first bytes agree that a body is nothing that rules could follow. A missing type tells nothing."""
    declared = (header(headers, b"content-type") or b"").partition(b";")[0].strip().lower()
    kind, slash, subtype = declared.partition(b"/")
    if not slash or kind in (b"", b"text") or any(word in subtype for word in _READABLE):
        return False
    return body.lstrip(_BEFORE)[:1] not in form_codec.OTHER_KINDS
