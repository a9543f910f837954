"""Sources of master keys, by URI scheme.

Adding a source is one class and one line in ``SOURCES``.

``file:///folder/keys.json``
    ``{"format": 1, "id": fingerprint, "key": 32 bytes in base64}``. Made at first start, or mounted
    as a secret. ``older`` may hold keys of the same form, which only open, and ``next`` one that is
    about to follow.
``aws-kms:///folder/keys.json?key=arn:aws:kms:…``, and likewise of other services (``kms``)
    The same file with every key in it sealed by a key management service:
    ``{"format": 2, "sealed_by": the key of the service, "id": fingerprint, "sealed": text}``.
``env:NAME``
    32 bytes in base64 in an environment variable; behind it, with spaces between them, older ones,
    which only open.

A master key is replaced in three steps, of which each is durable before the next: ``stage`` keeps
the new one beside the present one, whoever asks for it wraps everything with the new one,
``switch`` makes it the present one. Every key that may have wrapped something opens at every moment
in between, so that nobody is ever locked out who stops there.
"""

import base64
import binascii
import functools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from proxy.crypto import master_key
from proxy.crypto.kms import KINDS, SealedKeys, newer_file, parse_kms_address
from proxy.crypto.kms_clients import CLIENTS
from proxy.crypto.master_key import MASTER_BYTES, MasterKey
from proxy.crypto.secret import secret_variable
from proxy.errors import Code, VaultError

_MAKE_ONE = "`head -c 32 /dev/urandom | base64` makes one"


class KeySource(Protocol):
    """A place that holds one master key."""

    def exists(self) -> bool:
        """Whether there is something at the place, good or bad."""

    def load(self) -> MasterKey:
        """The master key; ``VaultError(BAD_KEYS)`` with what to do when it is missing, damaged or
        open to others.
        """

    def create(self) -> MasterKey:
        """Make a fresh key, durable and read back before this returns.

        ``VaultError(NOT_WRITABLE)`` when the place cannot be written; ``VaultError(BAD_KEYS)`` when
        it already holds something, which is never overwritten, or when such a source cannot make
        keys.
        """

    def staged(self) -> MasterKey | None:
        """The next key, which also opens the data of the current one; ``None``: there is none."""

    def stage(self) -> MasterKey:
        """Make the key that is to follow, durable and read back before this returns.

        Raises as ``create``, and as ``load``.
        """

    def switch(self) -> None:
        """Make the staged key the present one; the one before only opens from now on.

        Raises as ``create``, and as ``load``.
        """


class MovableKeys(KeySource, Protocol):
    """A place whose keys another place can take over."""

    def bare(self) -> list[bytes]:
        """The keys themselves, the present one first, for another source to take over.

        Raises as ``load``; ``VaultError(BAD_KEYS)`` while another key is about to follow.
        """

    def rewrap(self, former: "MovableKeys") -> MasterKey:
        """Take the keys of another source, or re-seal the own ones if a service seals them.

        Raises as ``create``, as ``load``, and as ``bare`` of the other one, and has changed nothing
        then.
        """


class BareKeys:
    """Entries of a key file whose keys are not sealed."""

    head: Mapping[str, Any] = {"format": 1}

    def entry(self, key: bytes) -> dict[str, str]:
        """Return the entry of the file for a key."""
        return {"key": base64.b64encode(key).decode()}

    def key(self, entry: Mapping[str, Any]) -> bytes:
        """The key that an entry tells; ``ValueError`` or ``KeyError`` where it tells none."""
        return _bare(entry["key"])

    def refuse(self, path: str, content: Mapping[str, Any]) -> None:
        """Raise ``VaultError(BAD_KEYS)`` for a file that is not of this form."""
        if content["format"] == SealedKeys.format:
            raise VaultError(
                Code.BAD_KEYS,
                f"The key file {path} was sealed by {content['sealed_by']}: the setting `keys` "
                "has to name that key, as docs/keys.md says.",
            )
        if content["format"] != self.head["format"]:
            raise newer_file(path)


