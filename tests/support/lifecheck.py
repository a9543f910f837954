"""The callers of ``crowd`` before a proxy in this process, whose process is killed now and then: the
same oracle, and hundreds of lives in a second.

The application answers creates with ids that are known, while others change those records. By hand
creates are also of several records and by forms, records are deleted before their creates are
settled, and at the end the vault has to hold what the application holds and nothing else. Every call of the store takes a few turns of the event loop, by a seed, so callers meet each other in
between; a process ends between two turns, or behind one of its commits.

Keys, salts, tokens and the turns in which long work gives way come from the seed as well: the same
seed is the same run.

By hand: ``python -m tests.support.lifecheck SEED SEEDS FIELD ...``; with ``replicas`` among the
fields before two instances on one PostgreSQL, where a seed gives the requests and not the run. One
field at least has to tell records apart: others are not found again (``docs/promises.md``). With
``change`` some updates are of a part of the fields, with ``correct`` clients of the interface correct
values beside them. With ``change`` and ``born`` up to one seed in three ends in a date that stays its
token: an update replaced all that told the record of a create whose answer got lost, before any
answer showed it (``docs/promises.md``).
"""

import asyncio
import itertools
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar, cast
from unittest.mock import patch

from proxy import offload
from proxy.crypto.keyset import Keyset
from proxy.errors import Code, VaultError
from proxy.model.record import Record as ClientRecord
from proxy.model.record import RecordDraft
from proxy.storage.base import Store
from proxy.storage.changes import Change
from proxy.storage.postgres.store import PostgresStore
from proxy.storage.rows import ERASED_AT, Row
from proxy.telemetry import logs
from proxy.vault.body import TokenizedFields
from proxy.vault.proxied.correction import correct_record
from proxy.vault.records.repository import Records
from tests.support.clock import ManualClock
from tests.support.crowd import FIELDS, TOGETHER, VALUES, Crowd, Record
from tests.support.exchanges import FORM, Call, Desk, desk_of, member_form
from tests.support.memory import MemoryStore
from tests.support.people import FLAT
from tests.support.postgres import fresh_address
from tests.support.replicas import kill, link_of, open_replica
from tests.support.stores import FailingStore

P = ParamSpec("P")
T = TypeVar("T")

RULES = FLAT.format(upstream="http://127.0.0.1:3000")
WORKERS = 6
DAY = 86_400_000
#: Fields whose tokens tell each of their values from others; the rest have some in common.
TELLING = ("email", "phone", "born", "card")


@dataclass(slots=True)
class MortalStore(FailingStore):
    """The store of one process, which ends behind one of its commits, or when ``ended`` is set.

    As in every store, commits are applied in the order in which they are called.
    """

    chance: random.Random = field(default_factory=random.Random)
    commits: int = 0  #: that it makes, before the process ends; 0: as many as come
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    order: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def turns(self) -> None:
        """Let others go on, or not."""
        for _ in range(self.chance.choice((0, 0, 1, 2, 5, 20))):
            await asyncio.sleep(0)
        if self.ended.is_set():
            raise asyncio.CancelledError

    async def _pass(
        self, verb: Callable[P, Awaitable[T]], *arguments: P.args, **named: P.kwargs
    ) -> T:
        commits = verb.__name__ == "commit"
        async with self.order if commits else nullcontext():
            await self.turns()
            outcome = await verb(*arguments, **named)
        if commits:
            self.commits -= 1
            if self.commits == 0:
                self.ended.set()
        await self.turns()
        return outcome


