"""The clients there are: kept in sealed notes of the store, and all in memory, so that each request
may ask for one.

Clients are spread over several notes by their id, so that making the ten thousandth writes some
hundred of them and not all. A change is durable before it counts, and counts for the next request
on: there is no cache that has to run out.
"""

import asyncio
import zlib
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from proxy.auth.sealed_notes import SealedNote
from proxy.auth.secret_checks import SecretChecks
from proxy.clock import Clock
from proxy.crypto.aead import RecordAead
from proxy.crypto.client_secrets import new_ident
from proxy.errors import Code, Detail, VaultError
from proxy.model.record import DEFAULT
from proxy.model.rights import Principal, Role
from proxy.storage.base import Store

_NAME: Final = 128  # characters of a client's name
_EXTERNAL: Final = 256  # characters of an id from outside
_TRIES: Final = 5

#: Everything that an administrator without policies may, as a role of an emergency.
ADMINISTRATOR: Final = "administrator"


class Grant(NamedTuple):
    """Rights of a client: administrator, roles, or policies on records (none: all records)."""

    admin: bool = False
    policies: tuple[str, ...] = ()
    roles: tuple[Role, ...] = ()
    #: roles it may take for some time in an emergency, and ``ADMINISTRATOR``
    emergency_roles: tuple[str, ...] = ()

    def faults(self) -> list[Detail]:
        """Return the contradictions within the grant."""
        if self.admin and self.roles:
            return [Detail("/roles", "An administrator has every role already.")]
        text = "A client with this role sees no records: policies would say nothing of it."
        idle = self.policies and self.roles and Role.ACCESS_OFFICER not in self.roles
        return [Detail("/policies", text)] if idle else []


class Emergency(msgspec.Struct, frozen=True):
    """A role that a client has taken for some time."""

    role: str
    reason: str
    ends_at: int  #: milliseconds since the epoch


class Client(msgspec.Struct, frozen=True):
    """A program that may ask for access tokens.

    ``secret`` is its argon2id hash; ``created_at`` milliseconds since the epoch.
    """

    id: str
    name: str
    environment: str
    admin: bool
    secret: str
    created_at: int
    version: int = 1  #: of the secret; a token is valid for the version it was issued under
    disabled: bool = False
    policies: tuple[str, ...] = ()  #: by name; none: everything in its environment
    #: the id that an external issuer gives it; such a client has no secret here
    external: str | None = None
    roles: tuple[Role, ...] = ()
    #: the client that made it and saw its secret; none: not made by a client
    origin: str | None = None
    emergency_roles: tuple[str, ...] = ()
    emergency: Emergency | None = None  #: the last one

    @property
    def secret_holder(self) -> str:
        """The same for all clients that one person may have the secrets of."""
        return self.origin or self.id

    @property
    def principal(self) -> Principal:
        """The client as a caller that has proved itself."""
        return Principal(self.id, self.environment, self.admin, self.policies, self.roles)

    def principal_until(self, now: int, until: int) -> tuple[Principal, int]:
        """The same with a role taken in an emergency, which counts until ``until`` at most."""
        taken = self.emergency
        if taken is None or now >= taken.ends_at:
            return self.principal, until
        if taken.role == ADMINISTRATOR:
            principal = Principal(self.id, self.environment, admin=True)
        else:
            roles = (*self.roles, Role(taken.role))
            principal = msgspec.structs.replace(self.principal, roles=roles)
        return principal, min(until, taken.ends_at)


class NewClient(NamedTuple):
    """A client and its secret, which is known at this moment only."""

    client: Client
    secret: str


class _Shard:
    """Some of the clients of one environment."""

    def __init__(self, note: SealedNote) -> None:
        self.note = note
        self.clients: dict[str, Client] = {}


_decode = msgspec.json.Decoder(list[Client]).decode
_encode = msgspec.json.Encoder().encode


