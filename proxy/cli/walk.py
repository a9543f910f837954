"""The walk that ``domicile adopt`` and ``domicile release`` share: an application's own list.

The walk goes page by page, and rewrites records one by one. The application stays open: a record is
read on both sides just before the write, which is conditional on that state, and read again
afterwards. Concurrent changes, and records that a shifting list skips, are left to the next pass;
the walk ends with a pass without work. So it may be killed at any moment, and the state file only
saves time (``walk_state``).
"""

import enum
import hashlib
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from proxy.cli.command import Progress, write_file
from proxy.cli.http_client import HttpAnswer
from proxy.cli.site import (
    PAGING_HELP,
    PageTrail,
    Paging,
    Site,
    WriteRate,
    earlier_tag,
    failure_of,
    reason_of,
)
from proxy.cli.walk_state import read_tally
from proxy.errors import Code, Detail, VaultError
from proxy.redactor.tools.adoption_records import ReadRecord, RecordState, WalkPlan

#: Attempts on one record under concurrent changes; the next pass repeats it.
_ATTEMPTS: Final = 8

#: Passes after which callers evidently undo the walk.
_PASSES: Final = 10

IGNORES_CONDITIONS: Final = (
    "The application has entity tags and ignores If-Match: what somebody changes within the "
    "milliseconds of an update may be overwritten. Walk when nobody works, or with a low --rate."
)

#: Records of a first page that are all missing where the list names no ids that lead to them.
_STRANGE: Final = 3

#: Refusals that are listed.
_LISTED: Final = 20

#: Statuses of a deleted record, and of one that changed since it was read.
_GONE: Final = (404, 410)
_PRECONDITION_FAILED: Final = 412
_CHANGED: Final = (409, _PRECONDITION_FAILED)


class RecordOutcome(enum.StrEnum):
    """Outcome of the rewrite of one record."""

    CONVERTED = "converted"
    SETTLED = "settled"  #: another caller has written it since
    GONE = "gone"  #: in the list, and not at its own address
    REFUSED = "refused"
    BUSY = "busy"  #: concurrent changes at each attempt


#: Outcomes after which another pass is made.
_AGAIN: Final = {RecordOutcome.CONVERTED, RecordOutcome.BUSY, RecordOutcome.GONE}


class WalkDirection(NamedTuple):
    """Differences between the two commands."""

    name: str
    todo: frozenset[RecordState]  #: states to be rewritten
    through_proxy: bool  #: where it is written
    #: why a record, as callers see it, must not be written
    unfit: Callable[[ReadRecord], str] | None = None


@dataclass(slots=True)
class WalkOptions:
    """Options of a walk."""

    paging: Paging
    rate: float | None  #: records a second
    dry_run: bool
    state: Path
    parallel: int = 1  #: records processed concurrently
    region: str = ""  #: ISO 3166 code of the country of national telephone numbers; empty: unknown


@dataclass(slots=True)
class _Pass:
    """A pass over the whole list."""

    states: Counter[RecordState] = field(default_factory=Counter)
    outcomes: Counter[RecordOutcome] = field(default_factory=Counter)


