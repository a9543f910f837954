"""A value that travels between a message and the vault."""

import msgspec


class Value(msgspec.Struct, frozen=True, gc=False):
    """Text, or the exact JSON spelling of something that is not a string.

    ``text`` is the decoded text of a JSON string or form member when ``json`` is false. When ``json`` is
    true it is the raw JSON source of a number, boolean, object or array (``1.0`` stays ``1.0``), and it is
    written back without quotes. ``null`` is never a value: it means "there is none".
    """

    text: str
    json: bool = False