class Clients:
    """The clients of all environments announced by ``join``.

    ``apart``: whether tokens of the external issuer name their environment. Where they do not, an
    id of it belongs to one client alone.
    """

    count = 64  #: notes that an environment's clients are spread over

    def __init__(
        self, store: Store, secret_checks: SecretChecks, clock: Clock, *, apart: bool = True
    ) -> None:
        self.apart = apart
        self._store = store
        self._secret_checks = secret_checks
        self.clock = clock
        self._clients: dict[str, Client] = {}
        self.state = object()  #: another one after each change of any of them
        # ids by environment, by the id of the external issuer
        self._registered: dict[str, dict[str, str]] = {}
        self._writing = asyncio.Lock()
        self._shards: dict[str, list[_Shard]] = {}  # by environment

    async def join(self, environment: str, aead: RecordAead) -> None:
        """Read the clients of one more environment; they count from now on. Raises ``VaultError``
        (CANNOT_OPEN) when a note was changed or belongs to other keys; none of them counts then.
        """
        notes = [
            SealedNote(self._store, aead, environment, f"clients/{number}")
            for number in range(self.count)
        ]
        shards = [(_Shard(note), _decoded(await note.read())) for note in notes]
        self._shards[environment] = [shard for shard, _ in shards]
        for shard, clients in shards:
            self._install(shard, clients)

    async def leave(self, environment: str) -> None:
        """Forget an environment's clients: none of their tokens stays valid. Their data remains."""
        async with self._writing:
            for shard in self._shards.pop(environment, ()):
                self._install(shard, {})

    def __len__(self) -> int:
        return len(self._clients)

    def find(self, ident: str) -> Client | None:
        """The client of that id, as it is now."""
        return self._clients.get(ident)

    def registered(self, external: str) -> list[Client]:
        """The clients to which an external issuer gives that id: one in each environment at most,
        and one in all unless ``apart``.
        """
        return [self._clients[ident] for ident in self._registered.get(external, {}).values()]

    def listed(self) -> list[Client]:
        """All of them, oldest first."""
        return sorted(self._clients.values(), key=lambda client: (client.created_at, client.id))

    def under(self, environment: str, policy: str) -> int:
        """Count the clients of an environment that have this policy."""
        clients = [one for one in self._clients.values() if one.environment == environment]
        return sum(policy in one.policies for one in clients)

    async def create(
        self,
        name: str,
        environment: str,
        grant: Grant = Grant(),  # noqa: B008  # it cannot be changed
        *,
        external: str | None = None,
        origin: str | None = None,
    ) -> NewClient:
        """Create a client under existing policies.

        ``external``: a client of an external issuer, without a secret; ``origin``: its maker.

        Raises ``VaultError``: INVALID_INPUT for a name that is none, or an unknown environment;
        CONFLICT for an external id that is registered in that environment already, or in any unless
        ``apart``.
        """
        faults = [*self._faults(name, environment, external), *grant.faults()]
        if faults:
            raise VaultError(
                Code.INVALID_INPUT, "The client cannot be made as described.", tuple(faults)
            )
        secret, stored = await self._secret_checks.create() if external is None else ("", "")
        client = Client(
            new_ident(),
            name,
            environment,
            grant.admin,
            stored,
            self.clock(),
            policies=tuple(dict.fromkeys(grant.policies)),
            external=external,
            roles=tuple(dict.fromkeys(grant.roles)),
            origin=origin,
            emergency_roles=tuple(dict.fromkeys(grant.emergency_roles)),
        )

        def change(_: Client | None) -> Client:
            if external is not None:
                self._refuse_registered(external, environment)
            return client

        return NewClient(await self._put(environment, client.id, change), secret)

    async def adopt(self, ident: str, secret: str, name: str) -> Client:
        """Create an administrator of ``default`` with an id and a secret from outside."""
        _, stored = await self._secret_checks.create(secret)
        client = Client(ident, name, DEFAULT, admin=True, secret=stored, created_at=self.clock())
        return await self._put(DEFAULT, ident, lambda _: client)

    async def renew(self, ident: str) -> NewClient:
        """Give a client a new secret; the old one and every token issued for it end.

        Raises ``VaultError``: NOT_FOUND; CONFLICT for a disabled client, which stays disabled, and
        one of an external issuer: it would be a secret for nothing.
        """
        client = _there(self._clients.get(ident))
        if client.external is not None:
            text = "The client gets its tokens from the external issuer, and has no secret here."
            raise VaultError(Code.CONFLICT, text)
        secret, stored = await self._secret_checks.create()

        def changed(client: Client | None) -> Client:
            before = _there(client)
            if before.disabled:
                text = "The client is disabled and stays so: make a new one in its place."
                raise VaultError(Code.CONFLICT, text)
            return msgspec.structs.replace(before, secret=stored, version=before.version + 1)

        return NewClient(await self._put(client.environment, ident, changed), secret)

    async def disable(self, ident: str) -> Client:
        """End the client and its tokens, and keep it listed. Raises ``VaultError(NOT_FOUND)``."""
        environment = _there(self._clients.get(ident)).environment
        return await self._put(
            environment,
            ident,
            lambda client: msgspec.structs.replace(_there(client), disabled=True),
        )

    async def take(
        self, ident: str, emergency: Emergency, alarm: Callable[[], None] | None = None
    ) -> Client:
        """Grant a client a role until an instant, or (one in the past) revoke it.

        ``alarm`` is raised once, before the role counts, and not for one that is refused. Raises
        ``VaultError(CONFLICT)`` where it has one for longer: no emergency is lengthened.
        """
        due = [] if alarm is None else [alarm]

        def changed(client: Client | None) -> Client:
            before = _there(client)
            taken, now = before.emergency, self.clock()
            if taken is not None and now < taken.ends_at and now < emergency.ends_at:
                text = "The client has a role of an emergency: end that one first."
                raise VaultError(Code.CONFLICT, text)
            while due:
                due.pop()()
            return msgspec.structs.replace(before, emergency=emergency)

        environment = _there(self._clients.get(ident)).environment
        return await self._put(environment, ident, changed)

    async def remove(self, ident: str) -> None:
        """End the client and its tokens, and forget it. Raises ``VaultError(NOT_FOUND)``."""

        def without(clients: dict[str, Client]) -> None:
            _there(clients.pop(ident, None))

        await self._change(_there(self._clients.get(ident)).environment, ident, without)

    def _faults(self, name: str, environment: str, external: str | None) -> list[Detail]:
        faults = []
        if not (0 < len(name) <= _NAME and name.isprintable() and name.strip()):
            faults.append(Detail("/name", f"must be 1 to {_NAME} printable characters"))
        if external is not None and not (0 < len(external) <= _EXTERNAL and external.isprintable()):
            faults.append(Detail("/external_id", f"must be 1 to {_EXTERNAL} printable characters"))
        if environment not in self._shards:
            names = ", ".join(sorted(self._shards))
            faults.append(
                Detail("/environment_id", f"there is no environment of that name: there is {names}")
            )
        return faults

    def _refuse_registered(self, external: str, environment: str) -> None:
        taken = self._registered.get(external, {})
        if environment in taken:
            text = "Another client of this environment has this id."
        elif taken and not self.apart:
            text = (
                "A client of another environment has this id, and with auth.environment_claim: "
                "none no token would tell which is meant."
            )
        else:
            return
        raise VaultError(
            Code.CONFLICT, "The client is registered already.", (Detail("/external_id", text),)
        )

    def _shard(self, environment: str, ident: str) -> _Shard:
        """Return the shard that stores this client.

        Raises ``VaultError(NOT_FOUND)`` when the environment has gone meanwhile.
        """
        shards = self._shards.get(environment)
        if shards is None:
            raise VaultError(Code.NOT_FOUND, "There is no such environment any more.")
        return shards[zlib.crc32(ident.encode()) % self.count]

    async def _put(
        self, environment: str, ident: str, change: Callable[[Client | None], Client]
    ) -> Client:
        def edit(clients: dict[str, Client]) -> None:
            clients[ident] = change(clients.get(ident))

        await self._change(environment, ident, edit)
        return self._clients[ident]

    async def _change(
        self, environment: str, ident: str, edit: Callable[[dict[str, Client]], None]
    ) -> None:
        async with self._writing:
            shard = self._shard(environment, ident)
            for _ in range(_TRIES):
                clients = dict(shard.clients)
                edit(clients)
                if await shard.note.written(_encode(list(clients.values()))):
                    self._install(shard, clients)
                    return
                # another process was faster: apply the change to its result
                await self._read(shard)
            raise VaultError(Code.CONFLICT, "Others change clients at the same moment: try again.")

    async def read_again(self, environment: str, number: int) -> None:
        """Another process has changed clients of that part: they count as they are now."""
        async with self._writing:
            if (shards := self._shards.get(environment)) is not None:  # else when it is opened
                await self._read(shards[number])

    async def _read(self, shard: _Shard) -> None:
        self._install(shard, _decoded(await shard.note.read()))

    def _install(self, shard: _Shard, clients: dict[str, Client]) -> None:
        self.state = object()
        for ident in shard.clients.keys() - clients.keys():
            gone = self._clients.pop(ident)
            if gone.external is not None:
                self._registered[gone.external].pop(gone.environment, None)
        self._clients.update(clients)
        for client in clients.values():
            if client.external is not None:
                self._registered.setdefault(client.external, {})[client.environment] = client.id
        shard.clients = clients


def _decoded(content: bytes | None) -> dict[str, Client]:
    return {client.id: client for client in (_decode(content) if content else ())}


def _there(client: Client | None) -> Client:
    if client is None:
        raise VaultError(Code.NOT_FOUND, "There is no client of that id.")
    return client
