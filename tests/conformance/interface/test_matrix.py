"""Every operation × every kind of caller, from the one table of ``tests.support.matrix``: status,
code, what is told, what changes.
"""

import base64
import ipaddress
import itertools
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import web

from proxy.api.access import BearerAccess
from proxy.api.context import Access, ApiOperation
from proxy.api.openapi import Example
from proxy.api.operation_table import OPERATIONS
from proxy.auth.clients import Grant
from proxy.edge.firewall import Firewall, Mode
from proxy.edge.quotas import Quotas
from proxy.edge.rate_limit import RateLimit
from proxy.edge.rate_limit import RatePolicy as Quota
from proxy.model.rights import Principal
from proxy.net.client_address import Trusted
from tests.conformance.test_interface_examples import DESCRIBED, attached, filled, request
from tests.support.api import Interface, Said, access, interface, prepare, waiting
from tests.support.examples import CONTACT, KEPT, RECORDS
from tests.support.matrix import ALIASES, CALLERS, TABLE, UNDER, Endpoint, expected, policy

#: Where the operations are that are about the records of schemas.
MODELS = "/api/models"
TABLED = [operation for operation in OPERATIONS if operation.name not in ALIASES]

#: Texts of the records that are there, as they stand in answers; those of the fields that some
#: callers must not see first.
SECRET = (
    "Astrid Lind", "Björn Ek", "Carin Falk", '{\\"name\\":\\"Astrid\\"}', '{\\"name\\":\\"Bo\\"}',
)  # fmt: skip
OF_PEOPLE = (
    *SECRET,
    *(str(record["email"]) for record in RECORDS),
    *(str(kept["key1"]) for kept in KEPT),
)

#: What of it belongs to records that are there for callers under rows, or that a filter endpoint
#: allows.
OF_LUND = ("Carin Falk", "carin@example.com", '{\\"name\\":\\"Bo\\"}', "bo@example.com")
OF_SECOND = ("Björn Ek", "bjorn@example.com", '{\\"name\\":\\"Bo\\"}', "bo@example.com")

#: Their answers hold the examples of the document itself.
TELLS_EXAMPLES = ("openapi", "docs")

#: Who has asked too often.
LIMITED = "chief of acme"
ABROAD = "203.0.113.7"
LOOPBACK = Trusted((ipaddress.ip_network("127.0.0.0/8"),))


def test_the_table_has_every_operation():
    assert set(TABLE) == {operation.name for operation in TABLED}


#: Those whose answers depend on what the engine finds meet the shipped one; of the others the examples
#: of the document run on it, and so do the cases of policies and their law.
FOUND_BY_ENGINE = ("rows", "acl-some")
CASES = [(caller, "sqlite" if caller in FOUND_BY_ENGINE else "memory") for caller in CALLERS]


@pytest.mark.slow
@pytest.mark.parametrize(("caller", "engine"), CASES)
async def test_every_operation_answers_every_kind_of_caller_as_the_table_says(
    caller, engine, tmp_path
):
    wrong: list[object] = []
    for number, operations in enumerate(together(caller)):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with scene(folder, engine, caller) as here:
            texts = await furnish(here, stranger=caller in ("stranger", "too-often"))
            first = await told(here)
            for operation in operations:
                family = family_of(operation)
                if number and (await told(here))[family] != first[family]:
                    wrong.append(f"something before {operation.name} changed records")
                wrong += await met(here, operation, caller, texts)
            if number == 0 and await told(here) != first:
                wrong.append("something that was refused changed records")
    assert wrong == []


def together(caller: str) -> Iterator[list[ApiOperation]]:
    """What meets the same records: all that changes nothing, and one that changes those of each
    family, which needs them as they were.
    """
    yield [operation for operation in TABLED if not changes(operation, caller)]
    changing = [operation for operation in TABLED if changes(operation, caller)]
    yield from ([operation] for operation in changing if family_of(operation) == "both")
    families = ([one for one in changing if family_of(one) == name] for name in (MODELS, "records"))
    for pair in itertools.zip_longest(*families):
        yield [operation for operation in pair if operation is not None]


def changes(operation: ApiOperation, caller: str) -> bool:
    """Whether the caller may, and it changes something."""
    return expected(operation.name, caller).startswith(("ok", "empty")) and not reads(operation)


def family_of(operation: ApiOperation) -> str:
    """Whose records it is about."""
    if operation.path.startswith(MODELS):
        return MODELS
    return "records" if operation.path.startswith(("/api/records", "/v2/")) else "both"


def reads(operation: ApiOperation) -> bool:
    return operation.reads or operation.method == "GET" or operation.access is Access.OPEN


@asynccontextmanager
async def scene(folder: Path, engine: str, caller: str) -> AsyncIterator[Interface]:
    """A vault with the records of the document, a guard at its door, and the policies of the
    caller.
    """
    rates = RateLimit(Quota("credential", 1_000_000, 1_000_000))
    rates.owing.add(LIMITED)
    given: dict[str, Any] = {
        "acl": Endpoint(),
        "firewall": Firewall(Mode.BLOCK, "se", (), None, LOOPBACK),
        "quotas": Quotas(credential=rates),
    }
    async with interface(folder, engine, **given) as here:
        here.services.access = either(here)
        await here.declare("contact", CONTACT)
        for schema in ("contact", "records") if caller in UNDER else ():
            body = policy(caller, schema)
            await here.policy(
                caller.replace("-", "") + schema, body.pop("schema"), *body.pop("actions"), **body
            )
        yield here


