"""Random operations on an application behind the proxy and on the same application without one,
compared answer by answer.

Both get the same requests, fail in the same ways and at the same moments, and move their own lists
alike; the one behind the proxy sees tokens only. Whatever a caller is shown must be the same. One
difference is allowed, because nothing can tell it: a field whose old and new value have one token,
changed by a request of which nobody knows the end, may show either until it is written again.

By hand: ``python -m tests.support.modelcheck SEED OPERATIONS``.
"""

import asyncio
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any
from urllib.parse import parse_qsl, urlencode

from proxy.model.schema import RECORDS_SCHEMA
from proxy.telemetry import logs
from tests.support.exchanges import FORM, JSON, Call, Desk, desk

Record = dict[str, Any]

FIELDS = (
    "code: {kind: text}", "name: {kind: name}",
    "email: {kind: email, token: {shape: email, same: true}, keep_as: key3}",
    "phone: {kind: phone, token: {shape: numeric, same: true}, keep_as: key4}",
    "note: {kind: text, token: {shape: opaque, same: true}}",
    "born: {kind: date, token: {shape: fixed, value: '1900-01-01'}}",
    "pin: {kind: text, token: {shape: fixed, value: hidden}, keep_as: key5}",
    "hint: {kind: text, token: {shape: mask, first: 1}}", "mark: {kind: number, token: zero}",
    "rank: {kind: number, token: one}", "day: {kind: date, token: {shape: date}}",
    'days: {kind: date, token: {shape: date}, at: "$.days[*]"}',
    'tags: {kind: text, at: "$.tags[*]"}',
    'mails: {kind: email, token: {shape: email, same: true}, at: "$.mails[*]"}',
    'serial: {kind: text, at: "$.parts[*].serial"}', "street: {kind: text, at: $.address.street}",
)  # fmt: skip
#: Members whose values may have one token; those of which each value has a token that no other has.
ALIKE = ("email", "phone", "note", "born", "pin", "hint", "mark", "rank", "mails")
TELLING = ("name", "day", "days", "tags", "parts", "address")
MEMBERS = ALIKE + TELLING
IN_FORM = ("name", "email", "born", "pin", "hint")

#: Where the fields stand among records.
_KEPT = {"key3": "email", "key4": "phone", "key5": "pin"}

OPERATIONS = (
    "{match: POST /p, create: p}",
    '{match: POST /many, create: p, request: {each: "$[*]"}, response: {each: "$[*]", id: $.id}}',
    '{match: GET /p, read: p, query: {email: {field: email}}, response: {each: "$[*]", id: $.id}}',
    '{match: "GET /p/{id}", read: p}',
    '{match: "PUT /p/{id}", update: p, request: {absent: erase}}',
    '{match: "PATCH /p/{id}", update: p}',
    (
        '{match: PATCH /p, update: p, id: "$.ids[*]", request: {object: $.data}, response: {each: '
        '"$[*]", id: $.id}}'
    ),
    "{match: 'POST /p/{id}', update: p, id: path id, request: {form: {FORM}}, response: {success: [303]}}".replace(
        "FORM", ", ".join(f"{name}: {name}" for name in IN_FORM)
    ),
    '{match: "DELETE /p/{id}", delete: p}',
)


@dataclass
class Request:
    """What a caller sends."""

    method: str
    target: str
    body: Any = None
    form: bool = False

    @property
    def ids(self) -> list[int]:
        """The records that it is about, as far as it says."""
        if self.target.startswith("/p/"):
            return [int(self.target.split("/")[2])]
        return list(self.body["ids"]) if isinstance(self.body, dict) and "ids" in self.body else []

    @property
    def written(self) -> list[Record]:
        """The objects that it writes."""
        body = self.body
        if not isinstance(body, dict):
            return list(body or ())
        return [body["data"] if "ids" in body else body]


