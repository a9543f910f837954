"""Every example of the interface document is sent, and answers as it says."""

import base64
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio
from aiohttp import FormData
from jsonschema import Draft202012Validator

from proxy.api.context import ApiOperation
from proxy.api.openapi import Description, Example, expected_answer, interface_document, source
from proxy.api.operation_table import OPERATIONS
from proxy.auth.clients import Grant
from tests.support.api import ENGINES, Interface, interface, prepare, waiting
from tests.support.examples import CONTACT, FILE, KEPT, RECORDS
from tests.support.openapi import resolved
from tests.support.table import collected, told

DESCRIBED = source(OPERATIONS).described
EXEMPLIFIED = [one for one in OPERATIONS if DESCRIBED[one.name].examples]

#: Members whose values differ each time: their kind alone is compared.
DIFFERS = {
    "created_at", "updated_at", "at", "by", "access_token", "client_id", "client_secret", "file_id",
    "download_link", "expires_at", "run", "began_at", "next",
}  # fmt: skip

DOCUMENT = interface_document(OPERATIONS)


def alike(value: Any) -> Any:
    """What has to be the same each time."""
    if isinstance(value, dict):
        return {
            name: type(inner).__name__ if name in DIFFERS else alike(inner)
            for name, inner in value.items()
        }
    return [alike(item) for item in value] if isinstance(value, list) else value


def has_file(operation: ApiOperation) -> bool:
    """Whether its examples find a file."""
    return operation.schema is None or any(
        word in operation.path for word in ("/files", "/attachments")
    )


def changes(operation: ApiOperation, example: Example) -> bool:
    """Whether it leaves anything that others could see; what is refused does not, as
    ``interface/test_matrix.py`` holds it to.
    """
    if operation.name == "take_role":
        return True  # what waits for it is in no other's vault
    return example.status < 400 and operation.method != "GET" and not operation.reads


def names_client(example: Example) -> bool:
    named = ("{client_id}", "{basic}", "{approval_id}")
    return any(text in str((example.path, example.headers)) for text in named)


async def furnished(here: Interface, operation: ApiOperation, example: Example) -> dict[str, str]:
    """Make what the examples find; the texts that stand for what differs each time."""
    await here.declare("contact", CONTACT)
    for record in RECORDS:
        here.clock.advance(1000)
        assert (await here.client("POST", "/api/models/contact", json=record)).status == 201
    await here.realm.create("examples", "For examples")
    of_records = operation.schema is not None
    for kept in KEPT if of_records else ():
        here.clock.advance(1000)
        assert (await here.client("POST", "/api/records", json=kept)).status == 201
    owner = (
        f"/api/records/se/{KEPT[0]['record_key']}"
        if of_records
        else f"/api/models/contact/{RECORDS[0]['id']}"
    )
    texts = {"file_id": await attached(here, owner)} if has_file(operation) else {}
    await here.policy("sales", "contact", "read")
    texts["policy"] = "sales"
    if operation.name == "take_role":
        await prepare(here)
    if not names_client(example):
        return texts  # a client costs the time that guessing its secret would
    made = await here.office.service.clients.create("examples", "default", Grant(admin=True))
    basic = base64.b64encode(f"{made.client.id}:{made.secret}".encode()).decode()
    approval = await waiting(here, made.client.id)
    return {**texts, "client_id": made.client.id, "basic": basic, "approval_id": approval}


async def attached(here: Interface, owner: str) -> str:
    """The file of the first record of a family; its id."""
    name, content = FILE
    form = FormData()
    form.add_field("file", content, filename=name, content_type="text/plain")
    return str(
        (await here.client("POST", owner + "/files", data=form, headers={"x-filename": name})).json[
            "file_id"
        ]
    )


def filled(text: str, texts: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: texts.get(found[1], found[0]), text)


