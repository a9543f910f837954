"""Where master keys come from, by URI scheme.

Adding a source is one class and one line in ``SOURCES``.

``file:///folder/keys.json``
    ``{"format": 1, "id": fingerprint, "key": 32 bytes in base64}``. Made at first start, or mounted
    as a secret. ``older`` may hold keys of the same form, which only open, and ``next`` one that is
    about to follow.
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
import json
import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from proxy.crypto import key_file
from proxy.crypto.master_key import MASTER_BYTES, MasterKey
from proxy.crypto.secret import secret_variable
from proxy.errors import Code, VaultError

_FORMAT = 1
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
        """The key that is about to follow, which also opens what the present one does; ``None``
        where there is none.
        """

    def stage(self) -> MasterKey:
        """Make the key that is to follow, durable and read back before this returns.

        Raises as ``create``, and as ``load``.
        """

    def switch(self) -> None:
        """Make the staged key the present one; the one before only opens from now on.

        Raises as ``create``, and as ``load``.
        """


class FileSource:
    """A key file; who may read it is checked before it is (``keyfile``)."""

    def __init__(self, uri: str) -> None:
        parts = urlsplit(uri)
        self.path = unquote(parts.path)
        if parts.netloc or not self.path.startswith("/") or parts.query or parts.fragment:
            raise VaultError(
                Code.BAD_KEYS,
                "The setting `keys` must name an absolute path: file:///folder/keys.json.",
            )

    def exists(self) -> bool:
        return os.path.lexists(self.path)

    def load(self) -> MasterKey:
        content = self._content()
        others = [*content.get("older", []), *self._next(content)]
        return _key_of(content, [_key_of(other) for other in others])

    def staged(self) -> MasterKey | None:
        content = self._content()
        if not self._next(content):
            return None
        others = [content, *content.get("older", [])]
        return _key_of(content["next"], [_key_of(other) for other in others])

    def stage(self) -> MasterKey:
        content = self._content()
        if not self._next(content):
            self._replace({**content, "next": _fresh()[1]})
        staged = self.staged()
        if staged is None:
            raise self._unread()
        return staged

    def switch(self) -> None:
        content = self._content()
        if not self._next(content):
            return
        before = {"id": content["id"], "key": content["key"]}
        self._replace(
            {"format": _FORMAT, **content["next"], "older": [before, *content.get("older", [])]}
        )

    def create(self) -> MasterKey:
        master, content = _fresh()
        key_file.write_new(self.path, _written({"format": _FORMAT, **content}))
        read = self.load()
        if read.id != master.id:
            raise self._unread()
        return read

    def _next(self, content: dict[str, Any]) -> list[dict[str, Any]]:
        return [content["next"]] if "next" in content else []

    def _content(self) -> dict[str, Any]:
        """What the file says, every key of it looked at."""
        try:
            content: dict[str, Any] = json.loads(key_file.read_key_file(self.path))
            if content["format"] != _FORMAT:
                raise VaultError(
                    Code.BAD_KEYS,
                    f"The key file {self.path} was written by a newer version: run that version.",
                )
            for one in (content, *content.get("older", []), *self._next(content)):
                _key_of(one)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise VaultError(
                Code.BAD_KEYS,
                f"The key file {self.path} is damaged: restore it from a backup. Without it the "
                "vault cannot be read.",
            ) from None
        return content

    def _replace(self, content: dict[str, Any]) -> None:
        key_file.replace_key_file(self.path, _written(content))
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
        try:
            first, *older = secret_variable(self.name).split() or [""]
            return MasterKey(_bare(first), [MasterKey(_bare(text)) for text in older])
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
            "A key is not made inside an environment variable: put another one before the one "
            f"in {self.name}, with a space "
            f"between them, start again, and rotate then; {_MAKE_ONE}.",
        )

    def switch(self) -> None:
        """Of no effect: nothing is ever staged here."""

    def create(self) -> MasterKey:
        raise VaultError(
            Code.BAD_KEYS,
            f"A key is not made inside an environment variable: set {self.name} to 32 random "
            f"bytes in base64; {_MAKE_ONE}.",
        )


#: URI scheme -> key source.
SOURCES: dict[str, Callable[[str], KeySource]] = {
    "file": FileSource,
    "env": EnvironmentSource,
}


def open_source(uri: str) -> KeySource:
    """The key source of a ``keys`` setting; ``VaultError(BAD_KEYS)`` for an unknown scheme or a
    malformed URI.
    """
    source = SOURCES.get(uri.partition(":")[0])
    if source is None:
        schemes = ", ".join(f"{scheme}:" for scheme in SOURCES)
        raise VaultError(Code.BAD_KEYS, f"The setting `keys` must begin with one of {schemes}")
    return source(uri)


def _fresh() -> tuple[MasterKey, dict[str, str]]:
    """A new key, and how a file tells it."""
    raw = os.urandom(MASTER_BYTES)
    master = MasterKey(raw)
    return master, {"id": master.id, "key": base64.b64encode(raw).decode()}


def _written(content: dict[str, Any]) -> bytes:
    return (json.dumps(content) + "\n").encode()


def _key_of(content: dict[str, Any], others: Sequence[MasterKey] = ()) -> MasterKey:
    """The key that a file tells; ``ValueError`` when it is no key, or another one than its
    fingerprint says.
    """
    master = MasterKey(_bare(content["key"]), others)
    if master.id != content["id"]:
        raise ValueError("the fingerprint is that of another key")
    return master


def _bare(text: str) -> bytes:
    """The bytes of a base64 text; ``ValueError`` when it is not 32 bytes, or plainly not random."""
    try:
        raw = base64.b64decode(text.strip(), validate=True)
    except binascii.Error:
        raise ValueError("not base64") from None
    # 32 random bytes have fewer than 16 distinct values once in 10^16 keys
    if len(set(raw)) < MASTER_BYTES // 2:
        raise ValueError("a placeholder, not a random key")
    return raw