class RecordWalk:
    """A walk over the records of one entity."""

    def __init__(
        self,
        direction: WalkDirection,
        plan: WalkPlan,
        sites: tuple[Site, Site],
        options: WalkOptions,
    ) -> None:
        """``sites``: the application itself, and the proxy before it."""
        self.direction, self.plan, self.options = direction, plan, options
        self.direct, self.proxied = sites
        parts = (direction.name, plan.endpoint.name, plan.entity.name, self.direct.url)
        identity = "\0".join([*parts, plan.target, options.paging.text])
        self.tally = read_tally(options.state, identity, fresh=options.dry_run)
        if not options.paging.counted:
            self.tally.steps = 0
        self.refused: list[Detail] = []
        self.refusals = 0
        self.last = _Pass()
        self.complete = False
        self.unseen = set(plan.fields)  #: fields that no record has shown
        self.refusable = Counter[str]()  #: values by field that a dry run saw and ``check`` refuses
        self._passed_over: set[bytes] = set()  #: records that were looked at one by one
        self.missing: set[bytes] = set()  #: records that were listed, and not at their own address
        self._write_rate = WriteRate(options.rate)
        self._lock = threading.Lock()  #: of all counts

    def run(self, bar: Progress) -> None:
        """Pass after pass, until one finds nothing to do."""
        with ThreadPoolExecutor(self.options.parallel, "walk") as workers:
            try:
                self._run(bar, workers)
            except BaseException:
                # those who wait for an answer give up, so that the walk ends
                self.direct.stop()
                self.proxied.stop()
                workers.shutdown(wait=False, cancel_futures=True)
                raise

    def _run(self, bar: Progress, workers: ThreadPoolExecutor) -> None:
        for number in range(self.tally.passes, max(_PASSES, self.tally.passes + 1)):
            self.last = _Pass()
            self._pass(bar, workers)
            if self.options.dry_run:
                return
            self.tally.passes, self.tally.steps = number + 1, 0
            self._write()
            if not _AGAIN.intersection(+self.last.outcomes):
                self.complete = not self.refusals
                break
        if self.complete:
            self.options.state.unlink(missing_ok=True)

    def _pass(self, bar: Progress, workers: ThreadPoolExecutor) -> None:
        paging = self.options.paging
        target: str | None = paging.first(self.plan.target, self.tally.steps)
        first, trail = True, PageTrail(paging, self.plan.listing.operation.label)
        while target is not None:
            trail.enter(target)
            answer = self._page(self.direct, target)
            records = self.plan.listing.records(answer.body)
            if trail.is_end([one.id for one in records], self.tally.steps):
                break
            if first and records:
                self._refuse_endless(target, answer, len(records))
            if self.tally.heeds is None and records and not self.options.dry_run:
                self.tally.heeds = self._heeds_conditions(records[0].id)
            page = self._page(self.proxied, target).body
            other = {one.id: one for one in self.plan.listing.records(page)}
            pairs = [*{one.id: (one, other.get(one.id)) for one in records}.values()]
            while pairs and not self.tally.converted:  # a harmful write is limited to one record
                self._look(pairs.pop(0))
                bar.update()
            for _ in workers.map(self._look, pairs):
                bar.update()
            if first:
                self._refuse_missing(records)
            self.tally.steps += paging.step(len(records))
            first, target = False, paging.following(target, answer, self.tally.steps, len(records))
            if not self.options.dry_run:
                self._write()

    def _refuse_missing(self, records: Sequence[ReadRecord]) -> None:
        """A list of which no record is found at its own address names other ids than it should."""
        count = len(records)
        if self.options.dry_run:  # which reads few of them one by one
            records = records[:_STRANGE]
            self.missing.update(
                _mark(one.id) for one in records if self._record(self.direct, one.id) is None
            )
        if len(records) >= _STRANGE and all(_mark(one.id) in self.missing for one in records):
            raise _list_fault(
                self,
                f"none of the {count} records of its first page is found by "
                f"{self.plan.reading.operation.label}: the ids that the rule of the list takes "
                "(response: {id: …}) are not those of that path, or it needs a query",
            )

    def _refuse_endless(self, target: str, answer: HttpAnswer, count: int) -> None:
        """A list that does not say how it continues may continue all the same."""
        paging = self.options.paging
        if not paging.is_conclusive(answer) and paging.following(target, answer, 1, count) is None:
            raise _list_fault(
                self,
                f"nothing in the answer to {target} leads to another page, and nothing says that "
                f"it has all records; say how its pages follow with --pages: {PAGING_HELP}",
            )

    def _look(self, pair: tuple[ReadRecord, ReadRecord | None]) -> None:
        """Count one record of a page, as both sides show it; write it again where that is due."""
        direct, proxied = pair
        todo = self.direction.todo
        state = None if proxied is None else self.plan.state(direct, proxied)
        mark = _mark(direct.id)
        vague = state is None or (state not in todo and not self.plan.complete(direct))
        if vague and mark not in self._passed_over:
            examined = self._examined(direct.id)
            if isinstance(examined, RecordOutcome):
                self._end(direct, mark, examined)
                return
            state = examined
            if state not in todo:
                self._passed_over.add(mark)
        if state is None:
            return
        self.unseen.difference_update([one.field for one in direct.spots])
        with self._lock:
            self.last.states[state] += 1
            if self.options.dry_run and state in todo and proxied is not None:
                self.refusable += self.plan.refused_values(proxied, self.options.region)
        if state in todo and not self.options.dry_run and mark not in self._passed_over:
            self._write_rate.wait()
            self._end(direct, mark, self._convert(direct.id))

    def _end(self, record: ReadRecord, mark: bytes, outcome: RecordOutcome) -> None:
        """Count the outcome of one record. One that is deleted meanwhile is not listed again."""
        if outcome is RecordOutcome.GONE and mark in self.missing and not self.options.dry_run:
            label = self.plan.reading.operation.label
            outcome = self._refuse(record, f"it is listed, and {label} does not find it")
        with self._lock:
            self.last.outcomes[outcome] += 1
            if outcome is RecordOutcome.GONE:
                self.missing.add(mark)
            elif outcome is RecordOutcome.REFUSED:
                self._passed_over.add(mark)

    def _heeds_conditions(self, ident: str) -> bool | None:
        """Whether the application refuses an update on the condition of a tag that a record had.

        The update changes nothing. ``None``: the record has no strong tag.
        """
        read = self._record(self.direct, ident)
        if read is None or not read[1]:
            return None
        body = self.plan.unchanging_body(read[0])
        headers = {"Content-Type": self.plan.content_type, "If-Match": earlier_tag(read[1])}
        answer = self.direct.write(self.plan.method, self.plan.update_target(ident), body, headers)
        heeds = answer is not None and answer.status == _PRECONDITION_FAILED
        if not heeds:
            print(IGNORES_CONDITIONS, file=sys.stderr)
        return heeds

    def _examined(self, ident: str) -> RecordState | RecordOutcome:
        """Read the state of a single record, or that it is gone or changes all the time."""
        for _ in range(_ATTEMPTS):
            direct, proxied = self._record(self.direct, ident), self._record(self.proxied, ident)
            if direct is None or proxied is None:
                return RecordOutcome.GONE
            self.unseen.difference_update([one.field for one in direct[0].spots])
            if (state := self.plan.state(direct[0], proxied[0])) is not None:
                return state
        return RecordOutcome.BUSY

    def _convert(self, ident: str) -> RecordOutcome:
        """Write one record again."""
        ignored: ReadRecord | None = None
        for attempt in range(_ATTEMPTS):
            # the state on the page is trusted once, if a repeated write is harmless
            sure = self.direction.through_proxy and not attempt
            direct = None if sure else self._record(self.direct, ident)
            proxied = self._record(self.proxied, ident)
            if proxied is None or (direct is None and not sure):
                return RecordOutcome.GONE
            if direct is not None:
                state = self.plan.state(direct[0], proxied[0])
                if state is None:
                    continue
                if state not in self.direction.todo:
                    return RecordOutcome.SETTLED
            record = proxied[0]
            tag = (proxied if direct is None or self.direction.through_proxy else direct)[1]
            if self.direction.unfit is not None and (reason := self.direction.unfit(record)):
                return self._refuse(record, reason)
            answer = self._update(record, tag)
            if answer is None or answer.status in _CHANGED:
                continue
            if answer.status in _GONE:
                return RecordOutcome.GONE
            if not 200 <= answer.status < 300:
                return self._refuse(record, reason_of(answer))
            if (outcome := self._after(record, tag)) is not None:
                return outcome
            ignored = record
        return RecordOutcome.BUSY if ignored is None else self._ignored(ignored)

    def _ignored(self, record: ReadRecord) -> RecordOutcome:
        """An update was accepted several times without effect in the application."""
        if not self.tally.converted:
            raise VaultError(
                Code.BAD_SETTINGS,
                f"{self.plan.update.label} was accepted and the record is as it was: are these the "
                f"addresses of the application ({self.direct.url}) and of the proxy before it "
                f"({self.proxied.url}), and do the rules name what the update takes?",
            )
        return self._refuse(record, "the update was accepted, and the record is as it was")

    def _update(self, record: ReadRecord, tag: str) -> HttpAnswer | None:
        site = self.proxied if self.direction.through_proxy else self.direct
        headers = {"Content-Type": self.plan.content_type, **({"If-Match": tag} if tag else {})}
        target = self.plan.update_target(record.id)
        answer = site.write(self.plan.method, target, self.plan.update_body(record), headers)
        if answer is not None and answer.status in (401, 403, 405):
            raise VaultError(
                Code.FORBIDDEN,
                f"{site.url} refuses {self.plan.update.label} ({reason_of(answer)}): say with "
                "--header who may.",
            )
        return answer

    def _after(self, sent: ReadRecord, tag: str) -> RecordOutcome | None:
        """Judge an accepted update by what both sides show now; ``None`` if undecided."""
        direct, proxied = self._record(self.direct, sent.id), self._record(self.proxied, sent.id)
        if direct is None or proxied is None:
            return RecordOutcome.GONE
        lost, other = self.plan.changed(sent, direct[0])
        if lost:
            raise self._harmful(f"the application no longer shows {', '.join(lost)} of a record")
        altered = self.plan.altered(sent, direct[0], proxied[0])
        if altered and self.direction.through_proxy:
            raise self._harmful(
                f"the application holds something else than the token of {', '.join(altered)}: is "
                "a column too narrow, or are texts changed? The vault has the values"
            )
        if altered:
            return self._refuse(sent, f"the application made something else of {altered[0]}")
        state = self.plan.state(direct[0], proxied[0])
        if state is None or state in self.direction.todo:
            return None
        with self._lock:
            self.tally.converted += 1
            self.tally.conditional += bool(tag) and self.tally.heeds is not False
            self.tally.members = sorted({*self.tally.members, *other})[:_LISTED]
        return RecordOutcome.CONVERTED

    def _harmful(self, text: str) -> VaultError:
        label = self.plan.update.label
        return VaultError(Code.UNREADABLE_ANSWER, f"Stopped: after {label} {text}.")

    def _record(self, site: Site, ident: str) -> tuple[ReadRecord, str] | None:
        """A record as one side shows it, with its entity tag; ``None`` where it is gone."""
        answer = site.read(self.plan.read_target(ident))
        if answer.status in _GONE:
            return None
        if answer.status != 200:
            raise failure_of(site, self.plan.reading.operation.label, answer)
        return self.plan.reading.record(ident, answer.body), answer.tag

    def _write(self) -> None:
        write_file(self.options.state, (msgspec.json.encode(self.tally),))

    def _page(self, site: Site, target: str) -> HttpAnswer:
        answer = site.read(target)
        if answer.status != 200:
            raise failure_of(site, self.plan.listing.operation.label, answer, lists=True)
        return answer

    def _refuse(self, record: ReadRecord, reason: str) -> RecordOutcome:
        is_value = any(record.id == value.text for _, value in record.values)
        name = "a record" if is_value else self.plan.update_target(record.id)
        with self._lock:
            self.refusals += 1
            if self.refusals <= _LISTED:
                self.refused.append(Detail(name, reason))
        return RecordOutcome.REFUSED


def _mark(ident: str) -> bytes:
    """Tell a record from others without its id."""
    return hashlib.sha256(ident.encode()).digest()[:12]


def _list_fault(walk: RecordWalk, text: str) -> VaultError:
    return VaultError(Code.BAD_RULES, f"{walk.plan.listing.operation.label}: {text}.")
