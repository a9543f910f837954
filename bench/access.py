"""Measure 18: who calls and what it may see, worked out for each request, among many clients and
policies against among few.

``ours`` is what every guarded request pays before its handler does anything: the token is looked
at, the client and its policies are found, and the rights to a schema. 10 000 clients under 1 000
policies take turns; the peer is the same with one of each. The note tells the time of the check of
a token alone.

``python -m bench.access`` prints the figures; nothing listens.
"""

import asyncio
import json
import statistics
import time
from collections.abc import Callable
from itertools import cycle, islice
from typing import Any, NamedTuple

from proxy.auth.access_tokens import SigningKeys, TokenIssuer
from proxy.auth.audiences import Audiences
from proxy.auth.authorization_server import open_clients
from proxy.auth.clients import Grant
from proxy.auth.policies import Policies, open_policies
from proxy.auth.secret_checks import SecretChecks
from proxy.clock import system_clock
from proxy.crypto.keyset import Keyset
from proxy.model.policy import AccessPolicy, Act
from proxy.model.policy_reader import read_policy
from proxy.model.schema import Schema
from proxy.model.schema_document import read_definition
from tests.support.memory import MemoryStore

HERE = "https://se-vault.example.com"
SCHEMA = read_definition(
    "contact",
    {
        "fields": {
            "id": {"type": "primary_key"},
            **{f"field{number}": {"type": "string", "storage": "indexed"} for number in range(20)},
        }
    },
)


class Office(NamedTuple):
    """Clients with their tokens, and policies."""

    tokens: TokenIssuer
    policies: Policies
    sent: list[str]


def policy(number: int) -> AccessPolicy:
    """One that redacts, masks, hides and narrows."""
    fields = {
        "field1": {"valueType": "redacted", "format": "[a-z]{8}@example.org"},
        "field2": {"valueType": "masked", "mask": {"last": 2}},
        "field3": "hidden",
    }
    rows = {"filter": {"field0": f"zone{number}"}}
    return read_policy(
        f"p{number}", {"schema": "contact", "actions": ["read"], "fields": fields, "rows": rows}
    )


class Cheap(SecretChecks):
    """Secrets that cost nothing: to hash ten thousand takes minutes, and none is guessed here."""

    async def create(self, secret: str = "") -> tuple[str, str]:
        return secret or "secret", "hash"


async def office(clients: int, policies: int) -> Office:
    """So many of each, every client with a token and under one policy."""
    store, keyset, secret_checks = MemoryStore(), Keyset.create("default"), Cheap(threads=1)
    known = await open_clients(store, {"default": keyset}, secret_checks, system_clock)
    for number in range(clients):
        await known.create("crm", "default", Grant(policies=(f"p{number % policies}",)))
    keys = SigningKeys(store, keyset.aead(), "default", system_clock)
    await keys.load()
    tokens = TokenIssuer(known, keys, Audiences((HERE,)), system_clock, 3600)
    made = await open_policies(store, keyset)
    await made.declare([policy(number) for number in range(policies)])
    secret_checks.close()
    return Office(tokens, made, [tokens.issue(client, (HERE,)) for client in known.listed()])


def checked(here: Office, token: str, schema: Schema) -> None:
    """What a request pays."""
    principal = here.tokens.principal(token)
    here.policies.rights_of(principal, schema).need(Act.READ)


def run(quick: bool = False) -> dict[str, Any]:
    """The row of measure 18; times in microseconds, the median of interleaved rounds, every token
    having been seen once.
    """
    calls, rounds = (2_000, 3) if quick else (20_000, 11)
    many = asyncio.run(office(200, 50) if quick else office(10_000, 1_000))
    few = asyncio.run(office(1, 1))
    for here in (many, few):
        for token in here.sent:
            checked(here, token, SCHEMA)
    times: tuple[list[float], list[float], list[float]] = ([], [], [])
    for _ in range(rounds):
        times[0].append(_time(lambda token: checked(many, token, SCHEMA), many.sent, calls))
        times[1].append(_time(lambda token: checked(few, token, SCHEMA), few.sent, calls))
        times[2].append(_time(many.tokens.principal, many.sent, calls))
    ours, peer, alone = [statistics.median(each) for each in times]
    row = {
        "measure": 18,
        "case": f"{len(many.sent):,} clients under {len(many.policies):,} policies".replace(
            ",", " "
        ),
        "unit": "us",
        "ours": round(ours, 3),
        "peer": round(peer, 3),
        "against": "one client under one policy",
        "ratio": round(ours / peer, 3),
    }
    return {"rows": [row], "notes": [f"18: the check of a token alone takes {alone:.2f} us of it"]}


def _time(call: Callable[[str], Any], sent: list[str], calls: int) -> float:
    """Microseconds a call, tokens in turns."""
    tokens = list(islice(cycle(sent), calls))
    start = time.perf_counter()
    for token in tokens:
        call(token)
    return (time.perf_counter() - start) / calls * 1e6


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
