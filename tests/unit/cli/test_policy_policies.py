"""``domicile policy`` on an instance that runs."""

import argparse
import asyncio
from typing import Any

import pytest

from proxy.cli.policy import RemotePolicies
from proxy.cli.remote import Remote
from proxy.errors import Code, VaultError
from proxy.model.policy import read_policy
from tests.support.auth import HERE
from tests.support.examples import CONTACT
from tests.support.world import World, world

DESK = read_policy(
    "desk", {"schema": "contact", "actions": ["read"], "fields": {"email": "hidden"}}
)


async def served(here: World) -> RemotePolicies:
    made = await here.office.client(admin=True)
    instance = Remote(here.client.address, made.client.id, made.secret)
    instance._token = here.office.service.tokens.issue(made.client, (HERE,))
    return RemotePolicies(instance)


def run(work: Any) -> Any:
    return asyncio.run(work)


async def test_policies_of_an_instance_are_put_listed_and_shown(tmp_path):
    async with world(tmp_path, tokens=True) as here:
        await here.declare("contact", CONTACT)
        where = await served(here)
        await where.check(DESK)
        applied = await asyncio.to_thread(run, where.apply(DESK))
        assert (applied["name"], applied["created"]) == ("desk", True)
        assert [item["name"] for item in await asyncio.to_thread(run, where.listed())] == ["desk"]
        assert (await asyncio.to_thread(run, where.one("desk")))["fields"] == {"email": "hidden"}
        with pytest.raises(VaultError) as refused:
            await asyncio.to_thread(run, where.one("none"))
        assert refused.value.code is Code.NOT_FOUND
        where._instance.close()


def test_the_command_takes_an_address():
    from proxy.cli.policy import COMMAND

    parser = argparse.ArgumentParser()
    apply = COMMAND.children["apply"].arguments
    assert apply is not None
    apply(parser)
    given = parser.parse_args(["--url", "http://127.0.0.1:8081", "a.yaml"])
    assert (given.url, given.environment) == ("http://127.0.0.1:8081", "default")
