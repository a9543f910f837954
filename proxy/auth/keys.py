"""The keys that sign access tokens: sealed in the store, replaced by age while requests go on.

A new key signs from the moment it is durable. The ones before verify until every token that they can have signed has
ended; then they are forgotten. Nobody has to do anything, and no request notices.
"""

from typing import Any, Final

import msgspec

from proxy.auth.sealed import SealedNote
from proxy.clock import Clock
from proxy.crypto.aead import RecordAead
from proxy.crypto.signing import SigningKey
from proxy.errors import Code, VaultError
from proxy.storage.base import Store

#: Longest lifetime of a token that can be set, in seconds; a retired key verifies for as long.
LONGEST_LIFETIME: Final = 3600

#: Milliseconds after which another key signs.
ROTATE_AFTER: Final = 24 * 3_600_000


class _Kept(msgspec.Struct, frozen=True):
    seed: bytes
    made_at: int
    retired_at: int | None = None


_decode = msgspec.json.Decoder(list[_Kept]).decode
_encode = msgspec.json.Encoder().encode


class SigningKeys:
    """One key that signs, and those that only verify. ``load`` before use."""

    def __init__(self, store: Store, aead: RecordAead, environment: str, clock: Clock) -> None:
        self._note = SealedNote(store, aead, environment, "signing")
        self._clock = clock
        self._kept: list[_Kept] = []  # the last one signs
        self.known: dict[str, SigningKey] = {}  #: by ``kid``; the last one signs

    @property
    def current(self) -> SigningKey:
        """The key that signs."""
        return self.known[next(reversed(self.known))]

    def public(self) -> list[dict[str, Any]]:
        """The public halves of all keys that verify, the newest first (RFC 7517)."""
        return [key.jwk for key in reversed(self.known.values())]

    async def load(self) -> None:
        """Read the keys; a store without any gets the first one."""
        self._adopt(await self._read())
        await (self.upkeep() if self._kept else self.rotate())

    async def upkeep(self) -> None:
        """Rotate when the key is old enough, and forget those whose tokens have all ended. Raises what the store raises."""
        now = self._clock()
        if now - self._kept[-1].made_at >= ROTATE_AFTER:
            await self.rotate()
        elif any(_over(kept, now) for kept in self._kept):
            await self._write([kept for kept in self._kept if not _over(kept, now)])

    async def rotate(self) -> None:
        """Sign with a fresh key from now on. Raises what the store raises; the key before goes on signing then."""
        now = self._clock()
        retired = [
            kept if kept.retired_at is not None else msgspec.structs.replace(kept, retired_at=now)
            for kept in self._kept
            if not _over(kept, now)
        ]
        await self._write([*retired, _Kept(SigningKey.create().seed(), now)])

    async def _read(self) -> list[_Kept]:
        content = await self._note.read()
        return _decode(content) if content else []

    async def _write(self, kept: list[_Kept]) -> None:
        try:
            await self._note.write(_encode(kept))
        except VaultError as error:
            if error.code is not Code.CONFLICT:
                raise
            kept = await self._read()  # another process rotated: its keys are as good
        self._adopt(kept)

    def _adopt(self, kept: list[_Kept]) -> None:
        keys = [SigningKey(item.seed) for item in kept]
        self._kept = kept
        self.known = {key.kid: key for key in keys}


def _over(kept: _Kept, now: int) -> bool:
    return kept.retired_at is not None and now - kept.retired_at > LONGEST_LIFETIME * 1000