@dataclass
class Application:
    """Records by id; it refuses, fails or falls silent now and then, as ``crowd.moody`` does."""

    chance: random.Random
    known: float  #: the share of creates that it answers with an even id given before
    story: list[str]  #: what it did
    records: dict[int, Record] = field(default_factory=dict)
    following: int = 1
    #: ids whose record an answer has shown as it is: of others nobody knows who has small tokens of
    #: theirs that outlive the rest of what they were made with (``docs/promises.md``)
    told: set[int] = field(default_factory=set)
    ends: Counter[int] = field(default_factory=Counter)  #: how often a record of an id was deleted
    #: by id the numbers of what was written: a correction counts for versions before as well
    #: (``docs/interface.md``), and which are still there only answers tell
    written: dict[int, set[int]] = field(default_factory=dict)

    def act(self, method: str, ident: int, content: Any) -> tuple[int, Any]:
        """Do what is asked: the status and the answer."""
        if method == "POST":
            bodies = content if isinstance(content, list) else [content]
            records = list(map(self._create, bodies))
            for sent, record in zip(bodies, records, strict=True):
                told = f"  it answers {sent} with /people/{record['id']} : {record}"
                self.story.append(told)
            return 201, records if isinstance(content, list) else records[0]
        if method != "GET":
            self.story.append(f"  it does {method} /people/{ident} : {content}")
        if method == "GET" and not ident:
            return 200, {"items": [dict(one) for one in self.records.values()]}
        if ident not in self.records:
            return 404, {"error": "not found"}
        if method == "DELETE":
            del self.records[ident]
            self.ends[ident] += 1
            return 204, b""
        if method in ("PUT", "PATCH"):
            self.told.discard(ident)
            self._note(ident, content)
            before = self.records[ident] if method == "PATCH" else {}
            self.records[ident] = {**before, **content, "id": ident}
        return 200, dict(self.records[ident])

    def tell(self, shown: Iterable[Record]) -> None:
        """An answer has shown these."""
        self.told.update(one["id"] for one in shown if self.records.get(one["id"]) == one)

    def _create(self, content: Record) -> Record:
        record = self._created(content)
        self._note(record["id"], content)
        return record

    def _note(self, ident: int, content: Record) -> None:
        numbers = {int(number) for name, number in content.items() if name.endswith("_w")}
        self.written.setdefault(ident, set()).update(numbers)

    def _created(self, content: Record) -> Record:
        before = range(2, self.following, 2)[-6:]
        if before and self.chance.random() < self.known:
            ident, by = self.chance.choice(before), self.chance.choice("uda")
            record, adds = self.records.get(ident, {}), by == "u" and ident in self.told
            if by != "d" or not record:
                self.told.discard(ident)
                record = {**(record if adds else {}), **content, "id": ident}
            self.records[ident] = record
            return dict(record)
        ident, self.following = self.following, self.following + 1
        self.records[ident] = {**content, "id": ident}
        return dict(self.records[ident])


