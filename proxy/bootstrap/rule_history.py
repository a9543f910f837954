"""The rules that fronts use, in a note of the store.

Rules come to an owner and to its fronts one after the other. An owner that starts anew meanwhile
has read the new files alone; it finds here what its fronts still have.
"""

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from proxy.clock import Clock
from proxy.errors import Code, VaultError
from proxy.redactor.exchange.runtime import Runtime
from proxy.redactor.rules import RuleSet
from proxy.storage.base import Store

_NOTE: Final = "fronts:default"
#: Rule sets in the note, and milliseconds for which one may be used after the next one came.
_MOST: Final = 5
_USABLE: Final = 86_400_000


class UsedRules(msgspec.Struct, frozen=True, array_like=True):
    """A rule set, and when a front first used it."""

    version: str
    at: int
    files: dict[str, bytes]


class RuleHistory:
    """``EarlierRules`` of an owner.

    ``load`` makes rules of files; ``bind`` makes them ready beside those in force.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        load: Callable[[Mapping[str, bytes]], RuleSet],
        bind: Callable[[RuleSet], Awaitable[Runtime]],
    ) -> None:
        self._store, self._clock = store, clock
        self._load, self._bind = load, bind
        self._newest = ""  #: version that is known to be the first of the note

    async def remember(self, rules: RuleSet) -> None:
        """See ``EarlierRules``; the newest ones are first."""
        if rules.version == self._newest or not rules.files:
            return
        stored = await self._store.note(_NOTE)
        listed = _decoded(stored)
        if not listed or listed[0].version != rules.version:
            others = [one for one in listed if one.version != rules.version]
            fresh = UsedRules(rules.version, self._clock(), dict(rules.files))
            content = zlib.compress(_encode([fresh, *others][:_MOST]))
            try:
                await self._store.put_note(_NOTE, content, stored)
            except VaultError as error:
                if error.code is not Code.CONFLICT:
                    raise
                return  # another replica was faster, and this is tried again at the next question
        self._newest = rules.version

    async def recall(self, version: str) -> Runtime | None:
        """See ``EarlierRules``."""
        replaced, listed = self._clock(), _decoded(await self._store.note(_NOTE))
        for one in listed:
            if one.version == version and self._clock() - replaced < _USABLE:
                return await self._bind(await asyncio.to_thread(self._load, one.files))
            replaced = one.at
        return None


def _decoded(stored: bytes | None) -> list[UsedRules]:
    return [] if stored is None else _decode(zlib.decompress(stored))


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[UsedRules]).decode