class FileSource:
    """A key file; who may read it is checked before it is (``read_key_file``).

    ``form``: how it tells keys.
    """

    def __init__(self, path: str, form: BareKeys | SealedKeys) -> None:
        self.path = path
        self._form = form

    def exists(self) -> bool:
        return os.path.lexists(self.path)

    def load(self) -> MasterKey:
        content = self._content()
        others = [*content.get("older", []), *self._next(content)]
        return self._key_of(content, [self._key_of(other) for other in others])

    def staged(self) -> MasterKey | None:
        content = self._content()
        if not self._next(content):
            return None
        others = [content, *content.get("older", [])]
        return self._key_of(content["next"], [self._key_of(other) for other in others])

    def stage(self) -> MasterKey:
        with master_key.alone(self.path):
            content = self._content()
            if not self._next(content):
                self._replace({**content, "next": self._entry(os.urandom(MASTER_BYTES))})
        staged = self.staged()
        if staged is None:
            raise self._unread()
        return staged

    def switch(self) -> None:
        with master_key.alone(self.path):
            content = self._content()
            if not self._next(content):
                return
            older = content.get("older", [])
            before = {name: content[name] for name in content["next"]}
            self._replace({**self._form.head, **content["next"], "older": [before, *older]})

    def create(self) -> MasterKey:
        return self._make([os.urandom(MASTER_BYTES)])

    def bare(self) -> list[bytes]:
        content = self._content()
        if self._next(content):
            raise VaultError(
                Code.BAD_KEYS,
                f"The key file {self.path} holds a master key that is about to follow: start the "
                "vault once, which brings that to its end, and try again.",
            )
        return [self._form.key(one) for one in (content, *content.get("older", []))]

    def rewrap(self, former: MovableKeys) -> MasterKey:
        if not (isinstance(former, FileSource) and former.path == self.path):
            return self._make(former.bare())
        with master_key.alone(self.path):
            keys = former.bare()
            self._replace(self._content_of(keys))
        return self.load()

    def _make(self, keys: Sequence[bytes]) -> MasterKey:
        if self.exists():  # nothing is sealed for a file that is refused
            raise master_key.key_file_exists(self.path)
        master_key.write_new(self.path, _written(self._content_of(keys)))
        read = self.load()
        if read.id != MasterKey(keys[0]).id:
            raise self._unread()
        return read

    def _content_of(self, keys: Sequence[bytes]) -> dict[str, Any]:
        """Return the content of a file with these keys, the current one first."""
        first, *older = [self._entry(key) for key in keys]
        return {**self._form.head, **first, **({"older": older} if older else {})}

    def _entry(self, key: bytes) -> dict[str, str]:
        return {"id": MasterKey(key).id, **self._form.entry(key)}

    def _key_of(self, entry: Mapping[str, Any], others: Sequence[MasterKey] = ()) -> MasterKey:
        """The key that an entry tells; ``ValueError`` if none, or unlike its fingerprint."""
        master = MasterKey(self._form.key(entry), others)
        if master.id != entry["id"]:
            raise ValueError("the fingerprint is that of another key")
        return master

    def _next(self, content: dict[str, Any]) -> list[dict[str, Any]]:
        return [content["next"]] if "next" in content else []

    def _content(self) -> dict[str, Any]:
        """Return the content of the file, after a check of each of its keys."""
        try:
            content: dict[str, Any] = json.loads(master_key.read_key_file(self.path))
            self._form.refuse(self.path, content)
            for one in (content, *content.get("older", []), *self._next(content)):
                self._key_of(one)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise VaultError(
                Code.BAD_KEYS,
                f"The key file {self.path} is damaged: restore it from a backup. Without it the "
                "vault cannot be read.",
            ) from None
        return content

    def _replace(self, content: dict[str, Any]) -> None:
        master_key.replace_key_file(self.path, _written(content))
        if self._content() != content:
            raise self._unread()

    def _unread(self) -> VaultError:
        return VaultError(
            Code.NOT_WRITABLE,
            f"The key file {self.path} does not read back as it was written: check the disk.",
        )


