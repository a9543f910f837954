"""Where master keys come from, by URI scheme. Adding a source is one class and one line in ``SOURCES``.

``file:///folder/keys.json``
    ``{"format": 1, "id": fingerprint, "key": 32 bytes in base64}``. Made at first start, or mounted as a secret.
``env:NAME``
    32 bytes in base64 in an environment variable.
"""

import base64
import binascii
import json
import os
from collections.abc import Callable
from typing import Protocol
from urllib.parse import unquote, urlsplit

from proxy.crypto import keyfile
from proxy.crypto.master import MASTER_BYTES, MasterKey
from proxy.errors import Code, VaultError

_FORMAT = 1
_MAKE_ONE = "`head -c 32 /dev/urandom | base64` makes one"


class KeySource(Protocol):
    """A place that holds one master key."""

    def exists(self) -> bool:
        """Whether there is something at the place, good or bad."""

    def load(self) -> MasterKey:
        """The master key; ``VaultError(BAD_KEYS)`` with what to do when it is missing, damaged or open to others."""

    def create(self) -> MasterKey:
        """Make a fresh key, durable and read back before this returns.

        ``VaultError(NOT_WRITABLE)`` when the place cannot be written; ``VaultError(BAD_KEYS)`` when it already holds
        something, which is never overwritten, or when such a source cannot make keys.
        """


class FileSource:
    """A key file; who may read it is checked before it is (``keyfile``)."""

    def __init__(self, uri: str) -> None:
        parts = urlsplit(uri)
        self.path = unquote(parts.path)
        if parts.netloc or not self.path.startswith("/") or parts.query or parts.fragment:
            raise VaultError(Code.BAD_KEYS, "The setting `keys` must name an absolute path: file:///folder/keys.json.")

    def exists(self) -> bool:
        return os.path.lexists(self.path)

    def load(self) -> MasterKey:
        try:
            content = json.loads(keyfile.read(self.path))
            if content["format"] != _FORMAT:
                raise VaultError(
                    Code.BAD_KEYS, f"The key file {self.path} was written by a newer version: run that version."
                )
            master = _master(content["key"])
            if master.id != content["id"]:
                raise ValueError("the fingerprint is that of another key")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise VaultError(
                Code.BAD_KEYS,
                f"The key file {self.path} is damaged: restore it from a backup. Without it the vault cannot be read.",
            ) from None
        return master

    def create(self) -> MasterKey:
        raw = os.urandom(MASTER_BYTES)
        made = MasterKey(raw)
        content = {"format": _FORMAT, "id": made.id, "key": base64.b64encode(raw).decode()}
        keyfile.write_new(self.path, (json.dumps(content) + "\n").encode())
        read = self.load()
        if read.id != made.id:
            raise VaultError(
                Code.NOT_WRITABLE, f"The key file {self.path} does not read back as it was written: check the disk."
            )
        return read


class EnvironmentSource:
    """A key in an environment variable."""

    def __init__(self, uri: str) -> None:
        self.name = uri.partition(":")[2]
        if not self.name.isidentifier():
            raise VaultError(Code.BAD_KEYS, "The setting `keys` must name an environment variable: env:NAME.")

    def exists(self) -> bool:
        return bool(os.environ.get(self.name))

    def load(self) -> MasterKey:
        try:
            return _master(os.environ.get(self.name, ""))
        except ValueError:
            raise VaultError(
                Code.BAD_KEYS,
                f"The environment variable {self.name} must hold 32 random bytes in base64; {_MAKE_ONE}.",
            ) from None

    def create(self) -> MasterKey:
        raise VaultError(
            Code.BAD_KEYS,
            f"A key is not made inside an environment variable: set {self.name} to 32 random bytes in base64; {_MAKE_ONE}.",
        )


#: URI scheme -> key source.
SOURCES: dict[str, Callable[[str], KeySource]] = {
    "file": FileSource,
    "env": EnvironmentSource,
}


def open_source(uri: str) -> KeySource:
    """The key source of a ``keys`` setting; ``VaultError(BAD_KEYS)`` for an unknown scheme or a malformed URI."""
    source = SOURCES.get(uri.partition(":")[0])
    if source is None:
        known = ", ".join(f"{scheme}:" for scheme in SOURCES)
        raise VaultError(Code.BAD_KEYS, f"The setting `keys` must begin with one of {known}")
    return source(uri)


def _master(text: str) -> MasterKey:
    """The key of a base64 text; ``ValueError`` when it is not 32 bytes, or plainly not random."""
    try:
        raw = base64.b64decode(text.strip(), validate=True)
    except binascii.Error:
        raise ValueError("not base64") from None
    if len(set(raw)) < MASTER_BYTES // 2:  # 32 random bytes have fewer than 16 distinct values once in 10^16 keys
        raise ValueError("a placeholder, not a random key")
    return MasterKey(raw)
