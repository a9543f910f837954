"""How values are spelled in bodies, and bodies in messages.

Why it exists: the redactor speaks of places and values; what they look like in JSON, in a form, under gzip, is
settled here, once, and to the letter of the standards. What it may touch: bytes. To add a kind of body, write its
file, give ``media.Media`` a member, and add a line to ``CODECS``; a content coding is a line in ``coding.CODINGS``.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from proxy.model.value import Value
from proxy.redactor.codecs import form, json
from proxy.redactor.codecs.media import Media


class Codec(NamedTuple):
    """One kind of body: what a raw value says (``None``: nothing), and how a value is spelled."""

    read: Callable[[bytes | memoryview], Value | None]
    write: Callable[[Value], bytes]


CODECS: Mapping[Media, Codec] = {
    Media.JSON: Codec(json.read, json.write),
    Media.FORM: Codec(form.read_value, form.write_value),
}
