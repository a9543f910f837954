"""The vault's own interface on a free port: operations of a test's own, or those of the table on a
vault of its own.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import aiohttp
from aiohttp import web

from proxy.api.app import vault_app
from proxy.api.connection import VaultConnection
from proxy.api.context import (
    ApiHandler,
    ApiOperation,
    ApiRequest,
    ApiResponse,
    EnvironmentServices,
    Services,
)
from proxy.auth.policies import Policies
from proxy.auth.sealed_notes import SealedNote
from proxy.crypto.keyset import Keyset
from proxy.errors import Code, VaultError
from proxy.model.record import Principal, Role
from proxy.net.client_address import Trusted
from proxy.net.listener import listen
from proxy.storage.memory import MemoryStore
from proxy.vault.records.repository import Records
from proxy.vault.schemas.catalog import DeclaredSchema
from tests.support.audit import Kept, auditing

#: What the tests' own access check takes.
TOKENS = {
    "writer": Principal("writer", "default"),
    "chief": Principal("chief", "default", admin=True),
    "acme": Principal("acme", "acme"),
    "chief of acme": Principal("chief of acme", "acme", admin=True),
    **{str(role): Principal(role, "default", roles=(role,)) for role in Role},
}


#: Begins the name of a client under the policies that follow, separated by commas.
UNDER = "under:"


async def access(request: web.Request) -> Principal:
    """Names in place of tokens."""
    name = request.headers.get("Authorization", "").removeprefix("Bearer ")
    if name.startswith(UNDER):
        return Principal(name, "default", policies=tuple(name.removeprefix(UNDER).split(",")))
    if name not in TOKENS:
        raise VaultError(Code.UNAUTHORIZED, "An access token is needed.")
    return TOKENS[name]


async def once(call: ApiRequest, handler: ApiHandler) -> ApiResponse:
    """Every request is carried out."""
    return await handler(call)


class NoSchemas:
    """A catalog without anything in it."""

    def using(self) -> AbstractContextManager[None]:
        return nullcontext()

    def records(self, name: str) -> Records:
        raise VaultError(Code.UNKNOWN_SCHEMA, f"There is no {name}.")

    def schemas(self) -> list[DeclaredSchema]:
        return []


def no_policies() -> Policies:
    """The policies of an environment that has none."""
    keyset = Keyset.create("default")
    return Policies(SealedNote(MemoryStore(), keyset.aead(), "default", "policies"), keyset.hasher)


def services(**given: Any) -> Services:
    """Services of a test, with one environment; what it does not give is not there."""
    here: dict[str, Any] = {
        "catalog": NoSchemas(),
        "once": once,
        "policies": no_policies(),
        "contents": None,
    }
    here |= {name: given.pop(name) for name in here if name in given}
    made = {
        "spaces": {"default": EnvironmentServices(**here)},
        "access": access,
        "body_limit": 4096,
        "country": "se",
    }
    given.setdefault("audit", auditing(Kept()))
    auth = {
        "auth": cast(Any, None),
        "trusted": Trusted(()),
        "functions": cast(Any, None),
        "environments": cast(Any, None),
    }
    return Services(**{**made, **auth, **given})


@dataclass
class Said:
    """An answer as it came."""

    status: int
    headers: Any
    body: bytes
    json: Any


class Client:
    """A client of the interface, as ``writer`` unless it says otherwise."""

    def __init__(self, address: str, session: aiohttp.ClientSession) -> None:
        self.address = address
        self.session = session

    async def __call__(self, method: str, path: str, as_: str = "writer", **more: Any) -> Said:
        headers = {**({"Authorization": f"Bearer {as_}"} if as_ else {}), **more.pop("headers", {})}
        async with self.session.request(
            method, self.address + path, headers=headers, **more
        ) as response:
            body = await response.read()
            kind = response.headers.get("Content-Type", "")
            content = await response.json(content_type=None) if body and "json" in kind else None
            return Said(response.status, response.headers, body, content)


@asynccontextmanager
async def serving(made: Services, *operations: ApiOperation) -> AsyncIterator[Client]:
    """Operations, or those of the table, on a free port; and a client of them."""
    app = vault_app(made, operations) if operations else vault_app(made)
    async with listen("vault", ("127.0.0.1", 0), app, connections=VaultConnection) as address:
        async with aiohttp.ClientSession(auto_decompress=False) as session:
            yield Client(f"http://{address}", session)