@dataclass
class Application:
    """Records by id, kept as they are sent."""

    same: Callable[[str], str]  #: how it compares what a search asks for
    records: dict[int, Record] = field(default_factory=dict)
    following: int = 1

    def act(self, request: Request) -> tuple[int, Any]:
        """Do what is asked: the status and the answer."""
        method, target, ids = request.method, request.target, request.ids
        if any(ident not in self.records for ident in ids):
            return 404, {"error": "not found"}
        if method == "POST" and not ids:
            made = [self._make(one) for one in request.written]
            return 201, made if target == "/many" else made[0]
        if method == "GET":
            return 200, self.records[ids[0]] if ids else self._found(target.partition("=")[2])
        if method == "DELETE":
            del self.records[ids[0]]
            return 204, b""
        for ident in ids:
            kept = {"id": ident} if method == "PUT" else self.records[ident]
            self.records[ident] = json.loads(json.dumps({**kept, **request.written[0]}))
        if request.form:
            return 303, b""
        return 200, [self.records[ident] for ident in ids] if target == "/p" else self.records[
            ids[0]
        ]

    def _make(self, content: Record) -> Record:
        ident, self.following = self.following, self.following + 1
        self.records[ident] = {**json.loads(json.dumps(content)), "id": ident}
        return self.records[ident]

    def _found(self, query: str) -> list[Record]:
        wanted = dict(parse_qsl(f"email={query}"))["email"] if query else None
        return [
            one
            for one in reversed(self.records.values())
            if wanted is None or (one.get("email") and self.same(one["email"]) == self.same(wanted))
        ]

    def move(self, ident: int, member: str) -> None:
        """It has an order of its own for a list."""
        several = self.records[ident].get(member)
        if isinstance(several, list):
            self.records[ident][member] = several[1:] + several[:1]


class Values:
    """What callers write: fresh values, respellings of the present ones, constants, nulls, moved
    elements.
    """

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._number = 0

    def next(self) -> int:
        """A number that nobody has used."""
        self._number += 1
        return self._number

    def fresh(self, member: str) -> Any:
        """A value that may be written for the first time; of ``TELLING`` members it is, unless it
        is empty.
        """
        chance, number = self._chance, self.next()
        many = range(chance.choice((0, 1, 2, 3)))
        day = f"20{number // 336 % 90 + 10:02d}-{number // 28 % 12 + 1:02d}-{number % 28 + 1:02d}"
        values: dict[str, Callable[[], Any]] = {
            "name": lambda: f"Name {number}",
            "email": lambda: self._spelled(f"mail{number % 40}@x.example"),
            "phone": lambda: chance.choice(("0{}", "+46{}", "0046 {}")).format(
                f"70{number % 40:07d}"
            ),
            "note": lambda: chance.choice(("{}", " {}", "{} ", "{}\t")).format(
                f"note {number % 20}"
            ),
            "born": lambda: f"{chance.randrange(1950, 2000)}-01-{number % 28 + 1:02d}",
            "pin": lambda: f"{number % 10_000:04d}",
            "hint": lambda: chance.choice("ab") + f"x{number % 90 + 10}",
            "mark": lambda: chance.choice((number % 90 + 2, -3, 2.5, "7", "not yet")),
            "rank": lambda: chance.choice((number % 90 + 2, 1.5e3, "first")),
            "day": lambda: day,
            "days": lambda: [f"{chance.randrange(2000, 2030)}-02-{at + 1:02d}" for at in many],
            "tags": lambda: [
                chance.choice((f"tag {number} {at}", f"tag {number} {at}", None, "")) for at in many
            ],
            "mails": lambda: [self._spelled(f"mail{chance.randrange(3)}@x.example") for _ in many],
            "parts": lambda: [{"no": at, "serial": f"serial {number} {at}"} for at in many],
            "address": lambda: {"street": f"Street {number}", "city": "Visby"},
        }
        return values[member]()

    def _spelled(self, mail: str) -> str:
        return self._chance.choice((mail, mail.upper(), mail.title(), f" {mail}"))

    def change(self, member: str, present: Any) -> Any:
        """What an update says of a member."""
        pick = self._chance.random()
        if pick < 0.12:
            return self._chance.choice((None, [] if isinstance(present, list) else ""))
        if pick < 0.25 and present is not None:
            return present
        if isinstance(present, list) and pick < 0.55:
            moved = list(present)
            self._chance.shuffle(moved)
            return moved[self._chance.randrange(2) :]
        return self.fresh(member)

    def record(self) -> Record:
        """A new record: it has a name that tells it, whatever else."""
        members = self._chance.sample(MEMBERS, self._chance.randrange(3, len(MEMBERS)))
        return {
            "code": f"code {self.next()}",
            "name": self.fresh("name"),
            "vip": self.next(),
            **{name: self.fresh(name) for name in members},
        }