async def furnish(here: Interface, *, stranger: bool) -> dict[str, str]:
    """What the examples find; the texts that stand for what differs each time, files by the
    beginning of their address.
    """
    for path, records in (("/api/models/contact", RECORDS), ("/api/records", KEPT)):
        for record in records:
            assert (await here.client("POST", path, "chief", json=record)).status == 201
    await here.realm.create("acme" if stranger else "examples", "For examples")
    made = await here.office.service.clients.create("examples", "default", Grant(admin=True))
    await here.policy("spare", "contact", "read")
    await prepare(here)
    return {
        MODELS: await attached(here, "/api/models/contact/c-1"),
        "/": await attached(here, "/api/records/se/r-1"),
        "client_id": made.client.id,
        "basic": base64.b64encode(f"{made.client.id}:{made.secret}".encode()).decode(),
        "policy": "spare",
        "approval_id": await waiting(here, made.client.id),
    }


def either(here: Interface) -> Any:
    """Names of callers, as in other tests, and real tokens."""
    real = BearerAccess(here.office.service.tokens)

    async def check(asked: web.Request) -> Principal:
        named = asked.headers.get("Authorization", "").removeprefix("Bearer ")
        return await (real if named.startswith("ey") else access)(asked)

    return check


async def told(here: Interface) -> dict[str, Any]:
    """Every record of each family and its files, as an administrator sees it."""
    contacts = await here.client("GET", "/api/models/contact/export", "chief")
    kept = await here.client("POST", "/api/records/find", "chief", json={"country": "se"})
    models, records = contacts.json.get("data"), kept.json["data"]
    return {MODELS: models, "records": records, "both": (models, records)}


async def met(
    here: Interface, operation: ApiOperation, caller: str, texts: dict[str, str]
) -> list[object]:
    """What is wrong with what the caller gets."""
    answer = await asked(here, operation, caller, texts)
    wrong: list[object] = []
    want, got = expected(operation.name, caller), said(answer, operation)
    if got != (str(first_example(operation).status) if want in ("ok", "empty") else want):
        wrong.append((operation.name, want, got))
    shown = answer.body.decode(errors="replace")
    if want == "empty" and any(text in shown for text in OF_PEOPLE):
        wrong.append((operation.name, "is not empty"))
    if operation.name not in TELLS_EXAMPLES:
        wrong += [
            (operation.name, "tells", text) for text in hidden_from(caller, want) if text in shown
        ]
    return wrong


def first_example(operation: ApiOperation) -> Example:
    """The first one that is not about an error."""
    return next(example for example in DESCRIBED[operation.name].examples if example.status < 400)


def said(answer: Said, operation: ApiOperation) -> str:
    if answer.status < 400:
        return str(answer.status)
    word = answer.json.get("code") or answer.json["error"]
    if operation.refuse is not None and word == "access_denied":
        word = "outside_country"  # as RFC 6749 would say it
    return f"{answer.status} {word}"


def hidden_from(caller: str, want: str) -> Sequence[str]:
    """Texts that the answer must not hold."""
    if want not in ("ok", "empty") or caller in (
        "nobody",
        "expired",
        "stranger",
        "write-only",
        "delete-only",
        "acl-none",
    ):
        return OF_PEOPLE
    if caller in ("hidden", "redacted", "masked"):
        return SECRET
    allowed = {"rows": OF_LUND, "acl-some": OF_SECOND}.get(caller, OF_PEOPLE)
    return [text for text in OF_PEOPLE if text not in allowed]


async def asked(
    here: Interface, operation: ApiOperation, caller: str, texts: dict[str, str]
) -> Said:
    """The example, as the caller sends it."""
    example = first_example(operation)
    family = MODELS if operation.path.startswith(MODELS) else "/"
    texts = {**texts, "file_id": texts[family]}
    path = operation.path
    for name, value in example.path.items():
        path = path.replace(f"{{{name}}}", quote(filled(value, texts), safe=""))
    more = request(DESCRIBED[operation.name], example, texts)
    if caller == "outside":
        more["headers"]["X-Forwarded-For"] = ABROAD
    if caller.startswith("acl-") and caller != "acl-no-token":
        more["headers"]["x-client-auth"] = "Bearer somebody"
    by = "" if "Authorization" in more["headers"] else await token(here, caller)
    return await here.client(operation.method, path, by, params=dict(example.query), **more)


async def token(here: Interface, caller: str) -> str:
    if caller in UNDER:
        name = caller.replace("-", "")
        return f"under:{name}contact,{name}records"
    if caller == "expired":
        text = await here.office.token(await here.office.client(admin=True))
        here.clock.advance(301_000)
        return text
    return {"nobody": "", "stranger": "acme", "too-often": LIMITED}.get(caller, "chief")
