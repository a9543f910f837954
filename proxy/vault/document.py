"""What the sealed body of a record holds that came over the vault's own interface: its fields as JSON, and who wrote it.

The bodies of records that the proxy collects are packed otherwise (``content``); the first byte tells them apart.
"""

from decimal import Decimal
from typing import Final, NamedTuple

import msgspec

from proxy.model.record import Action, Eras, Fields, Tokens

_NAMES = {"fields": "f", "action": "a", "by": "b", "at": "t", "tokens": "k", "eras": "e", "key": "y"}


class Document(msgspec.Struct, frozen=True, rename=_NAMES):
    """One version of a record: its fields, what made it, the client that did, and when (milliseconds since the epoch)."""

    fields: Fields
    action: Action = Action.CREATE
    by: str = ""
    at: int = 0
    tokens: Tokens | msgspec.UnsetType = msgspec.UNSET  #: where a rehash made any
    eras: Eras | msgspec.UnsetType = msgspec.UNSET  #: where a text has changed
    key: str | msgspec.UnsetType = msgspec.UNSET  #: of a record whose fields do not have it, in the note of its end


class Beside(NamedTuple):
    """What a document holds beside the fields."""

    tokens: Tokens | None = None
    eras: Eras | None = None


#: Nothing beside the fields.
NOTHING: Final = Beside()


_encode = msgspec.json.Encoder(decimal_format="number").encode
_decode = msgspec.json.Decoder(Document, float_hook=Decimal).decode


def pack(document: Document) -> bytes:
    """The document as bytes, ready to be sealed; decimals are written out exactly."""
    return _encode(document)


def unpack(plain: bytes) -> Document:
    """The inverse; a decimal without a point comes back as ``int``: the schema tells what it is."""
    return _decode(plain)


def is_document(plain: bytes) -> bool:
    """Whether an opened body is a document; else it is a ``content.Content``."""
    return plain[:1] == b"{"
