"""Callers who create, change and delete at once, and a judge who knows what each of them must see
afterwards.

Every protected value is made from a number, and the number travels beside it in the clear (``name``
and ``name_w``). The application keeps both, so each answer tells by itself which values it has to
show: the judge needs no model of the order in which things happened, and it sees at once when a
token stands for another value, or for none.
"""

import asyncio
import datetime as dt
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

from tests.support.application import WAY, Application, Misbehaviour
from tests.support.clients import KeptCrowd, State
from tests.support.lives import Installation
from tests.support.patience import PATIENCE

Record = dict[str, Any]


def _card(number: int) -> str:
    digits = f"4929{number:011d}"
    total = sum(sum(divmod(int(char) * (2 - index % 2), 10)) for index, char in enumerate(digits))
    return f"{digits}{-total % 10}"


#: What a field holds that was written under a number.
VALUES: dict[str, Callable[[int], Any]] = {
    "name": lambda w: f"Zorbina Quibblethwaite {w}",
    "email": lambda w: f"Zorbina.{w % 50}@Wexlomere.example",
    "phone": lambda w: f"+46 70 {w:07d}",
    "born": lambda w: (dt.date(1900, 1, 1) + dt.timedelta(days=w % 30000)).isoformat(),
    "card": _card,
    "address": lambda w: {"street": f"Flumpergatan {w}", "city": "Visby"},
    "tags": lambda w: [f"yxmarker-{w}-{index}" for index in range(w % 3)],
    "pin": lambda w: f"zzpin-{w}",
    "matrix": lambda w: [[f"qophmatrix-{w}-1"], [f"qophmatrix-{w}-2", f"qophmatrix-{w}-3"]],
}
FIELDS = tuple(VALUES)
#: What of the values must never be found outside.
MARKERS = ("Quibblethwaite", "Wexlomere", "Flumpergatan", "yxmarker-", "qophmatrix-", "zzpin-")
#: Their values have one token, so that of a write in doubt only the other tells: they are written
#: together.
TOGETHER = {"name", "pin"}


def body(w: int, fields: Iterable[str] = FIELDS) -> Record:
    """What a caller sends who writes these fields under that number."""
    made: Record = {}
    wanted = dict.fromkeys(fields)
    for name in [*wanted, *(sorted(TOGETHER) if TOGETHER & wanted.keys() else ())]:
        made[name] = VALUES[name](w)
        made[f"{name}_w"] = w
    return made


def faults(
    seen: Record,
    meant: Callable[[str, int], Sequence[Any]] = lambda name, number: (VALUES[name](number),),
) -> list[str]:
    """The fields of an answer that do not show a value which their number stands for (``meant``)."""
    return [
        f"{name}_w={seen[f'{name}_w']}: {seen.get(name)!r}"
        for name in FIELDS
        if f"{name}_w" in seen and seen.get(name) not in meant(name, int(seen[f"{name}_w"]))
    ]


def moody(application: Application, *, known: float = 0) -> Any:
    """The application, slow now and then: it refuses, fails before it acted, after it acted, or
    falls silent. ``known``: the share of creates that it answers with an even id given before.
    """

    @web.middleware
    async def answer(request: web.Request, handler: Any) -> web.StreamResponse:
        if request.method == "GET":
            return await handler(request)  # type: ignore[no-any-return]  # aiohttp's handler
        await asyncio.sleep(random.choice((0, 0, 0, 0.002, 0.01)))
        mood = random.random()
        if mood < 0.08:
            return web.json_response(
                {"error": "refused", "input": await request.text()}, status=422
            )
        if mood < 0.12:
            return web.json_response({"error": "no"}, status=500)
        if request.match_info.get("id", "0") not in {"0", *map(str, application.records)}:
            return web.json_response({"error": "not found"}, status=404)
        before = range(2, application.following, 2)[-40:]
        if before and request.path == "/people" and random.random() < known:
            by = random.choice(("upsert", "duplicate", "again"))
            request[WAY] = Misbehaviour(known=random.choice(before), by=by)
        acted = await handler(request)
        if mood < 0.16:
            return web.json_response({"error": "late"}, status=500)
        if mood < 0.20 and request.transport is not None:
            request.transport.abort()
        await asyncio.sleep(random.choice((0, 0, 0, 0.002, 0.01)))
        return acted  # type: ignore[no-any-return]  # as above

    made = application.app()
    made.middlewares.append(answer)
    return made


