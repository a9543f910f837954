"""The clients of ``recordcrowd`` beside the callers of ``crowd``: an application whose people the
proxy keeps among records.

The application tells what the record of each person has to be; every call of a client checks that
the rows that lead to a value hold it.
"""

import asyncio
import json
import random
from dataclasses import dataclass, field
from typing import Any

from tests.support.crowd import VALUES, Crowd
from tests.support.crowd import Record as Person
from tests.support.patience import PATIENCE
from tests.support.recordcrowd import KeptCrowd, State

_FIND = "/api/records/find"
_PREFIX = "rules:person/"
_DAY = 86_400_000
#: By field of the record schema: the person's field that is kept in it.
_KEPT = {
    "profile_key": "name", "key3": "email", "key4": "phone", "range_key2": "card", "body": "tags",
}  # fmt: skip
#: Of those, what clients ask for.
_ASKED = ("profile_key", "key3", "key4", "range_key2")
#: How ``key4`` may be kept: a change of it rewrites the records.
_SETTINGS = ("[]", "[key4]")


def kept(name: str, number: int) -> Any:
    """What a field of the record schema holds of a value that was written under a number."""
    value = VALUES[_KEPT[name]](number)
    if name == "body":
        return (
            None
            if not value
            else value[0]
            if len(value) == 1
            else json.dumps(value, separators=(",", ":"))
        )
    return int(value) if name == "range_key2" else value


def record_of(person: Person) -> dict[str, Any]:
    """What is kept of a person that the application holds.

    Of what it holds nothing, something may be kept: no answer shows that a field has gone, so that
    an erasure in doubt stays so.
    """
    numbers = {name: int(person[f"{of}_w"]) for name, of in _KEPT.items() if f"{of}_w" in person}
    return {
        name: value for name, number in numbers.items() if (value := kept(name, number)) is not None
    }


@dataclass
class HostedCrowd(KeptCrowd):
    """The clients and the callers, and the installation that both work with."""

    people: Crowd = field(kw_only=True)

    @property
    def tried(self) -> bool:
        """Whether people were made, changed, deleted and found."""
        answers = {"POST 201", "PATCH 200", "PUT 200", "DELETE 204", "POST killed"}
        return answers <= set(self.people.counts) and self.counts["looked at"] > 0

    async def arrive(self, **plan: Any) -> None:
        """Start the instance, perhaps with a key kept otherwise, and get a token from it."""
        self.installation.environment["DOMICILE__RECORDS__PLAIN"] = random.choice(_SETTINGS)
        await super().arrive(**plan)

    async def look(self) -> None:
        """Question after question for what people may have, until an answer does not come."""
        while True:
            name = random.choice(_ASKED)
            wanted = kept(
                name, random.randint(max(1, self.people.number - 60), self.people.number + 1)
            )
            status, content = await self.ask(
                "POST", _FIND, {"country": "se", "filter": {name: wanted}}
            )
            self.counts[f"look {status or 'killed'}"] += 1
            if not status:
                return
            assert status == 200, content
            for record in content["data"]:
                assert record[name] == wanted
                self.counts["looked at"] += record["record_key"].startswith(_PREFIX)

    async def judge(self) -> None:
        """Everything reads as it was written, on both ways; ``found`` compares them."""
        await self.people.judge()
        await super().judge()

    async def found(self) -> State:
        """What the vault holds of the clients, once it is seen that it holds everything of the
        application as a whole.
        """
        held = await self._held()
        own: State = {}
        for key, record in list(held.items()):
            if not key.startswith(_PREFIX):
                own.update((self.value_of(record),))
                del held[key]
        expected = {
            f"{_PREFIX}{ident}": record_of(person)
            for ident, person in self.people.application.records.items()
        }
        assert expected.keys() <= held.keys(), sorted(expected.keys() - held.keys())
        for key, fields in expected.items():
            seen = {name: held[key][name] for name in fields}
            assert seen == fields, (
                f"{seen}\n{fields}\n{self.people.told(int(key.removeprefix(_PREFIX)))}"
            )
        # Of what the application gave up, the end may be to come.
        unknown = held.keys() - {f"{_PREFIX}{ident}" for ident in self.people.every}
        assert not unknown, "\n".join(
            self.people.told(int(key.removeprefix(_PREFIX))) for key in unknown
        )
        for key in random.sample(sorted(expected), min(3, len(expected))):
            path = f"/api/records/se/{key.replace('/', '%2F')}/history"
            status, content = await self.ask("GET", path, None)
            assert status == 200, content
            newest = content["data"][0]["record"]
            assert {name: newest[name] for name in expected[key]} == expected[key]
        return own

    async def _held(self) -> dict[str, dict[str, Any]]:
        """Every record, by its key."""
        held: dict[str, dict[str, Any]] = {}
        while True:
            options = {"limit": 1000, "offset": len(held)}
            status, content = await self.ask("POST", _FIND, {"country": "se", "options": options})
            assert status == 200, content
            held |= {record["record_key"]: record for record in content["data"]}
            if not content["data"]:
                assert content["meta"]["total"] == len(held)
                return held

    async def converge(self) -> None:
        """After everything that exists was read and ``pending.keep`` has passed, both hold the same
        people.
        """
        for shift in (0, _DAY, 9 * _DAY):
            await self.installation.kill()
            await self.arrive(shift=shift, quick=True)
            await self.people.judge(len(self.people.every))
            await super().judge()
        expected = {f"{_PREFIX}{ident}" for ident in self.people.application.records}
        async with asyncio.timeout(PATIENCE):
            while {key for key in await self._held() if key.startswith(_PREFIX)} != expected:  # noqa: ASYNC110  # of another process
                await asyncio.sleep(0.05)
        await self.judge()
        assert await self.installation.stop() == 0
        assert await self.installation.run("store", "verify") == 0, self.installation.output
