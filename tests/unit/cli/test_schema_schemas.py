"""``domicile schema`` on an instance that runs."""

import asyncio
from typing import Any

from proxy.cli.remote import Remote
from proxy.cli.schema import RemoteSchemas
from proxy.model.schema_document import read_definition
from tests.support.auth import HERE
from tests.support.world import world

VISIT = read_definition(
    "visit", {"fields": {"id": {"type": "primary_key"}, "room": {"type": "string"}}}
)


def run(work: Any) -> Any:
    return asyncio.run(work)


async def test_schemas_of_an_instance_are_tried_declared_listed_and_shown(tmp_path):
    async with world(tmp_path, tokens=True) as here:
        made = await here.office.client(admin=True)
        instance = Remote(here.client.address, made.client.id, made.secret)
        instance._token = here.office.service.tokens.issue(made.client, (HERE,))
        where = RemoteSchemas(instance)
        tried = await asyncio.to_thread(run, where.apply(VISIT, dry_run=True))
        assert tried == {"created": True, "migrates": False, "changes": []}
        assert [item["name"] for item in await asyncio.to_thread(run, where.listed())] == [
            "records"
        ]
        applied = await asyncio.to_thread(run, where.apply(VISIT, dry_run=False))
        assert (applied["name"], applied["created"], applied["records"]) == ("visit", True, 0)
        again = await asyncio.to_thread(run, where.apply(VISIT, dry_run=False))
        assert (again["created"], again["changes"]) == (False, [])
        assert list((await asyncio.to_thread(run, where.one("visit")))["fields"]) == ["id", "room"]
        instance.close()
