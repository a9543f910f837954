"""The keys of one environment, and the primitives they turn into."""

import base64
import binascii
import json
import os
from collections.abc import Callable, Collection, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from proxy.crypto.aead import KEY_ID_BYTES, RecordAead, SealedTexts
from proxy.crypto.field_keys import FieldKeys
from proxy.crypto.master_key import MasterKey
from proxy.crypto.prf import HashRoots, Prf, Roots, derive, root_id, turning_hasher
from proxy.crypto.secret import Secret
from proxy.crypto.stream import StreamAead
from proxy.errors import Code, VaultError

_FORMAT = b"\x01"
_KEY_BYTES = 32


class Keyset(Secret):
    """Data keys (a primary that seals, older ones that only open), a hash root and a token root.

    Made by ``create``, ``unwrap`` and the methods that change one key set. Each object that a
    keyset gives out exists once, and ``adopt`` changes its keys while it is in use. A wrapped
    keyset is: format 0x01, length of the environment's name in 2 bytes, that name in UTF-8, and a
    blob of the master key that is bound to all of this.
    """

    __slots__ = (
        "_aead", "_coming_tokens", "_data", "_hashes", "_issued", "_primary", "_roots", "_streams",
        "created_at", "environment", "older_tokens", "rooted",
    )  # fmt: skip

    def __init__(
        self,
        environment: str,
        data: dict[bytes, bytes],
        primary: bytes,
        roots: tuple[bytes, bytes] | Roots,
    ) -> None:
        self.environment = environment
        #: The notes of the store have a root, so one that is missing was removed.
        self.rooted = False
        #: When keys and roots were made, by id, in milliseconds since the epoch; those of before
        #: this was written down are not in it.
        self.created_at: dict[str, int] = {}
        self._data = data
        self._primary = primary
        self._roots = Roots(*roots)
        self._coming_tokens: tuple[bytes, ...] = ()  #: token root of a prepared successor
        #: Whether tokens may be under another root than the one of new tokens.
        self.older_tokens = bool(self._roots.older_tokens)
        self._hashes: list[HashRoots] = [HashRoots(self._roots.hash, self._roots.older_hash)]
        #: issued objects, and functions that give them their current keys
        self._issued: WeakKeyDictionary[Any, Callable[[Any], None]] = WeakKeyDictionary()
        self._aead = RecordAead(primary, data)
        self._streams = StreamAead(primary, data)

    @classmethod
    def create(cls, environment: str) -> "Keyset":
        """A keyset of fresh random keys for a new environment."""
        key_id = _new_id({})
        return cls(environment, {key_id: _new_key()}, key_id, (_new_key(), _new_key()))

    @classmethod
    def unwrap(cls, blob: bytes, master: MasterKey) -> "Keyset":
        """The keyset of a wrapped blob.

        ``VaultError(BAD_KEYS)``, with a sentence that says what to do, when the master key is
        another one, or the blob is damaged, cut, or was given another environment's name.
        """
        size = int.from_bytes(blob[1:3], "big")
        head, sealed = blob[: 3 + size], blob[3 + size :]
        if head[:1] != _FORMAT:
            raise _damaged()
        try:
            return cls._of(head[3:].decode(), json.loads(master.unwrap(sealed, head)))
        except (ValueError, KeyError, TypeError, binascii.Error):
            raise _damaged() from None

    @staticmethod
    def wrapper(blob: bytes) -> str:
        """The id of the master key that wrapped a blob."""
        return MasterKey.wrapper(blob[3 + int.from_bytes(blob[1:3], "big") :])

    def wrap(self, master: MasterKey) -> bytes:
        """The keyset as a blob that may be stored: only the environment's name is readable."""
        name, ids = self.environment.encode(), self.ids
        head = _FORMAT + len(name).to_bytes(2, "big") + name
        content: dict[str, Any] = {
            "primary": self._primary.hex(),
            "data": {key_id.hex(): _armor(key) for key_id, key in self._data.items()},
            "hash": _armor(self._roots.hash),
            "token": _armor(self._roots.token),
            "rooted": self.rooted,
            "older tokens": [_armor(root) for root in self._roots.older_tokens],
            "created at": {one: at for one, at in self.created_at.items() if one in ids},
        }
        rare = {"older hash": self._roots.older_hash, "audit": self._roots.audit}
        content.update({name: _armor(root) for name, root in rare.items() if root is not None})
        return head + master.wrap(json.dumps(content).encode(), head)

    def date(self, before: "Keyset | None", now: int) -> "Keyset":
        """Write down when the keys were made that the keyset before did not have; itself."""
        older = before.ids if before is not None else frozenset[str]()
        self.created_at |= dict.fromkeys(sorted(self.ids - older), now)
        return self

    def rotated(self) -> "Keyset":
        """The same keyset with a fresh primary data key; what older keys sealed still opens."""
        key_id = _new_id(self._data)
        data = {**self._data, key_id: _new_key()}
        return self._with(data, key_id, self._roots)

    def with_hash_root(self) -> "Keyset":
        """The same keyset with a fresh hash root; the previous one still answers look-ups.

        ``ValueError`` while there is a second root already.
        """
        before = self._roots
        if before.older_hash is not None:
            raise ValueError("the older hash root is still needed")
        audit = before.audit or before.hash
        roots = before._replace(hash=_new_key(), older_hash=before.hash, audit=audit)
        return self._with(self._data, self._primary, roots)

    def with_token_root(self) -> "Keyset":
        """The same keyset with a fresh token root; the previous ones still resolve their tokens."""
        before = self._roots
        older = (*before.older_tokens, before.token)
        return self._with(
            self._data, self._primary, before._replace(token=_new_key(), older_tokens=older)
        )

    def without_older_hash(self) -> "Keyset":
        """The same keyset without the older hash root."""
        return self._with(self._data, self._primary, self._roots._replace(older_hash=None))

    def without(self, keys: Collection[str]) -> "Keyset":
        """The same keyset without these data keys: nothing that they have sealed opens with it.

        ``ValueError`` for the one that seals.
        """
        if self._primary.hex() in keys:
            raise ValueError("the data key that seals stays")
        data = {key_id: key for key_id, key in self._data.items() if key_id.hex() not in keys}
        return self._with(data, self._primary, self._roots)

    def forget(self, other: "Keyset") -> None:
        """Have no keys but those of a keyset made by ``without`` or ``without_older_hash``.

        Objects issued by ``aead`` and ``streams`` keep opening with the other keys until the next
        key is adopted, or the process ends: a body may have been read before it was re-encrypted,
        and be opened only now.
        """
        if not self._is_part(other):
            raise ValueError("this is no part of the keyset")
        roots, self._data, _ = other._inside()  # noqa: SLF001  # of the same class
        self.created_at = other.created_at
        self._turn(roots)

    def same(self, other: "Keyset") -> bool:
        """Whether both have the same keys."""
        return self._inside() == other._inside()  # noqa: SLF001  # of the same class

    def adopt(self, other: "Keyset") -> None:
        """Take over the keys of a successor: everything that seals, hashes or makes tokens with
        this keyset does so with its new keys from now on.

        ``ValueError`` if the other lacks a key of this one, whose data would not open.
        """
        roots, data, primary = self._successor(other)
        self.created_at = other.created_at
        if primary != self._primary:
            self._data, self._primary = data, primary
            self._aead.adopt(self._primary, self._data)
            self._streams.adopt(self._primary, self._data)
        self._turn(roots)

    def prepare(self, following: "Keyset | None") -> None:
        """Know the keys of a successor before anything is under them: what they have sealed opens,
        their tokens resolve, and every hash knows that under their root. ``None``: none follows.

        ``ValueError`` as ``adopt``.
        """
        own = self._roots
        coming = own if following is None else self._successor(following)[0]
        if following is not None:
            self._aead.open_also(following._data)  # noqa: SLF001  # of the same class
            self._streams.open_also(following._data)  # noqa: SLF001  # of the same class
        late = coming.hash != own.hash
        hashes = HashRoots(own.hash, coming.hash if late else own.older_hash, late=late)
        tokens = (coming.token,) if coming.token != own.token else ()
        if hashes != self._hashes[0] or tokens != self._coming_tokens:
            self._hashes[0], self._coming_tokens = hashes, tokens
            self._turn_issued()

    def follow(self, stored: "Keyset") -> None:
        """Have the keys of a keyset that another replica has changed: it was given
        others, or lost some. One from before a change of this replica has no effect.

        ``ValueError`` where it is neither.
        """
        if self._is_part(stored):
            self.forget(stored)
            return
        try:
            self.adopt(stored)
        except ValueError:
            stored._successor(self)  # noqa: SLF001  # of the same class

    @property
    def data_keys(self) -> tuple[str, ...]:
        """The ids of all data keys in hexadecimal, oldest first; the last one seals. Not secret."""
        return tuple(key_id.hex() for key_id in self._data)

    @property
    def ids(self) -> frozenset[str]:
        """The ids of all data keys and roots."""
        return frozenset((*self.data_keys, *self.hash_roots, *self.token_roots))

    def aead(self) -> RecordAead:
        """Cipher of the record bodies of this environment."""
        return self._aead

    def streams(self) -> StreamAead:
        """Cipher of contents in chunks."""
        return self._streams

    @property
    def live_hash_roots(self) -> Sequence[HashRoots]:
        """The hash roots, as the one element; another one as soon as they change."""
        return self._hashes

    @property
    def hash_roots(self) -> tuple[str, ...]:
        """The ids of the hash roots, the one of new hashes last. Not secret."""
        older = self._roots.older_hash
        return tuple(root_id(root) for root in (older, self._roots.hash) if root is not None)

    @property
    def token_roots(self) -> tuple[str, ...]:
        """The same of the token roots."""
        return tuple(map(root_id, (*self._roots.older_tokens, self._roots.token)))

    def hasher(self, *purpose: str) -> Prf:
        """A keyed hash of 16 bytes for one purpose, e.g.

        look-ups by one field; each purpose has its own key. While there are two roots it is a
        ``Digest``.
        """
        return turning_hasher(self._hashes, "hash", self.environment, *purpose)

    def audit_roots(self) -> tuple[bytes, bytes]:
        """The first key of the audit chain, and that of the names of records in it; both are sealed
        on their own from then on.
        """
        of = self._roots.audit or self._roots.hash, "hash", self.environment, "audit"
        return derive(*of, "chain"), derive(*of, "record")

    def sealed_texts(self, *purpose: str) -> SealedTexts:
        """Return the cipher of texts that callers carry for us, with a key per purpose."""

        def keys() -> list[bytes]:
            label = ("sealed text", self.environment, *purpose)
            return [derive(root, *label) for root in self._hashes[0][:2] if root is not None]

        texts = SealedTexts(*keys())
        self._issued[texts] = lambda issued: issued.turn(keys())
        return texts

    def field_keys(self, schema: str, field: str) -> FieldKeys:
        """The keyed functions that tokens of one field are made with."""
        keys = FieldKeys(self._newest_tokens(), self.environment, schema, field)
        keys.turn(self._newest_tokens(), self._coming_tokens)
        self._issued[keys] = lambda issued: issued.turn(self._newest_tokens(), self._coming_tokens)
        return keys

    def rehash_keys(self, dtk: str, schema: str, field: str) -> FieldKeys:
        """The keyed functions of one field under a key of the caller's own; without this keyset the
        key alone tells nothing.
        """
        root = derive(self._roots.token, "rehash", self.environment, dtk)
        return FieldKeys((root,), self.environment, schema, field)

    def _newest_tokens(self) -> tuple[bytes, ...]:
        return (self._roots.token, *reversed(self._roots.older_tokens))

    def _successor(self, other: "Keyset") -> tuple[Roots, dict[bytes, bytes], bytes]:
        roots, data, primary = other._inside()  # noqa: SLF001  # of the same class
        if not roots.follow(self._roots) or not self._data.items() <= data.items():
            raise ValueError("this is no successor of the keyset")
        return roots, data, primary

    def _is_part(self, other: "Keyset") -> bool:
        roots, data, primary = other._inside()  # noqa: SLF001  # of the same class
        return (
            roots in (self._roots, self._roots._replace(older_hash=None))
            and primary == self._primary
            and data.items() <= self._data.items()
        )

    def _turn(self, roots: Roots) -> None:
        """Switch the issued objects to these roots."""
        if roots != self._roots:
            self._roots = roots
            self._hashes[0], self._coming_tokens = HashRoots(roots.hash, roots.older_hash), ()
            self._turn_issued()

    def _turn_issued(self) -> None:
        self.older_tokens = bool(self._roots.older_tokens or self._coming_tokens)
        for issued, turn in self._issued.items():
            turn(issued)

    def _with(self, data: dict[bytes, bytes], primary: bytes, roots: Roots) -> "Keyset":
        keyset = Keyset(self.environment, data, primary, roots)
        keyset.rooted, keyset.created_at = self.rooted, dict(self.created_at)
        return keyset

    def _inside(self) -> tuple[Roots, dict[bytes, bytes], bytes]:
        return self._roots, self._data, self._primary

    @classmethod
    def _of(cls, environment: str, content: dict[str, Any]) -> "Keyset":
        data = {bytes.fromhex(key_id): _bare(key) for key_id, key in content["data"].items()}
        primary = bytes.fromhex(content["primary"])
        if primary not in data:
            raise ValueError("the primary data key is missing")
        before, audit = content.get("older hash"), content.get("audit")
        roots = Roots(
            _bare(content["hash"]),
            _bare(content["token"]),
            None if before is None else _bare(before),
            tuple(map(_bare, content.get("older tokens", ()))),
            None if audit is None else _bare(audit),
        )
        keyset = cls(environment, data, primary, roots)
        keyset.rooted = content.get("rooted", False) is True
        keyset.created_at = dict(content.get("created at", {}))
        return keyset


def _new_key() -> bytes:
    return os.urandom(_KEY_BYTES)


def _new_id(taken: dict[bytes, bytes]) -> bytes:
    while (key_id := os.urandom(KEY_ID_BYTES)) in taken:
        pass
    return key_id


def _armor(key: bytes) -> str:
    return base64.b64encode(key).decode()


def _bare(text: str) -> bytes:
    key = base64.b64decode(text, validate=True)
    if len(key) != _KEY_BYTES:
        raise ValueError("a key has the wrong length")
    return key


def _damaged() -> VaultError:
    return VaultError(
        Code.BAD_KEYS,
        "The wrapped keys of the vault are damaged or of a newer version: restore the vault from "
        "a backup.",
    )
