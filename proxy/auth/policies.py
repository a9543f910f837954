"""The access policies of one environment: kept in one sealed note of the store, all of them in
memory, and the rights they give.

A change is durable before it applies, and applies from the next request. Nothing is computed per
request: rights are made at the first use of a combination of policies and schema, and cached until
a policy or the schema changes. A client whose policy was removed has the rights of its other
policies, and without others none at all.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Final, NamedTuple, TypeVar

import msgspec

from proxy.auth.access_tokens import Caller
from proxy.auth.rights import Keyed, excess, firewall, full_rights, granted
from proxy.auth.sealed_notes import SealedNote
from proxy.crypto.keyset import Keyset
from proxy.errors import Code, VaultError
from proxy.model.policy import AccessPolicy, encode_policy
from proxy.model.rights import FirewallMode, Principal, Rights
from proxy.model.schema import Schema
from proxy.storage.base import Store

#: Combinations of policies, and of policies and schema, whose rights are kept.
MOST_CACHED_RIGHTS: Final = 32_768
_TRIES: Final = 5


class PolicyProperties(NamedTuple):
    """Properties that follow from a caller's policies alone, before a schema is named."""

    #: ``mask`` where one of them lets callers from outside in, unless one keeps them out
    firewall: FirewallMode | None = None
    origins: frozenset[str] = frozenset()  #: where its pages may come from
    #: another one as soon as one of the policies has changed; binds cursors and answers that are
    #: kept
    mark: str = ""
    #: whether one of them tells single records apart, by rows or a filter endpoint
    guarded: bool = False


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
#: Maps the stored policies to the new ones.
_Edit = Callable[[Mapping[str, "StoredPolicy"]], Mapping[str, "StoredPolicy"]]

#: That of a client without policies.
FREE: Final = PolicyProperties()


class StoredPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """A policy, and whether files declared it last."""

    policy: AccessPolicy
    of_file: bool = False


