"""Records of the vault in the clear, and what callers want to make of them.

A value in the clear has one Python type by the type of its field:

=====================  =====================================================================
string, primary key    ``str``
integer                ``int``
decimal                ``decimal.Decimal``, exact
boolean                ``bool``
datetime               ``str``, always ``YYYY-MM-DDThh:mm:ss.sssZ``
date, time             ``str``, ``YYYY-MM-DD`` and ``hh:mm:ss``
json                   ``dict`` as decoded from JSON, numbers with a point as ``Decimal``
=====================  =====================================================================

``None`` is an explicit null; a name that is absent has no value either.
"""

import enum
from typing import Any

import msgspec

#: The values of a record by field name.
Fields = dict[str, Any]

#: By field: a number that is another one whenever the text of the field has changed, and never comes back (several where the
#: field has several texts). Absent: unchanged since the record was made. Redacted values are made with it.
Eras = dict[str, int | list[int]]


class Action(enum.StrEnum):
    """What made a version of a record."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


class Attachment(msgspec.Struct, frozen=True):
    """A file of a record (specification, "Attachment"). ``hash`` is the SHA-256 of the content in hexadecimal."""

    file_id: str
    filename: str
    hash: str
    mime_type: str
    size: int  #: bytes
    created_at: int  #: milliseconds since the epoch
    updated_at: int


class Rehashed(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What a rehash has made of one field of a record (``vault.rehash``)."""

    of: bytes  #: keyed digest of the value that it was made of, so that it counts for that value alone
    token: str  #: the newest, as text
    json: bool  #: whether that text is JSON, such as a number
    found: bool  #: whether it is found by itself
    job: str = ""  #: the run that made it; empty: a single request
    old: tuple[str, ...] = ()  #: those before it that are still found, oldest first


#: By the names of the rules that they were made by.
Tokens = dict[str, Rehashed]


class Record(msgspec.Struct, frozen=True):
    """One version of a record in the clear; instants are milliseconds since the epoch."""

    rid: int  #: the vault's own number of the record, never shown
    key: str | None  #: the primary key; ``None`` for a record of a rule whose id nobody told yet
    fields: Fields
    version: int
    created_at: int
    updated_at: int
    expires_at: int | None = None
    action: Action = Action.CREATE
    by: str = ""  #: the client that wrote this version
    attachments: tuple[Attachment, ...] = ()
    eras: Eras | None = None
    tokens: Tokens | None = None  #: those that a rehash has made of it


class Draft(msgspec.Struct, frozen=True):
    """What a caller wants a record to be, checked against its schema.

    ``fields`` has what was sent, the primary key included; in an update what is absent stays as it is.
    """

    key: str | None  #: ``None`` only in an update that matches by another field
    fields: Fields
    expires_at: int | msgspec.UnsetType | None = msgspec.UNSET  #: ``None``: never; unset: nothing was said
    at: str = ""  #: JSON Pointer to where it stands in the request (in a batch ``/3``), for the details of errors
    fresh: frozenset[str] = frozenset()  #: fields whose values count as new even if they equal what is stored
    whole: bool = False  #: an update after which the record has what was sent and nothing else, but for what the sender is not shown
    #: Members that the service sets, as they were sent: only what equals the record is taken (``vault.sent_back``).
    stated: dict[str, Any] = {}
    kept: frozenset[str] = frozenset()  #: fields that stay as they are whatever else is cleared
    copied: bool = False  #: the values are those of another record, and what was sent beside them has been checked