class EnvironmentSource:
    """A key in an environment variable; older ones behind it."""

    def __init__(self, uri: str) -> None:
        self.name = uri.partition(":")[2]
        if not self.name.isidentifier():
            raise VaultError(
                Code.BAD_KEYS, "The setting `keys` must name an environment variable: env:NAME."
            )

    def exists(self) -> bool:
        return bool(secret_variable(self.name))

    def load(self) -> MasterKey:
        first, *older = self.bare()
        return MasterKey(first, [MasterKey(one) for one in older])

    def bare(self) -> list[bytes]:
        try:
            return [_bare(text) for text in secret_variable(self.name).split() or [""]]
        except ValueError:
            raise VaultError(
                Code.BAD_KEYS,
                f"The environment variable {self.name} must hold 32 random bytes in base64; "
                f"{_MAKE_ONE}.",
            ) from None

    def staged(self) -> MasterKey | None:
        return None

    def stage(self) -> MasterKey:
        raise VaultError(
            Code.BAD_KEYS,
            "A key is not made inside an environment variable: put another one before the one in "
            f"{self.name}, with a space between them, start again, and rotate then; {_MAKE_ONE}.",
        )

    def switch(self) -> None:
        """Of no effect: nothing is ever staged here."""

    def create(self) -> MasterKey:
        raise VaultError(
            Code.BAD_KEYS,
            f"A key is not made inside an environment variable: set {self.name} to 32 random "
            f"bytes in base64; {_MAKE_ONE}.",
        )

    def rewrap(self, former: MovableKeys) -> MasterKey:  # noqa: ARG002  # as the port has it
        raise VaultError(
            Code.BAD_KEYS,
            f"Keys are not put into an environment variable: write them into {self.name} by hand.",
        )


def _file_source(uri: str) -> MovableKeys:
    parts = urlsplit(uri)
    path = unquote(parts.path)
    if parts.netloc or not path.startswith("/") or parts.query or parts.fragment:
        raise VaultError(
            Code.BAD_KEYS,
            "The setting `keys` must name an absolute path: file:///folder/keys.json.",
        )
    return FileSource(path, BareKeys())


@functools.cache  # keys that a service has opened are cached in this process
def _sealed_source(uri: str) -> MovableKeys:
    try:
        address = parse_kms_address(uri)
    except ValueError as fault:
        raise VaultError(
            Code.BAD_KEYS, f"The address of the keys cannot be used: {fault}."
        ) from None
    return FileSource(address.path, SealedKeys(address, CLIENTS[address.scheme]))


#: URI scheme -> key source.
SOURCES: dict[str, Callable[[str], MovableKeys]] = {
    "file": _file_source,
    "env": EnvironmentSource,
    **dict.fromkeys(KINDS, _sealed_source),
}


def open_source(uri: str) -> MovableKeys:
    """The key source of a ``keys`` setting; ``VaultError(BAD_KEYS)`` for a bad scheme or URI."""
    source = SOURCES.get(uri.partition(":")[0])
    if source is None:
        schemes = ", ".join(f"{scheme}:" for scheme in SOURCES)
        raise VaultError(Code.BAD_KEYS, f"The setting `keys` must begin with one of {schemes}")
    return source(uri)


def _written(content: dict[str, Any]) -> bytes:
    return (json.dumps(content) + "\n").encode()


def _bare(text: str) -> bytes:
    """The bytes of a base64 text; ``ValueError`` when it is not 32 bytes, or plainly not random."""
    try:
        raw = base64.b64decode(text.strip(), validate=True)
    except binascii.Error:
        raise ValueError("not base64") from None
    if len(raw) != MASTER_BYTES:
        raise ValueError(f"a master key is {MASTER_BYTES} bytes")
    # 32 random bytes have fewer than 16 distinct values once in 10^16 keys
    if len(set(raw)) < MASTER_BYTES // 2:
        raise ValueError("a placeholder, not a random key")
    return raw