#: What the application does with a request: how often, whether it acts, and the status that it
#: answers with (0: none).
MOODS = (
    (84, True, 200), (4, False, 422), (3, False, 500), (4, True, 500), (2, False, 0), (3, True, 0),
)  # fmt: skip


@dataclass
class Model:
    """Both applications, the proxy before one of them, and what a caller must be shown."""

    seed: int
    hosted: bool = False
    chance: Random = field(init=False)
    values: Values = field(init=False)
    desk: Desk = field(init=False)
    plain: Application = field(
        default_factory=lambda: Application(lambda mail: mail.strip().casefold())
    )
    behind: Application = field(default_factory=lambda: Application(lambda token: token))
    #: what a member of ``ALIKE`` may show besides
    open: dict[tuple[int, str], list[Any]] = field(default_factory=dict)
    #: the same, where the next read tells
    waiting: dict[tuple[int, str], list[Any]] = field(default_factory=dict)
    #: what requests in doubt may have erased
    erased: dict[tuple[int, str], list[Any]] = field(default_factory=dict)
    #: records whose creation was in doubt, and that nobody was shown since
    unseen: set[int] = field(default_factory=set)
    doubted: set[int] = field(default_factory=set)  #: records of which something was in doubt
    counts: Counter[str] = field(default_factory=Counter)
    story: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = Random(self.seed)  # for tests
        self.values = Values(self.chance)

    async def run(self, operations: int) -> None:
        """So many operations, and at last everything that both hold."""
        self.desk = await self.make(None)
        for number in range(operations):
            self.desk.clock.advance(self.chance.choice((1, 1, 5, 60_000)))
            await self._operate(number)
        await self.compare_all()

    async def make(self, before: Desk | None) -> Desk:
        return await desk(*OPERATIONS, fields=self._fields(), hosted=self.hosted, before=before)

    def turn(self) -> None:
        """Whoever serves the next request."""

    def _fields(self) -> tuple[str, ...]:
        return (
            FIELDS if self.hosted else tuple(re.sub(r", keep_as: \w+", "", one) for one in FIELDS)
        )

    async def _operate(self, number: int) -> None:
        pick = self.chance.random()
        if pick < 0.02 and self.plain.records:
            self._move()
        elif pick < 0.025:
            self.desk = await self.make(self.desk)
            self.counts["restart"] += 1
        elif pick < 0.028 or number % 400 == 399:
            await self.compare_all()
            self.desk.clock.advance(8 * 86_400_000)
            await self.desk.vault.maintain()
            self.counts["upkeep"] += 1
        else:
            await self.exchange(self._request())

    def _move(self) -> None:
        ident = self.chance.choice(list(self.plain.records))
        member = self.chance.choice(("tags", "days", "parts"))
        self.plain.move(ident, member)
        self.behind.move(ident, member)
        self.story.append(f"the application moves {member} of {ident}")

    # ------------------------------------------------------------------ what callers ask

    def _request(self) -> Request:
        known = list(self.plain.records)
        make = not known or len(known) < 3 or (len(known) < 40 and self.chance.random() < 0.1)
        if make:
            if self.chance.random() < 0.3:
                return Request("POST", "/many", [self.values.record() for _ in range(3)])
            return Request("POST", "/p", self.values.record())
        ident = self.chance.choice(known)
        kinds: list[tuple[int, Callable[[int], Request]]] = [
            (40, self._patch), (8, self._put), (6, self._patch_many), (8, self._form), (20, self._get), (6, self._list),
            (4, self._search), (4 if len(known) < 30 else 12, self._delete), (2, self._unknown),
        ]  # fmt: skip
        return self.chance.choices([kind for _, kind in kinds], [weight for weight, _ in kinds])[0](
            ident
        )

    def _changes(self, ident: int, members: tuple[str, ...] = MEMBERS) -> Record:
        present = self.plain.records[ident]
        chosen = self.chance.sample(members, self.chance.choice((1, 1, 2, 4)))
        if ident in self.unseen:
            # The vault does not know it yet. Where all tokens were small, it would not be found
            # again; and what is erased stands in the record of the creation that waits for an
            # answer.
            names = {"name", *chosen} - {"days", "tags", "mails", "parts"}
            return {name: self.values.fresh(name) for name in sorted(names)}
        return {name: self.values.change(name, present.get(name)) for name in chosen}

    def _patch(self, ident: int) -> Request:
        return Request("PATCH", f"/p/{ident}", {**self._changes(ident), "vip": self.values.next()})

    def _put(self, ident: int) -> Request:
        if ident in self.unseen:
            return self._get(ident)
        return Request(
            "PUT",
            f"/p/{ident}",
            {**self.values.record(), **self._changes(ident), **self._code(ident)},
        )

    def _code(self, ident: int) -> Record:
        """What never changes: a record whose creation was in doubt is found by it."""
        code = self.plain.records[ident].get("code")
        return {"code": code} if code else {}

    def _patch_many(self, ident: int) -> Request:
        known = [ident, *self.chance.sample(list(self.plain.records), 2)]
        ids = [
            one for one in dict.fromkeys(known) if one not in self.unseen
        ]  # else small tokens of theirs lead nowhere
        if not ids:
            return self._get(ident)
        return Request("PATCH", "/p", {"ids": ids, "data": self._changes(ids[0])})

    def _form(self, ident: int) -> Request:
        sent = {name: value or "" for name, value in self._changes(ident, IN_FORM).items()}
        return Request("POST", f"/p/{ident}", sent, form=True)

    def _get(self, ident: int) -> Request:
        return Request("GET", f"/p/{ident}")

    def _list(self, _: int) -> Request:
        return Request("GET", "/p")

    def _search(self, _: int) -> Request:
        return Request("GET", f"/p?{urlencode({'email': self.values.fresh('email')})}")

    def _delete(self, ident: int) -> Request:
        return Request("DELETE", f"/p/{ident}")

    def _unknown(self, _: int) -> Request:
        return Request(
            "PATCH", f"/p/{self.plain.following + 1000}", {"name": self.values.fresh("name")}
        )

    # ------------------------------------------------------------------ one exchange

    async def exchange(self, request: Request) -> None:
        """Send it both ways, and compare what the caller sees."""
        _, acts, status = self.chance.choices(MOODS, [weight for weight, _, _ in MOODS])[0]
        if request.method == "GET":
            acts, status = True, 200
        self.story.append(f"{request} acts={acts} status={status}")
        before = json.loads(json.dumps(self.plain.records))
        call = await self._send(request)
        expected, answer = self._act(request, call, acts=acts)
        expected_status, wanted = expected
        if status == 200 or expected_status == 404:
            if request.method != "GET" and self.chance.random() < 0.1:
                self._doubt(request, before)
                await self.compare_all()
            self._acknowledged(request, expected_status)
            seen = await self._answered(call, *answer)
            self.compare(request, wanted, seen)
        elif status in (422, 500):
            if status == 500:
                self._doubt(request, before)
            await self._answered(call, status, {"error": "no"})
        else:
            self._doubt(request, before)
            await self._silence(call)
        self.counts[f"{request.method} {status}"] += 1

    async def _send(self, request: Request) -> Call:
        self.turn()
        if request.form:
            return await self.desk.send(
                f"{request.method} {request.target}", urlencode(request.body).encode(), FORM
            )
        body = b"" if request.body is None else request.body
        return await self.desk.send(
            f"{request.method} {request.target}", body, JSON if body else ()
        )

    def _act(
        self, request: Request, call: Call, *, acts: bool
    ) -> tuple[tuple[int, Any], tuple[int, Any]]:
        """Both applications act, or neither; what they answer."""
        if not acts:
            return (0, None), (0, None)
        body: Any = None
        if call.sent.body:
            body = call.form if request.form else call.json
        sent = Request(request.method, call.sent.target.decode(), body, request.form)
        plain, behind = self.plain.act(request), self.behind.act(sent)
        assert plain[0] == behind[0]
        return json.loads(json.dumps(plain, default=str)), behind

    async def _answered(self, call: Call, status: int, body: Any) -> Any:
        headers = ((b"Location", b"/p"),) if status == 303 else None
        answer = await call.answer(status, body, headers)
        return json.loads(answer.body) if answer.body else None

    async def _silence(self, call: Call) -> None:
        if self.chance.random() < 0.5:
            await call.exchange.failed(True)
        else:  # the process is killed
            self.desk = await self.make(self.desk)
            self.counts["killed"] += 1

    # ------------------------------------------------------------------ what may be shown

    def _doubt(self, request: Request, before: dict[str, Record]) -> None:
        """Nobody knows yet: where no other field tells it, members with one token may show what
        they were, or what was sent.
        """
        ids = request.ids
        made = self.plain.records.keys() - set(map(int, before))
        self.unseen |= made
        self.doubted.update(ids or made)
        self._overwrite(ids)
        for ident in ids if request.written else ():
            (sent,) = request.written
            if str(ident) not in before:
                continue
            held = before[str(ident)]
            decided = any(
                sent.get(name) not in (None, "", held.get(name))
                for name in ("name", "day", "address")
            )
            for name in ALIKE:
                if name not in sent and request.method != "PUT":
                    continue
                if sent.get(name) in (None, "", []):  # no answer shows that a value has gone
                    self.erased.setdefault((ident, name), []).append(held.get(name))
                known = (self.waiting if decided else self.open).setdefault((ident, name), [])
                known.extend((held.get(name), sent.get(name), *self.erased.get((ident, name), ())))

    def _overwrite(self, ids: list[int]) -> None:
        """What would have told of an earlier request in doubt may go before anybody has seen it."""
        for ident, name in [place for place in self.waiting if place[0] in ids]:
            self.open.setdefault((ident, name), []).extend(self.waiting.pop((ident, name)))

    def _acknowledged(self, request: Request, status: int) -> None:
        if request.method != "GET" and status < 400:
            self._overwrite(request.ids)
        for ident in request.ids if status < 400 else ():
            for name in ALIKE:
                if any(name in one for one in request.written) or request.method == "PUT":
                    self.open.pop((ident, name), None)
                    self.erased.pop((ident, name), None)

    def compare(self, request: Request, wanted: Any, seen: Any) -> None:
        """Whether a caller is shown what it would be shown without the proxy."""
        if isinstance(wanted, list) and isinstance(seen, list):
            assert len(wanted) == len(seen), self.told(request, wanted, seen)
        pairs = (
            zip(wanted, seen, strict=True)
            if isinstance(wanted, list) and isinstance(seen, list)
            else [(wanted, seen)]
        )
        for one, other in pairs:
            if isinstance(one, dict) and request.method == "GET":
                self.unseen.discard(one.get("id", 0))
                for place in [place for place in self.waiting if place[0] == one.get("id")]:
                    del self.waiting[place]
            if one == other or (one in ("", None, "b''") and other is None):
                continue
            assert isinstance(one, dict), self.told(request, one, other)
            assert isinstance(other, dict), self.told(request, one, other)
            assert one.keys() == other.keys(), self.told(request, one, other)
            for name in one:
                allowed = self.open.get((one.get("id", 0), name), [])
                fine = (
                    one[name] == other[name]
                    or other[name] in allowed
                    or (name == "mails" and allowed)
                )
                assert fine, self.told(request, one, other)
            self.counts["undecided"] += 1

    def told(self, request: Any, wanted: Any, seen: Any) -> str:
        """What led to a difference."""
        ident = wanted.get("id") if isinstance(wanted, dict) else None
        lines = [line for line in self.story if f"/p/{ident}'" in line or f"{ident}" in line]
        return f"seed {self.seed}: {request}\nwanted {wanted}\nseen   {seen}\n" + "\n".join(
            lines[-30:]
        )

    async def compare_all(self) -> None:
        """Everything that the application holds, and what the vault holds of it."""
        self.desk.clock.advance(1)
        request = Request("GET", "/p")
        call = await self._send(request)
        (_, wanted), (_, stored) = self._act(request, call, acts=True)
        self.compare(request, wanted, await self._answered(call, 200, stored))
        await self._vault()
        self.counts["compared"] += len(wanted)

    async def _vault(self) -> None:
        """Of records of which nothing was ever in doubt the vault holds just what was written last,
        and nothing else.
        """
        rows = await self.desk.people.by_key(str(ident) for ident in self.plain.records)
        for ident, record in self.plain.records.items():
            if ident in self.doubted:
                continue
            row = rows[str(ident)]
            content = self.desk.people.sealer.open(row)
            held = {
                _KEPT.get(name, name): [kept.text for kept in several]
                for name, several in content.values.items()
            }
            for name in ("tags", "days", "serial"):  # which the application moves
                if name in held:
                    held[name].sort()
            assert held == _named(record), self.told("the vault", {**record, "id": ident}, held)
            if self.hosted:
                found = self.desk.records(RECORDS_SCHEMA).open(row).fields
                shown = {name: found.get(key) for key, name in _KEPT.items()}
                assert shown == {name: record.get(name) or None for name in shown}


