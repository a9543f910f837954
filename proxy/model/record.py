"""Records of the vault in the clear, and drafts of callers.

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
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

#: The values of a record by field name.
Fields = dict[str, Any]

#: By field: a number that is another one whenever the text of the field has changed, and never
#: comes back (several where the field has several texts). Absent: unchanged since the record was
#: made. Redacted values are made with it.
Eras = dict[str, int | list[int]]


class Action(enum.StrEnum):
    """Action that made a version of a record."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


class Attachment(msgspec.Struct, frozen=True):
    """A file of a record (specification, "Attachment").

    ``hash`` is the SHA-256 of the content in hexadecimal.
    """

    file_id: str
    filename: str
    hash: str
    mime_type: str
    size: int  #: bytes
    created_at: int  #: milliseconds since the epoch
    updated_at: int


class Rehashed(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Rehash tokens of one field of a record (``vault.maintenance.rehash``)."""

    #: keyed digest of the value that it was made of, so that it counts for that value alone
    of: bytes
    token: str  #: the newest, as text
    json: bool  #: whether that text is JSON, such as a number
    indexed: bool  #: whether it is large enough for a look-up
    job: str = ""  #: the run that made it; empty: a single request
    old: tuple[str, ...] = ()  #: those before it that are still found, oldest first


#: By the names of the rules that they were made by.
RehashTokens = dict[str, Rehashed]


class Record(msgspec.Struct, frozen=True):
    """A version of a record in the clear; instants are milliseconds since the epoch."""

    rid: int  #: the vault's own number of the record, never shown
    key: str | None  #: the primary key; ``None`` for a record of a rule whose id is unknown yet
    fields: Fields
    version: int
    created_at: int
    updated_at: int
    expires_at: int | None = None
    action: Action = Action.CREATE
    by: str = ""  #: the client that wrote this version
    attachments: tuple[Attachment, ...] = ()
    eras: Eras | None = None
    tokens: RehashTokens | None = None  #: those that a rehash has made of it
    #: when the application marked it as deleted; its rule keeps the values
    deleted_at: int | None = None
    #: whether a change of it is under way, or in doubt: the application may have other values
    in_doubt: bool = False


class RecordDraft(msgspec.Struct, frozen=True):
    """A record as a caller wants it to be, checked against its schema.

    ``fields`` are those sent, including the primary key; in an update absent ones stay.
    """

    key: str | None  #: ``None`` only in an update that matches by another field
    fields: Fields
    #: ``None``: never; unset: nothing was said
    expires_at: int | msgspec.UnsetType | None = msgspec.UNSET
    #: JSON Pointer to where it stands in the request (in a batch ``/3``), for the details of errors
    at: str = ""
    #: fields whose values count as new even if they equal the stored ones
    fresh: frozenset[str] = frozenset()
    #: an update that replaces everything, except for values hidden from the sender
    whole: bool = False
    #: Members that the service sets, as they were sent: only what equals the record is taken
    #: (``vault.records.sent_back``).
    stated: dict[str, Any] = {}
    preserved: frozenset[str] = (
        frozenset()
    )  #: fields that stay as they are whatever else is cleared
    #: the values come from another record; those sent with them are checked
    copied: bool = False


# Valid names and types of attachments.

#: Characters of a file name.
LONGEST_FILE_NAME: Final = 255
#: Bytes of it in UTF-8: with percent-encoding three times as many, which fits a header field.
LONGEST_ENCODED: Final = 1020

#: Format characters that words and emoji are written with (zero width joiner and non-joiner).
_JOINERS: Final = "\u200c\u200d"
#: What some file systems and fonts take for a path separator.
_SEPARATORS: Final = "/\\\u2044\u2215\u29f5\u29f8\ufe68\uff0f\uff3c"

#: Default type of an attachment (RFC 2046, section 4.5.1).
UNKNOWN_TYPE: Final = "application/octet-stream"

# RFC 9110, section 5.6.2; the length is that of RFC 6838, section 4.2
_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,127}"
_PARAMETER: Final = rf"[ \t]*;[ \t]*{_TOKEN}=(?:{_TOKEN}|\"[\x20\x21\x23-\x5b\x5d-\x7e]*\")"
_MIME_TYPE: Final = re.compile(rf"{_TOKEN}/{_TOKEN}(?:{_PARAMETER})*", re.ASCII)


def fault_of_filename(name: str) -> str | None:
    """Describe the fault of a file name as the rest of "The file name …"; ``None`` if it is valid.

    Never quotes the name.

    Never quotes it.
    """
    if not 1 <= len(name) <= LONGEST_FILE_NAME:
        return f"has 1 to {LONGEST_FILE_NAME} characters."
    if name in (".", "..") or any(separator in name for separator in _SEPARATORS):
        return "is a name alone, without a path."
    if any(_misleads(character) for character in name):
        return (
            "has no control characters, nothing that turns the direction of text or is not seen, "
            "and no halves of characters."
        )
    if len(name.encode()) > LONGEST_ENCODED:
        return f"has at most {LONGEST_ENCODED} bytes in UTF-8."
    return None


def _misleads(character: str) -> bool:
    """Whether a character imitates others (Unicode TR 36), or no file system or header takes it."""
    kind = unicodedata.category(character)
    return kind in ("Cc", "Cs", "Cn", "Zl", "Zp") or (kind == "Cf" and character not in _JOINERS)


def fault_of_mime_type(text: str) -> str | None:
    """Describe the fault of a MIME type as the rest of "The type …"; ``None`` if it is valid."""
    if len(text) > LONGEST_FILE_NAME or not _MIME_TYPE.fullmatch(text):
        return (
            f"is written as in text/plain, in at most {LONGEST_FILE_NAME} characters (RFC 9110, "
            "section 8.3.1)."
        )
    return None


def same_name(name: str) -> bytes:
    """Return the common form of equal file names (NFC); letter case counts."""
    return unicodedata.normalize("NFC", name).encode()


# Environments: each has its own keys, schemas, records, files and clients, and none reaches
# another.

#: The environment that every vault has: the proxy works in it, and its administrators look after
#: all others.
DEFAULT: Final = "default"

#: Form of an id: it becomes part of names of tables and notes of the store.
IDENT: Final = re.compile(r"[a-z][a-z0-9]{0,31}", re.ASCII)


class Environment(msgspec.Struct, frozen=True, omit_defaults=True):
    """An environment as listed in the vault."""

    id: str
    name: str  #: what people call it
    created_at: int  #: milliseconds since the epoch; of ``default``: when the book was begun
    removed_at: int | None = None  #: from then on nothing of it can be opened
    erased: bool = False  #: nothing of it is left in the store
    #: number of the attempt of an instance to remove it, during which none serves it; 0: none
    ending: int = 0


# Public facts about keys: kinds, ids, figures; never a key.


class KeyKind(enum.StrEnum):
    """Keys that can be rotated."""

    DATA = "data"  #: seals what one environment holds
    MASTER = "master"  #: wraps the keysets of all environments
    SIGNING = "signing"  #: signs access tokens
    AUDIT = "audit"  #: ties the lines of the audit log together, and signs them
    HASH = "hash"  #: makes the hashes by which one environment's records are found
    TOKEN = "token"  #: makes the tokens of one environment

    @property
    def of_environment(self) -> bool:
        """Whether each environment has its own."""
        return self in (KeyKind.DATA, KeyKind.HASH, KeyKind.TOKEN)


class DataKeys(NamedTuple):
    """The data keys of one environment."""

    environment: str
    keys: tuple[str, ...]  #: ids, oldest first; the last one seals, all of them open
    wrapped_by: str  #: id of the master key
    sealings: int  #: upper bound of the bodies sealed with the current key
    reseal: str  #: none, running, stopped, done
    resealed: int  #: records that were looked at
    versions: int  #: past versions that were looked at
    contents: int  #: contents of files that were looked at
    unreadable: int  #: of all of them, those that do not open
    #: result of the last complete scan, by older key and kind; ``None`` before one
    used: Mapping[str, Mapping[str, int]] | None = None
    hash_roots: tuple[str, ...] = ()  #: ids, oldest first; the last one makes hashes
    token_roots: tuple[str, ...] = ()  #: the same of tokens; those before resolve theirs
    rehash: str = "none"  #: rehash of data under the older hash root: none, running, stopped, done
    rehashed: Mapping[str, int] = {}  #: records, versions, unreadable: what that run has been to
    rehash_left: Mapping[str, int] = {}  #: data that still needs the older hash root, by kind
    blocked_by: tuple[str, ...] = ()  #: instances that have not agreed to drop unused older keys
    rehash_blocked_by: tuple[str, ...] = ()  #: the same of the older hash root
    #: when keys and roots were made, by id, in milliseconds since the epoch
    created_at: Mapping[str, int] = {}


class KeyInventory(NamedTuple):
    """All keys of an instance."""

    master: str  #: id of the present one
    signing: tuple[str, ...]  #: ids, oldest first; the last one signs, all of them verify
    environments: Sequence[DataKeys]
    audit: tuple[str, ...]  #: ids, oldest first; the last one writes, all of them verify


# Limits of a request to the vault's own interface; every number is a setting, with its default
# here.
#
# A number without a remark comes from the decisions of the interface specification, "Limits".


@dataclass(frozen=True, slots=True)
class RecordLimits:
    """Bounds of records, filters and batches."""

    find_default: int = 100  #: default number of records of a page
    find_maximum: int = 1000  #: records of a page at most
    page_bytes: int = 16 * 2**20  #: of the sealed records of a page; one record it has in any case
    batch: int = 100  #: records of one batch
    string: int = 256  #: characters of a string field whose schema does not say more
    key: int = 128  #: characters of a primary key
    #: scalars and empty containers of a JSON field; ours: each is an entry of the index
    leaves: int = 1000
    #: objects and arrays within each other in a JSON field, the field itself counted; ours
    depth: int = 32
    search: tuple[int, int] = (3, 200)  #: characters of a text that is searched for in parts
    #: characters of ``$like`` on a field in the clear; ours
    like_plain: int = 256
    groups: int = 100  #: groups of a page of an aggregation
    group_keys: int = 10  #: fields an aggregation groups by; ours
    metrics: int = 50  #: figures of an aggregation; ours
    candidates: int = 100_000  #: records that a partial match opens at most; ours
    conditions: int = 200  #: tests of one filter, those inside ``$or`` counted; ours
    values: int = 1000  #: values of one filter, in lists and alone; ours
    faults: int = 1000  #: reported faults of one answer; ours


#: What holds where no setting says otherwise.
DEFAULTS = RecordLimits()
