"""Two instances on one database whose rules and schemas change while both serve: first one has the
new ones, then both, and kill -9 in between leaves nothing half.
"""

import asyncio
import random
from typing import Any

import pytest

from tests.e2e.test_kill import WORKERS
from tests.e2e.test_replicas import CHIEF, Several, api, crowd, ended_in_order, token
from tests.support.effort import rounds
from tests.support.lives import Installation
from tests.support.patience import PATIENCE

__all__ = ["crowd"]

FIELD = "      nick{n}:   {{kind: text, find: [exact]}}\n"
ENTITY = """\
  boat{n}:
    fields:
      name: {{kind: name}}
"""
OPERATION = """\
  - match: POST /boats{n}
    create: boat{n}
"""


def write_rules(at: Installation, n: int) -> None:
    """Give an installation the rules with so many more fields and entities."""
    path = at.rules / "rules.yaml"
    plain = at.folder / "plain.yaml"
    if not plain.exists():
        plain.write_text(path.read_text())
    text = plain.read_text()
    numbers = range(1, n + 1)
    fields = "".join(FIELD.format(n=one) for one in numbers)
    entities = "".join(ENTITY.format(n=one) for one in numbers)
    operations = "".join(OPERATION.format(n=one) for one in numbers)
    text = text.replace("operations:\n", f"{fields}{entities}operations:\n{operations}")
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


async def reloaded(crowd: Several, at: Installation, bearer: str) -> None:
    """Have it read its rules."""
    status, seen = await api(crowd, at, bearer, "POST", "/api/reload")
    assert (status, seen.get("stale")) == (200, None) or status == 204, (seen, at.log[-3000:])


async def person(crowd: Several, at: Installation, method: str, path: str, **sent: Any) -> Any:
    """What an instance shows of a person after that request."""
    options: dict[str, Any] = {"json": sent} if sent else {}
    async with crowd.caller.request(method, at.proxy + path, **options) as answer:
        assert answer.status in (200, 201, 422, 500, 502), await answer.text()
        return await answer.json() if answer.status in (200, 201) else None


async def made(crowd: Several, at: Installation, **sent: Any) -> Any:
    """The same of a new person, as soon as the application is in the mood."""
    while (seen := await person(crowd, at, "POST", "/people", **sent)) is None:
        pass
    return seen


async def found(crowd: Several, at: Installation, bearer: str, **sought: str) -> Any:
    """The people that an instance finds; none while they are made ready for it."""
    status, seen = await api(
        crowd, at, bearer, "POST", "/api/models/person/find", json={"filter": sought}
    )
    assert status == 200 or (status, seen["code"]) == (503, "overloaded"), seen
    return seen.get("data", [])


@pytest.mark.slow
async def test_new_fields_and_entities_come_to_one_instance_after_the_other(crowd: Several) -> None:
    first, second = crowd.both
    _, bearer = await token(crowd, first, CHIEF)
    before = await made(crowd, second, name="Quibblethwaite Zero", nick1="plain as of yore")
    write_rules(first, 1)
    await reloaded(crowd, first, bearer)

    seen = await made(crowd, first, name="Quibblethwaite One", nick1="Flumpergatan Nick")
    assert seen["nick1"] == "Flumpergatan Nick"
    path = f"/people/{seen['id']}"
    assert not crowd.application.holds("Flumpergatan Nick")
    other = await person(crowd, second, "GET", path)  # the old rules do not name it
    assert other["name"] == "Quibblethwaite One"
    assert other["nick1"] == crowd.application.records[seen["id"]]["nick1"] != seen["nick1"]
    while await person(crowd, second, "PATCH", path, name="Quibblethwaite Two") is None:
        pass
    kept = await person(crowd, first, "GET", path)
    assert (kept["name"], kept["nick1"]) == ("Quibblethwaite Two", "Flumpergatan Nick")
    async with crowd.caller.post(first.proxy + "/boats1", json={"name": "Flumpergatan Boat"}):
        assert not crowd.application.holds("Flumpergatan Boat")

    write_rules(second, 1)
    await reloaded(crowd, second, bearer)
    shown = await person(crowd, second, "GET", path)
    assert (shown["name"], shown["nick1"]) == ("Quibblethwaite Two", "Flumpergatan Nick")
    for one in crowd.both:  # what the old rules wrote in between is found again
        async with asyncio.timeout(PATIENCE):
            while not (hits := await found(crowd, one, bearer, nick1="Flumpergatan Nick")):  # noqa: ASYNC110  # another one fills
                await asyncio.sleep(0.1)
        assert len(hits) == 1
    assert await person(crowd, first, "GET", f"/people/{before['id']}") == before
    for one in crowd.both:
        assert await one.stop() == 0, one.log[-3000:].decode()
        one.proxy = ""
        assert await one.run("audit", "verify") == 0, one.output + one.log


@pytest.mark.slow
async def test_kill_9_while_new_rules_come_leaves_nothing_half(crowd: Several) -> None:
    for number in range(1, rounds(2) + 1):
        victim = random.choice(crowd.both)
        other = crowd.both[victim is crowd.both[0]]
        work = [crowd.visit(worker, WORKERS) for worker in range(WORKERS)]
        for one in random.sample(crowd.both, 2):
            write_rules(one, number)  # they look for new ones four times a second
        await victim.kill_at_work(work, crowd.counts, 300)
        victim.proxy = ""
        assert await victim.start(), victim.log.decode()
        _, bearer = await token(crowd, other, CHIEF)  # one ends after five minutes
        await reloaded(crowd, other, bearer)
        value = f"Flumpergatan Nick {number}"
        seen = await made(crowd, other, **{f"nick{number}": value})
        assert not crowd.application.holds(value)
        shown = await person(crowd, victim, "GET", f"/people/{seen['id']}")
        assert shown[f"nick{number}"] == value
        await crowd.judge()
    await crowd.judge(len(crowd.every))
    print(crowd.counts)
    await ended_in_order(crowd)
