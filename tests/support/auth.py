"""A token service over the in-memory store, with a clock that tests own."""

import base64
import urllib.parse
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

import argon2

from proxy.auth.authorization_server import AuthOptions, AuthorizationServer, open_service
from proxy.auth.clients import Grant, NewClient
from proxy.crypto.keyset import Keyset
from proxy.storage.base import Store
from tests.support.audit import audit_context
from tests.support.clock import ManualClock
from tests.support.memory import MemoryStore

#: As in service, but in a fraction of a millisecond.
CHEAP = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)

HERE = "https://se-vault.example.com"


@dataclass
class Office:
    """Everything a test of access turns."""

    store: Store
    keyset: Keyset
    clock: ManualClock
    service: AuthorizationServer
    outcomes: Counter[str] = field(default_factory=Counter)

    async def client(self, *, admin: bool = False) -> NewClient:
        return await self.service.clients.create("shop", "default", Grant(admin=admin))

    async def token(self, made: NewClient) -> str:
        proof = basic(made.client.id, made.secret)
        answer = await self.service.token(form(), proof, "192.0.2.1", audit_context())
        token: str = answer["access_token"]
        return token


@asynccontextmanager
async def office(
    store: Store | None = None, keyset: Keyset | None = None, clock: ManualClock | None = None
) -> AsyncIterator[Office]:
    """A token service; pass store and keyset on to see what another process would."""
    store, keyset, clock = (
        store or MemoryStore(),
        keyset or Keyset.create("default"),
        clock or ManualClock(),
    )
    outcomes = Counter[str]()

    def observe(outcome: str) -> None:
        outcomes[outcome] += 1

    with patch("proxy.crypto.client_secrets._HASHER", CHEAP):
        service = await open_service(
            store, {"default": keyset}, clock, observe, AuthOptions(300, (HERE,))
        )
        try:
            yield Office(store, keyset, clock, service, outcomes)
        finally:
            service.close()


def form(**parameters: str) -> bytes:
    """A body for the token endpoint; the grant is there unless it is given as empty."""
    given = {"grant_type": "client_credentials", **parameters}
    return urllib.parse.urlencode({name: text for name, text in given.items() if text}).encode()


def basic(client: str, secret: str) -> str:
    """Basic credentials, form-encoded first (RFC 6749, section 2.3.1)."""
    joined = f"{urllib.parse.quote_plus(client)}:{urllib.parse.quote_plus(secret)}"
    return "Basic " + base64.b64encode(joined.encode()).decode()