class Policies:
    """The policies of one environment. ``load`` before use.

    ``keyed``: that of its keyset; ``most_cached``: combinations whose rights are kept.
    """

    def __init__(
        self, note: SealedNote, keyed: Keyed, most_cached: int = MOST_CACHED_RIGHTS
    ) -> None:
        self._most_cached = most_cached
        self._note = note
        self._keyed = keyed
        self._policies: dict[str, StoredPolicy] = {}
        self._declared: frozenset[str] = frozenset()  # names that files have now
        self._writing = asyncio.Lock()
        self._properties: dict[tuple[str, ...], PolicyProperties] = {}
        self._rights: dict[tuple[tuple[str, ...], str], tuple[Schema, Rights]] = {}
        self._full_rights: dict[str, tuple[Schema, Rights]] = {}
        self._in_force = object()  # another one after each change
        #: Where pages may come from by any of the policies.
        self.origins: frozenset[str] = frozenset()
        #: Whether one of them lets callers from outside the country in.
        self.masks = False

    async def load(self) -> None:
        """Read them all. Raises ``VaultError(CANNOT_OPEN)`` when the note was changed or belongs to
        other keys.
        """
        content = await self._note.read()
        self._install(_decode(content) if content else {})

    def __len__(self) -> int:
        return len(self._policies)

    def find(self, name: str) -> AccessPolicy | None:
        stored = self._policies.get(name)
        return None if stored is None else stored.policy

    def listed(self) -> list[AccessPolicy]:
        """All of them, by name."""
        return [self._policies[name].policy for name in sorted(self._policies)]

    # ------------------------------------------------------------------ changes

    async def put(self, policy: AccessPolicy) -> bool:
        """Store a policy; return whether its name is new.

        Raises ``VaultError(CONFLICT)`` for one that a file declares.
        """
        self._refuse_declared(policy.name)
        new = policy.name not in self._policies
        await self._change(lambda current: {**current, policy.name: StoredPolicy(policy)})
        return new

    async def declare(self, policies: Sequence[AccessPolicy]) -> list[str]:
        """Store all policies of the files; return the names of those that changed."""
        fresh = {policy.name: StoredPolicy(policy, of_file=True) for policy in policies}
        changed = [name for name, stored in fresh.items() if self._policies.get(name) != stored]
        if changed:
            await self._change(lambda current: {**current, **fresh})
        self._declared = frozenset(fresh)
        return changed

    async def remove(self, name: str) -> None:
        """Forget a policy. Raises ``VaultError``: NOT_FOUND; CONFLICT for one of a file."""
        if name not in self._policies:
            raise VaultError(Code.NOT_FOUND, "There is no policy of that name.")
        self._refuse_declared(name)
        await self._change(
            lambda current: {other: one for other, one in current.items() if other != name}
        )

    # ------------------------------------------------------------------ rights

    def properties(self, names: tuple[str, ...]) -> PolicyProperties:
        """Return the properties that follow from these policies."""
        if not names:
            return FREE
        properties = self._properties.get(names)
        if properties is None:
            own = self._of(names)
            origins = frozenset(origin for policy in own for origin in policy.origins)
            mark = hashlib.sha256(encode_policy([names, own])).hexdigest()[:32]
            guarded = any(
                policy.rows is not None or policy.external_acl is not None for policy in own
            )
            properties = PolicyProperties(firewall(own), origins, mark, guarded)
            self._cache(self._properties, names, properties)
        return properties

    def rights(self, names: tuple[str, ...], schema: Schema) -> Rights:
        """Return the rights on records of a schema under these policies, at least one."""
        key = (names, schema.name)
        cached = self._rights.get(key)
        if cached is None or cached[0] is not schema:
            rights = granted(self._of(names), schema, self._keyed)
            cached = (schema, _marked(rights, self.properties(names).mark))
            self._cache(self._rights, key, cached)
        return cached[1]

    def rights_of(self, principal: Principal, schema: Schema) -> Rights:
        """Return the same of a caller under policies; the last ones asked for stand with it."""
        if type(principal) is not Caller:
            return self.rights(principal.policies, schema)
        if (
            principal.schema is schema
            and principal.in_force is self._in_force
            and principal.rights is not None
        ):
            return principal.rights
        rights = self.rights(principal.policies, schema)
        principal.keep(schema, self._in_force, rights)
        return rights

    def full_rights(self, schema: Schema) -> Rights:
        """Return the rights of a client without policies, also those outside the country."""
        cached = self._full_rights.get(schema.name)
        if cached is None or cached[0] is not schema:
            cached = self._full_rights[schema.name] = (schema, _marked(full_rights(schema), ""))
        return cached[1]

    def excess(self, own: tuple[str, ...], other: tuple[str, ...]) -> str | None:
        """Describe rights that the other policies give beyond one's own; as ``rights``."""
        return excess(self._of(own), self._of(other))

    def raises(
        self, policy: AccessPolicy, own: tuple[str, ...], clients: Iterable[tuple[str, ...]]
    ) -> str | None:
        """Describe rights beyond ``own`` that a changed policy would give to one of the clients.

        ``clients``: the policies of each client; one under it that does not end up within one's own
        must not get more than it had.
        """
        mine = self._of(own)
        if beyond := excess(mine, [policy]):
            return beyond
        for names in clients:
            if policy.name in names:
                before = self._of(names)
                after = [policy if one.name == policy.name else one for one in before]
                if excess(mine, after) and (beyond := excess(before, after)):
                    return beyond
        return None

    async def read_again(self) -> None:
        """Another process has changed policies: they count as they are now."""
        async with self._writing:
            await self.load()

    # ------------------------------------------------------------------ parts

    def _of(self, names: Iterable[str]) -> list[AccessPolicy]:
        return [self._policies[name].policy for name in names if name in self._policies]

    def _refuse_declared(self, name: str) -> None:
        if name in self._declared:
            raise VaultError(
                Code.CONFLICT,
                f"The policy {name!r} is declared in a file of the setting policies: change the "
                "file.",
            )

    async def _change(self, edit: _Edit) -> None:
        async with self._writing:
            for _ in range(_TRIES):
                current = edit(self._policies)
                if await self._note.written(encode_policy(current)):
                    self._install(current)
                    return
                # another process was faster: apply the change to its result
                await self.load()
            raise VaultError(Code.CONFLICT, "Others change policies at the same moment: try again.")

    def _install(self, current: Mapping[str, StoredPolicy]) -> None:
        self._policies = dict(current)
        self._properties.clear()
        self._rights.clear()
        self._in_force = object()
        self.masks = any(one.policy.firewall == "mask" for one in current.values())
        self.origins = frozenset(
            origin for one in current.values() for origin in one.policy.origins
        )

    def _cache(self, cache: dict[_Key, _Value], key: _Key, value: _Value) -> None:
        if len(cache) >= self._most_cached:
            cache.clear()
        cache[key] = value


def _marked(rights: Rights, mark: str) -> Rights:
    abroad = (
        None
        if rights.abroad is None
        else msgspec.structs.replace(rights.abroad, mark=f"{mark}/outside")
    )
    return msgspec.structs.replace(rights, mark=mark, abroad=abroad)


_decode: Final = msgspec.json.Decoder(dict[str, StoredPolicy], float_hook=Decimal).decode


async def open_policies(store: Store, keyset: Keyset) -> Policies:
    """The access policies of the environment that the keyset belongs to."""
    policies = Policies(
        SealedNote(store, keyset.aead(), keyset.environment, "policies"), keyset.hasher
    )
    await policies.load()
    return policies
