"""The token service of an opened store: everything read, and the first signing key made where there is none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from proxy.auth.audiences import Audiences
from proxy.auth.clients import Clients
from proxy.auth.keys import SigningKeys
from proxy.auth.passwords import Passwords
from proxy.auth.policies import Policies
from proxy.auth.sealed import SealedNote
from proxy.auth.service import Observe, TokenService
from proxy.auth.throttle import KnownNetworks, Throttle
from proxy.auth.tokens import Tokens
from proxy.clock import Clock
from proxy.crypto.keyset import Keyset
from proxy.storage.base import Store


@dataclass(frozen=True, slots=True)
class AuthOptions:
    """What the operator decides about access."""

    lifetime: int = 300  #: of an access token, in seconds
    audiences: Sequence[str] = ()  #: the addresses that are ours; none: those of the listener
    apart: bool = True  #: whether tokens of the external issuer name their environment


async def open_clients(
    store: Store, keysets: Mapping[str, Keyset], passwords: Passwords, clock: Clock, *, apart: bool = True
) -> Clients:
    """The clients of the environments that these keysets belong to; ``apart`` as of ``Clients``."""
    clients = Clients(store, passwords, clock, apart=apart)
    for environment, keyset in keysets.items():
        await clients.join(environment, keyset.aead())
    return clients


async def open_policies(store: Store, keyset: Keyset) -> Policies:
    """The access policies of the environment that the keyset belongs to."""
    policies = Policies(SealedNote(store, keyset.aead(), keyset.environment, "policies"), keyset.hasher)
    await policies.load()
    return policies


async def open_service(
    store: Store, keysets: Mapping[str, Keyset], clock: Clock, observe: Observe, options: AuthOptions
) -> TokenService:
    """The token service. The first environment's keyset seals the signing keys. ``close`` it after use."""
    passwords = Passwords()
    try:
        await passwords.prepare()
        clients = await open_clients(store, keysets, passwords, clock, apart=options.apart)
        environment, keyset = next(iter(keysets.items()))
        keys = SigningKeys(store, keyset.aead(), environment, clock)
        await keys.load()
        known = KnownNetworks(clock, SealedNote(store, keyset.aead(), environment, "networks"))
        await known.load()
    except BaseException:
        passwords.close()
        raise
    tokens = Tokens(clients, keys, Audiences(options.audiences), clock, options.lifetime)
    return TokenService(tokens, passwords, Throttle(clock, known=known), observe)