@dataclass
class Lives(Crowd):
    """Many lives of a proxy before that application."""

    chance: random.Random = field(default_factory=random.Random)
    at: tuple[Any, ...] = ()
    store: MortalStore = field(default_factory=lambda: MortalStore(MemoryStore()))
    desk: Desk = field(init=False)
    behind: Any = None  #: the application
    more: bool = False  #: creates of several, by forms, and deletes before a create is settled
    #: by (field, number): what the value may be by corrections, the latest first, and the latest
    #: that was acknowledged: answers under way may still show those before
    corrected: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    certain: dict[tuple[str, int], str] = field(default_factory=dict)

    async def begin(self, *, commits: int = 0) -> None:
        """A new process on the same store."""
        inner, clock, keyset = self.at
        self.store = MortalStore(inner, chance=random.Random(0))
        self.desk = await desk_of(RULES, at=(self.store, clock, keyset))
        self.store.chance, self.store.commits = self.chance, commits

    async def live(self) -> None:
        """Callers at work until the process is killed."""
        self.story.append("a life begins /people/* ")
        await self.begin(commits=self.chance.choice((0, 1)) * self.chance.randrange(1, 80))
        enough = self.counts.total() + self.chance.randrange(2, 60)
        work = [asyncio.ensure_future(self.visit(worker, WORKERS)) for worker in range(WORKERS)]
        while self.counts.total() < enough and not self.store.ended.is_set():
            if any(one.done() for one in work):
                break
            await asyncio.sleep(0)
        self.store.ended.set()
        for one in work:
            one.cancel()
        for outcome in await asyncio.gather(*work, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(
                outcome, asyncio.CancelledError
            ):
                raise outcome

    def meant(self, name: str, number: int) -> Sequence[Any]:
        return self.corrected.get((name, number)) or super().meant(name, number)

    async def correct(self, ident: int) -> int:
        """A client of the interface gives values of the record another text."""
        number, records = self.next(), _Read(self.instance().people)
        names = [name for name in self.fields if name != "email" and self.chance.random() < 0.5]
        held: dict[tuple[str, int], str] = {}

        def closing(_: Sequence[ClientRecord]) -> Sequence[Change]:
            held.clear()
            for name, values in records.values(str(ident)).items():
                for of in range(1, number) if name in names else ():
                    if values[0].text in self.meant(name, of):
                        held[name, of] = VALUES[name](number)
            either = itertools.product(names, self.behind.written.get(ident, ()))
            for at in {*held, *either}:  # until it is told
                self.corrected[at] = [VALUES[at[0]](number), *self.meant(*at)]
            return ()

        draft = RecordDraft(str(ident), {name: VALUES[name](number) for name in names})
        try:
            done = await correct_record(records, draft, "chief", closing)
        except VaultError as problem:
            if problem.code not in (Code.CONFLICT, Code.INVALID_RECORD):  # it lacks a field
                raise
            done = None
        self.certain |= held if done else {}
        self.story.append(f"corrects /people/{ident} {names} {number}: {held if done else None}")
        self.counts["corrected" if done else "not corrected"] += 1
        return 1

    async def converge(self) -> None:
        """The vault holds what the application holds, and nothing else."""
        people = self.desk.people
        rows = await self.desk.store.scan(people.table, 0, 10_000)
        rows = [row for row in rows if row.updated_at < ERASED_AT]  # marks are no records
        names = {people.key_hash(str(ident)): ident for ident in self.every}
        left = {names.get(row.key or b"", -row.rid): row for row in rows}
        missing = self.behind.records.keys() - left.keys()
        assert not missing, "\n".join(map(self.told, missing))
        for ident in left.keys() - self.behind.records.keys():
            values = people.sealer.open(left[ident]).values
            texts = {name: [one.text for one in of] for name, of in values.items()}
            row, told = left[ident], self.told(ident) if ident > 0 else ""
            of = [w for w in range(self.number + 1) if [VALUES["phone"](w)] == texts.get("phone")]
            told = told or "\n".join(
                line for line in self.story for w in of if f"_w': {w}," in line or f"'{w}'" in line
            )
            raise AssertionError(f"{row.state.name} {row.staged} {texts}\n{told}")

    async def review(self) -> None:
        """A life in which everything is read that ever was."""
        self.every.update(range(1, self.behind.following))
        for at, text in self.certain.items():
            texts = self.corrected[at]
            self.corrected[at] = texts[: texts.index(text) + 1]
        await self.begin()
        await self.judge(len(self.every))

    def _know(
        self, status: int, expected: tuple[int, ...], seen: Iterable[Record], *, shown: bool = True
    ) -> None:
        super()._know(status, expected, [one for one in seen if "ended" not in one], shown=shown)

    def instance(self) -> Desk:
        """That to which a request goes."""
        return self.desk

    async def end(self) -> None:
        """End the process, for good."""

    async def _ask(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        clock, ends = self.desk.clock, dict[int, int]()
        shown: Sequence[Record] = ()
        clock.advance(1)
        ident = int(path.rpartition("/")[2]) if path[-1].isdigit() else 0
        sent, form = options.get("json", b""), options.get("data")
        try:
            call = await self.instance().send(
                f"{method} {path}", member_form(**form) if form else sent, FORM if form else None
            )
            status, answer = await self._act(method, ident, call)
            shown = _records(answer) if 0 < status < 300 else []
            ends = {one["id"]: self.behind.ends[one["id"]] for one in shown}
            more = self.more and method == "POST" and status == 201
            if more and self.chance.random() < 0.1:
                made = answer if isinstance(answer, list) else [answer]
                await self.delete(self.chance.choice(made)["id"])
            clock.advance(self.chance.choice((0, 1)))
            if status == 0:
                await call.exchange.failed(True)
                status = 502
            elif form and status == 201:
                where = (b"Location", f"/people/{answer['id']}".encode())
                status, answer = 302, (await call.answer(302, b"", (where,))).body
            else:
                answer = (await call.answer(status, answer)).body
            self.behind.tell(shown)
        except VaultError as problem:
            if problem.code is not Code.CONFLICT:
                raise
            status, answer = 502, b""
        self.counts[f"{method} {status}"] += 1
        data = json.loads(answer) if answer else None
        passed = {one["id"] for one in shown if self.passed(one, ends)} if ends else set()
        for one in _records(data) if ends else ():
            one |= {"ended": True} if one["id"] in passed else {}
        return status, data

    def passed(self, shown: Record, ends: Mapping[int, int]) -> bool:
        """Whether tokens are shown of what a create was answered with: a record that is gone by now;
        ``ends``: how often each had been.
        """
        return bool(self.behind.ends[shown["id"]] > ends[shown["id"]])

    async def _act(self, method: str, ident: int, call: Call) -> tuple[int, Any]:
        form = FORM[0] in call.sent.headers
        content = call.form if form else call.json if call.sent.body else {}
        try:
            await self.store.turns()
        except asyncio.CancelledError:
            if method != "GET" and self.chance.random() < 0.5:
                self.behind.act(method, ident, content)
            raise
        mood: float = self.chance.random() if method != "GET" else 1
        if mood < 0.08:
            return 422, {"error": "refused"}
        if mood < 0.12:
            return 500, {"error": "no"}
        answer: tuple[int, Any] = self.behind.act(method, ident, content)
        await self.store.turns()
        if 0.12 < mood < 0.16 and answer[0] < 300:
            return 500, {"error": "late"}
        if 0.16 < mood < 0.2 and answer[0] < 300:
            return 0, b""
        return answer


@dataclass
class TwoLives(Lives):
    """The same of two instances on one database: each request goes to either."""

    pair: tuple[PostgresStore, ...] = ()
    desks: list[Desk] = field(default_factory=list)

    async def begin(self, *, commits: int = 0) -> None:
        uri, clock, keyset = self.at
        await self.end()
        self.pair = await open_replica(uri), await open_replica(uri)
        self.desks.clear()
        ended = asyncio.Event()
        for store in self.pair:
            mortal = MortalStore(cast(Store, store), chance=random.Random(0), ended=ended)
            self.desks.append(await desk_of(RULES, at=(cast(Store, mortal), clock, keyset)))
            mortal.chance, mortal.commits, self.store = self.chance, commits, mortal
        self.desk = self.desks[0]

    def passed(self, shown: Record, ends: Mapping[int, int]) -> bool:
        """Also one that has changed at the other instance, which alone remembers it as it was."""
        return super().passed(shown, ends) or self.behind.records.get(shown["id"]) != shown

    def instance(self) -> Desk:
        return self.chance.choice(self.desks)

    async def end(self) -> None:
        if self.pair:
            one, two = self.pair
            link_of(one)._registered = False  # it leaves its rows behind
            await one.close()
            await kill(one, two)
            await two.close()
        self.pair = ()


class _Read(Records):
    """Records of which it is known what was read last."""

    rows: Mapping[str, Row] = {}

    async def by_key(self, keys: Iterable[str]) -> dict[str, Row]:
        self.rows = rows = await super().by_key(keys)
        return rows

    def values(self, key: str) -> TokenizedFields:
        """What the record had that was read last."""
        return self.collection.sealer.open(self.rows[key]).values


def _records(answer: Any) -> Sequence[Record]:
    """The records in what the application answers."""
    if isinstance(answer, dict):
        return answer.get("items", [answer])  # type: ignore[no-any-return]  # decoded JSON
    return answer if isinstance(answer, list) else []


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Have all that the program draws from the kernel, and the time by which long work gives way,
    come from this seed.
    """
    source, time = random.Random(seed), [0.0]

    def draw(length: int, _flags: int = 0) -> bytes:
        return source.randbytes(length)

    def tick() -> float:
        time[0] += source.choice((0, 0, 0, offload.SLICE / 4, 2 * offload.SLICE))
        return time[0]

    with ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            if name.startswith("proxy.") and hasattr(module, "fresh_bytes"):
                stack.enter_context(patch.object(module, "fresh_bytes", draw))
        stack.enter_context(patch.object(os, "urandom", draw))
        stack.enter_context(patch.object(offload, "perf_counter", tick))
        yield


async def check(
    seed: int,
    lives: int,
    fields: Sequence[str] = TELLING,
    *,
    more: bool = False,
    replicas: bool = False,
) -> Counter[str]:
    """So many lives; what happened, counted. ``more``: as by hand; ``replicas``: two instances.

    Raises ``AssertionError`` with the story of a difference.
    """
    assert {*fields} & {*TELLING, *TOGETHER} - {"born"}, "small tokens tell no record"
    random.seed(seed)  # what the callers draw from
    chance = random.Random(seed)
    story: list[str] = []
    application: Any = Application(chance, 0.3, story)
    caller: Any = None
    kind = TwoLives if replicas else Lives
    crowd = kind(application, caller, caller, chance=chance, story=story, behind=application)
    with seeded(seed):
        try:
            await _lived(crowd, lives, fields, more=more)
        finally:
            await crowd.end()
    return crowd.counts


async def _lived(crowd: Lives, lives: int, words: Sequence[str], *, more: bool) -> None:
    chance = crowd.chance
    fields = crowd.fields = tuple(name for name in FIELDS if name in words)
    crowd.whole = True
    crowd.more = more
    if more:
        crowd.acts_whole = (*crowd.acts_whole, Crowd.create_many, Crowd.create_form)
    if "change" in words:
        crowd.acts_whole = (*crowd.acts_whole, Crowd.change)
    if "correct" in words:
        crowd.acts_whole = (*crowd.acts_whole, Lives.correct)
        crowd._acts, crowd._weights = (*Crowd._acts, Lives.correct), (*Crowd._weights, 25)
    crowd.at = MemoryStore(), ManualClock(), Keyset.create("test")
    if isinstance(crowd, TwoLives):  # what they tell each other ends by the clock of the server
        now = ManualClock(int(time.time() * 1000))
        crowd.at = fresh_address(replicas="true"), now, crowd.at[2]
    for number in range(lives):
        await crowd.live()
        if number % 4 == 3:
            await crowd.review()
        crowd.desk.clock.advance(chance.choice((0, 1, 60_000, 400_000)))
    for shift in (0, DAY, 9 * DAY):
        crowd.desk.clock.advance(shift)
        await crowd.review()
        await crowd.desk.vault.maintain()
    await crowd.review()
    if more and "email" not in fields:  # records have those of others, and stay for them
        await crowd.converge()


def main(seed: int, lives: int, *fields: str) -> None:
    """Check that seed and those behind it, until one fails."""
    logs.configure(logs.Style("error"))
    failed, replicas = 0, "replicas" in fields
    named = fields if {*FIELDS} & {*fields} else (*TELLING, *fields)
    for one in range(seed, seed + lives):
        try:
            counts = asyncio.run(check(one, 12, named, more=True, replicas=replicas))
        except AssertionError as error:
            failed += 1
            print(f"seed {one}: {str(error)[:3000]}", flush=True)
        else:
            print(f"seed {one}: {counts.total()} answers", flush=True)
    print(f"{failed} failed")


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets give what is drawn an order
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.support.lifecheck", *sys.argv[1:]])
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