def request(described: Description, example: Example, texts: dict[str, str]) -> dict[str, Any]:
    headers = {name: filled(value, texts) for name, value in example.headers.items()}
    if example.raw is not None:
        return {"headers": headers, "data": example.raw.encode()}
    if example.body is None:
        return {"headers": headers}
    return {
        "headers": {"Content-Type": described.request_type, **headers},
        "data": filled(json.dumps(example.body), texts).encode(),
    }


#: What no line of the audit log may hold of the records that are there.
SECRETS = [
    value.encode() for record in RECORDS for value in record.values() if isinstance(value, str)
]


def audited(here: Interface, operation: ApiOperation, example: Example) -> None:
    """Every operation of the table leaves its line, whether its handler knows of that or not; and
    none holds a value.
    """
    lines = [line for line in here.audit.lines if line.get("operation") == operation.name]
    assert (lines == []) is operation.quiet
    if not operation.quiet:
        refused = [line["status"] for line in lines if line["event"] == "refused"]
        assert (refused if example.status >= 400 else [lines[-1]["status"]]) == [example.status]
    told = b"\n".join(here.audit.raw)
    assert [
        secret
        for secret in SECRETS
        if b'"%b"' % secret in told or (len(secret) > 4 and secret in told)
    ] == []


Scene = tuple[Interface, dict[str, str]]


class Scenes:
    """Furnished vaults: one of each engine for the examples that read alike, and one for each of the
    others.
    """

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._made: dict[object, Scene] = {}

    @asynccontextmanager
    async def of(
        self, engine: str, operation: ApiOperation, example: Example
    ) -> AsyncIterator[Scene]:
        """The one for this example; no line of another example is in its audit log."""
        if changes(operation, example) or names_client(example):
            with TemporaryDirectory() as folder:
                async with interface(Path(folder), engine) as here:
                    yield here, await furnished(here, operation, example)
            return
        kind = engine, operation.schema is None, has_file(operation)
        if kind not in self._made:
            folder = self._stack.enter_context(TemporaryDirectory())
            here = await self._stack.enter_async_context(interface(Path(folder), engine))
            self._made[kind] = here, await furnished(here, operation, example)
        here, texts = self._made[kind]
        here.audit.lines.clear()
        here.audit.raw.clear()
        yield here, texts


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scenes() -> AsyncIterator[Scenes]:
    async with AsyncExitStack() as stack:
        yield Scenes(stack)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("operation", EXEMPLIFIED, ids=lambda operation: operation.name)
async def test_every_example_answers_as_documented(
    operation: ApiOperation, engine: str, scenes: Scenes
) -> None:
    failed: list[BaseException] = []
    examples = DESCRIBED[operation.name].examples
    for number, example in enumerate(examples, 1):
        with collected(failed, number, {"example": example}):
            await answers(operation, example, engine, scenes)
    told(failed, len(examples))


async def answers(operation: ApiOperation, example: Example, engine: str, scenes: Scenes) -> None:
    """It answers as its example says, and as the schema of that says."""
    described = DESCRIBED[operation.name]
    async with scenes.of(engine, operation, example) as (here, texts):
        path = operation.path
        for name, value in example.path.items():
            path = path.replace(f"{{{name}}}", quote(filled(value, texts), safe=""))
        asked = request(described, example, texts)
        by = "" if "Authorization" in asked["headers"] else "chief"
        answer = await here.client(operation.method, path, by, params=dict(example.query), **asked)
        audited(here, operation, example)
    assert answer.status == example.status, answer.body
    if (wanted := expected_answer(example)) is not None:
        assert alike(answer.json) == alike(wanted)
    entry = resolved(DOCUMENT, DOCUMENT["paths"][operation.path][operation.method.lower()])
    shown = entry["responses"][str(example.status)]
    for kind, content in shown.get("content", {}).items():
        assert answer.headers["Content-Type"].partition(";")[0] == kind
        if "json" in kind:
            schema = {**content["schema"], "components": DOCUMENT["components"]}
            Draft202012Validator(schema).validate(answer.json)