def _named(record: Record) -> dict[str, list[str]]:
    """The texts of each field of a record, in their order; nothing for what is empty."""
    parts, address = record.get("parts") or [], record.get("address") or {}
    places: dict[str, list[Any]] = {
        **{
            name: [record.get(name)]
            for name in ("code", *MEMBERS)
            if name not in ("parts", "address")
        },
        **{name: record.get(name) or [] for name in ("days", "tags", "mails")},
        "serial": [part["serial"] for part in parts],
        "street": [address.get("street")] if isinstance(address, dict) else [],
    }
    texts = {
        name: [
            one if isinstance(one, str) else json.dumps(one)
            for one in several
            if one not in (None, "")
        ]
        for name, several in places.items()
    }
    return {
        name: sorted(several) if name in ("tags", "days", "serial") else several
        for name, several in texts.items()
        if several
    }


async def check(seed: int, operations: int, *, hosted: bool = False) -> Counter[str]:
    """Run a model; what happened, counted.

    Raises ``AssertionError`` with the story of a difference.
    """
    model = Model(seed, hosted)
    await model.run(operations)
    return model.counts


def main(seed: int, operations: int, share: int = 2_000) -> None:
    """So many operations in shares with seeds one after the other, every other one among records."""
    logs.configure(logs.Style("error"))
    begun, counts = time.monotonic(), Counter[str]()
    for number in range(0, operations, share):
        turn = number // share
        counts += asyncio.run(check(seed + turn, share, hosted=turn % 2 == 1))
        print(f"{number + share} operations, {time.monotonic() - begun:.0f} s", flush=True)
    print(f"no difference: seeds {seed} to {seed + (operations - 1) // share}, {dict(counts)}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
