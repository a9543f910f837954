"""Replicas that share a vault (``replicas=true``): reload what another one has changed."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final

from proxy.api.context import Services
from proxy.auth.token_service import TokenService
from proxy.errors import VaultError
from proxy.storage.base import Peers, Store
from proxy.telemetry import logs

_log = logs.logger("bootstrap")

#: Reads again what a note says, given the part and the environment of its name.
Reader = Callable[[str, str], Awaitable[None]]
#: Seconds until it is tried again to read what another replica has changed.
_RETRY: Final = 0.2


def _readers(
    auth: TokenService, services: Services, honeytokens: Callable[[], Awaitable[None]]
) -> Mapping[str, Reader]:
    """Return the function that reloads each kind of note that another replica may write.

    Other kinds cannot change while this one runs (``storage.postgres.replicas``).
    """

    async def clients(part: str, environment: str) -> None:
        await auth.clients.read_again(environment, int(part))

    async def policies(_part: str, environment: str) -> None:
        await services.spaces[environment].policies.read_again()

    async def signing(_part: str, _environment: str) -> None:
        await auth.keys.read_again()

    async def approvals(_part: str, _environment: str) -> None:
        if services.approvals is not None:
            await services.approvals.read_again()

    async def baits(_part: str, _environment: str) -> None:
        await honeytokens()

    return {
        "clients": clients, "policies": policies, "signing": signing, "approvals": approvals,
        "baits": baits,
    }  # fmt: skip


class Follower:
    """Follows the notes of a store whose other owners are ``peers``."""

    def __init__(self, store: Store, peers: Peers, read: Mapping[str, Reader]) -> None:
        self._store = store
        self._peers = peers
        self._read = read
        self._counter = 0  #: of the root that was read last
        self._digests: dict[str, bytes] = {}  #: digests of what was read, by name of the note

    async def run(self) -> None:
        """Read again what others change, for ever."""
        while True:
            await self._peers.changed()
            try:
                await self.catch_up()
            except VaultError as error:
                _log.error(
                    "what another replica has changed could not be read and will be again",
                    code=error.code,
                    text=error.message,
                )
                await asyncio.sleep(_RETRY)

    async def catch_up(self) -> None:
        """Read everything that is another than was known. Raises ``VaultError``."""
        digests = dict(await self._store.refresh())
        counter = 0 if self._store.root is None else self._store.root.state.counter
        for name in sorted(digests.keys() | self._digests.keys()):
            if digests.get(name) == self._digests.get(name):
                continue
            kind, _, environment = name.partition(":")
            kind, _, part = kind.partition("/")
            if (read := self._read.get(kind)) is not None:
                await read(part, environment)
            if name in digests:
                self._digests[name] = digests[name]
            else:
                del self._digests[name]
        if counter > self._counter:
            self._counter = counter
            await self._peers.heard(counter)


async def follow(
    store: Store,
    auth: TokenService,
    services: Services,
    honeytokens: Callable[[], Awaitable[None]],
) -> list[Coroutine[Any, Any, None]]:
    """Return the background tasks of a replica; none if no other instance shares the store.

    Reads everything once more first: others may have changed it since the start.

    Everything is read once more before: others may have changed it since.
    """
    if store.peers is None:
        return []
    follower = Follower(store, store.peers, _readers(auth, services, honeytokens))
    await follower.catch_up()
    return [follower.run()]


async def announce_start(store: Store) -> None:
    """Let the next instance start, which has to wait for this one."""
    if store.peers is not None:
        await store.peers.ready()