@dataclass
class Crowd:
    """Callers before one installation, behind which stands one application."""

    application: Application
    caller: aiohttp.ClientSession
    installation: Installation
    number: int = 0
    every: set[int] = field(default_factory=set)  #: ids that the application ever gave
    #: of these, what its own answer or a quiet moment told callers of
    known: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)  #: ids whose deletion was acknowledged
    last: dict[int, dict[str, int]] = field(
        default_factory=dict
    )  #: numbers acknowledged to the one who owns the record
    #: numbers sent since, without an answer
    open: dict[int, dict[str, set[int]]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    #: by record, counted when one begins and when it ends
    writes: Counter[int] = field(default_factory=Counter)
    busy: Counter[int] = field(default_factory=Counter)  #: by record, those under way
    fields: tuple[str, ...] = FIELDS  #: which the rules name
    whole: bool = False  #: whether bodies are alike: whole records
    #: what was asked and answered, in the order of the answers
    story: list[str] = field(default_factory=list)

    def meant(self, name: str, number: int) -> Sequence[Any]:
        """What a field may show that the application holds under that number."""
        return (VALUES[name](number),)

    def faults(self, seen: Record) -> list[str]:
        """As the function."""
        return faults(seen, self.meant)

    def next(self) -> int:
        """A number that nobody has used."""
        self.number += 1
        return self.number

    async def ask(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        """One request: the status and the decoded answer; status 0 when no answer came."""
        options.setdefault("allow_redirects", False)
        status, data = await self._ask(method, path, **options)
        sent = options.get("json")
        numbers = (
            {name: w for name, w in sent.items() if name.endswith("_w")}
            if isinstance(sent, dict)
            else ""
        )
        made = (
            f" id {data['id']}"
            if method == "POST" and isinstance(data, dict) and "id" in data
            else ""
        )
        self.story.append(f"{method} {path} {numbers}: {status}{made}")
        return status, data

    def told(self, ident: int) -> str:
        """The story of one record."""
        lines = [
            line
            for line in self.story
            if f"/people/{ident} " in line or line.endswith(f" id {ident}")
        ]
        return (
            f"record {ident}:\n  "
            + "\n  ".join(lines)
            + f"\n  {self.application.records.get(ident)}"
        )

    async def _ask(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        try:
            async with self.caller.request(
                method, self.installation.proxy + path, **options
            ) as answer:
                data = await answer.json(content_type=None) if await answer.read() else None
                assert (
                    answer.status in (0, 502) or answer.content_type != "application/problem+json"
                ), data
                self.counts[f"{method} {answer.status}"] += 1
                return answer.status, data
        except (aiohttp.ClientError, OSError):
            self.counts[f"{method} killed"] += 1
            return 0, None

    async def visit(self, worker: int, workers: int) -> None:
        """One caller: whatever comes to mind, until nobody answers any more.

        Records of odd ids have one writer only.
        """
        while True:
            mine = [
                ident
                for ident in self.application.records
                if ident in self.known and (ident % 2 == 0 or ident // 2 % workers == worker)
            ]
            ident = random.choice(mine) if mine else 0
            act = random.choices(self._acts, self._weights)[0] if ident else Crowd.create
            if len(self.application.records) > 150:
                act = Crowd.delete
            if self.whole and act not in self.acts_whole:
                act = Crowd.replace if ident else Crowd.create
            if await act(self, ident) == 0:
                return

    async def create(self, _: int) -> int:
        """A new record, as JSON."""
        return await self._create("/people", self._body())

    async def _create(self, path: str, sent: Any) -> int:
        """Of a record that was there, others may write to it meanwhile, and of one that others have
        deleted since, tokens are shown.
        """
        first, held = self.application.following, self.application.records
        status, seen = await self.ask("POST", path, json=sent)
        seen = [] if status != 201 else seen if isinstance(seen, list) else [seen]
        new = [one for one in seen if one["id"] >= first and one["id"] in held]
        self._know(status, (201, 422, 500, 502, 503), new)
        return status

    async def create_many(self, _: int) -> int:
        """Three at once."""
        return await self._create("/people/bulk", [self._body() for _ in range(3)])

    async def create_form(self, ident: int) -> int:
        """A new record by a form, where that has a field of the rules."""
        named = [name for name in ("name", "email", "phone") if name in self.fields]
        if not named:
            return await self.create(ident)
        sent = body(self.next(), named)
        status, _answer = await self.ask("POST", "/people/form", data=sent)
        self._know(status, (302, 422, 500, 502), [])
        return status

    async def replace(self, ident: int) -> int:
        """Every field, or what is left of them."""
        several = random.sample(FIELDS, random.choice((3, 6, 8)))
        sent = self._body() if self.whole else body(self.next(), several)
        return await self._write("PUT", ident, sent, True)

    def _body(self) -> Record:
        return body(self.next(), self.fields)

    async def change(self, ident: int) -> int:
        """Some fields, one of them perhaps as it is."""
        names = random.sample(FIELDS, random.randint(1, 4))
        sent = body(self.next(), names)
        record = self.application.records.get(ident, {})
        # its only writer knows what it holds
        if f"{names[0]}_w" in record and ident % 2 and ident in self.last:
            sent.update(body(int(record[f"{names[0]}_w"]), names[:1]))
        return await self._write("PATCH", ident, sent, False)

    async def _write(self, method: str, ident: int, sent: Record, whole: bool) -> int:
        numbers = {name: sent[f"{name}_w"] for name in FIELDS if f"{name}_w" in sent}
        for name in FIELDS if whole else numbers:
            self.open.setdefault(ident, {}).setdefault(name, set()).add(numbers.get(name, 0))
        status, seen = await self._changing(ident, method, json=sent)
        self._know(status, (200, 404, 422, 500, 502), [seen] if status == 200 else [])
        if status == 200:
            before = {} if whole else self.last.get(ident, {})
            self.last[ident] = {**before, **numbers}
            for name in FIELDS if whole else numbers:
                self.open[ident].pop(name, None)
        return status

    async def _changing(self, ident: int, method: str, **options: Any) -> tuple[int, Any]:
        self.writes[ident] += 1
        self.busy[ident] += 1
        try:
            return await self.ask(method, f"/people/{ident}", **options)
        finally:
            self.writes[ident] += 1
            self.busy[ident] -= 1

    async def delete(self, ident: int) -> int:
        """Delete it."""
        status, _ = await self._changing(ident, "DELETE")
        self._know(status, (204, 404, 422, 500, 502), [])
        if status == 204:
            self.gone.add(ident)
        return status

    async def look(self, ident: int) -> int:
        """Read one."""
        before = self.writes - self.busy
        status, seen = await self.ask("GET", f"/people/{ident}")
        self._know(status, (200, 404), self._quiet([seen], before) if status == 200 else [])
        return status

    async def browse(self, _: int) -> int:
        """Read all."""
        before = self.writes - self.busy
        status, seen = await self.ask("GET", "/people")
        self._know(
            status, (200,), self._quiet(seen["items"], before) if status == 200 else [], shown=False
        )
        return status

    def _quiet(self, seen: Iterable[Record], before: Counter[int]) -> list[Record]:
        """The records that nobody wrote to while they were read."""
        return [item for item in seen if before[item["id"]] == self.writes[item["id"]]]

    _acts: tuple[Callable[..., Any], ...] = (
        create,
        create_many,
        create_form,
        replace,
        change,
        delete,
        look,
        browse,
    )
    _weights: tuple[int, ...] = (20, 3, 5, 15, 30, 12, 12, 3)
    acts_whole: tuple[Callable[..., Any], ...] = (create, look, delete)

    def _know(
        self, status: int, expected: tuple[int, ...], seen: Iterable[Record], *, shown: bool = True
    ) -> None:
        assert status in (0, *expected), f"{status} is no answer of this application"
        for record in seen:
            assert not self.faults(record), (
                f"{self.faults(record)}\n{record}\n{self.told(record['id'])}"
            )
            if shown:
                self.known.add(record["id"])
        self.every.update(self.application.records)

    async def judge(self, sample: int = 20) -> None:
        """Everything that the application holds reads as it was written; what was acknowledged is
        what it holds.
        """
        status, listed = await self.ask("GET", "/people")
        assert status == 200
        assert {item["id"] for item in listed["items"]} == set(self.application.records)
        self.known.update(self.application.records)
        self.every.update(self.application.records)  # some were made after the callers had gone
        for record in listed["items"]:
            assert not self.faults(record), (
                f"{self.faults(record)}\n{self.told(record['id'])}\n{self._log()}"
            )
        for ident in random.sample(sorted(self.every), min(sample, len(self.every))):
            status, seen = await self.ask("GET", f"/people/{ident}")
            assert status == (200 if ident in self.application.records else 404)
            assert status == 404 or not self.faults(seen), (
                f"{self.faults(seen)}\n{self.told(ident)}"
            )
        self._compare()

    def _log(self) -> str:
        """The end of the log of this life, where it is one of a process."""
        one: Installation | None = self.installation
        return "" if one is None else f"life {one.lives}:\n{one.log[-3000:].decode()}"

    def _compare(self) -> None:
        """What was acknowledged stands in the application, unless something sent later does."""
        assert not [ident for ident in self.gone & set(self.application.records) if ident % 2]
        for ident, record in self.application.records.items():
            for name, number in self.last.get(ident, {}).items() if ident % 2 else ():
                held = int(record.get(f"{name}_w", 0))
                assert held in {number} | self.open.get(ident, {}).get(name, set()), (
                    f"{ident} lost {name}_w={number}"
                )


# The same callers beside clients of the interface: an application whose people the proxy keeps among
# records. The application tells what the record of each person has to be; every call of a client
# checks that the rows that lead to a value hold it.

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


def record_of(person: Record) -> dict[str, Any]:
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
