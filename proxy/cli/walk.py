"""The walk that ``domicile adopt`` and ``domicile release`` share: an application's own list.

The walk goes page by page, and rewrites records one by one. The application stays open: a record is
read just before the write, which is conditional on that state. Afterwards the page is read again on
both sides, and alone each record that it does not show as it was sent. Concurrent changes, and
records that a shifting list skips, are left to the next pass; the walk ends with a pass without
work. So it may be killed at any moment, and the state file only saves time (``walk_state``).
"""

import hashlib
import threading
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from proxy.cli.command import Progress, write_file
from proxy.cli.http_client import HttpAnswer
from proxy.cli.site import PRECONDITION_FAILED, RECORD_GONE, PageTrail, Site, WriteRate, reason_of
from proxy.cli.walk_state import RecordOutcome, WalkDirection, WalkOptions, read_tally
from proxy.errors import Code, Detail, VaultError
from proxy.redactor.tools.adoption_records import ReadRecord, RecordState, WalkPlan

#: Attempts on one record under concurrent changes; the next pass repeats it.
_ATTEMPTS: Final = 8

#: Passes after which callers evidently undo the walk.
_PASSES: Final = 10

#: Records written before they are checked: at most so many, and no more than were found right
#: before or are written at a time, so that a harmful update meets few.
_UNCHECKED: Final = 100

#: Records that are checked one by one rather than by a page.
_FEW: Final = 8

#: Records of a first page that are all missing where the list names no ids that lead to them.
_STRANGE: Final = 3

#: Refusals that are listed.
_LISTED: Final = 20

#: Statuses of a record that changed since it was read.
_CHANGED: Final = (409, PRECONDITION_FAILED)

#: Outcomes after which another pass is made.
_AGAIN: Final = {RecordOutcome.CONVERTED, RecordOutcome.BUSY, RecordOutcome.GONE}


class _Written(NamedTuple):
    """A record whose update was accepted, as it was sent, and the tag that was its condition."""

    record: ReadRecord
    tag: str


#: A record as the application and the proxy show it, by its id.
_PageRecords = dict[str, tuple[ReadRecord, ReadRecord | None]]


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
        for number in range(self.tally.passes, max(_PASSES, self.tally.passes + 2)):
            self.last = _Pass()
            whole = not self.tally.steps  # an earlier call may have found work in its first part
            self._pass(bar, workers)
            if self.options.dry_run:
                return
            self.tally.passes, self.tally.steps = number + 1, 0
            self._write()
            if whole and not _AGAIN.intersection(+self.last.outcomes):
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
            answer = self.direct.page(self.plan, target)
            records = self.plan.listing.records(answer.body)
            if trail.is_end([one.id for one in records], self.tally.steps):
                break
            if first and records:
                trail.refuse_endless(target, answer, len(records))
            if self.tally.heeds is None and records and not self.options.dry_run:
                self.tally.heeds = self.direct.heeds_conditions(self.plan, records[0].id)
            pairs = [*self._both_sides(records, target).values()]
            while pairs:
                count = self._next_count()
                part, pairs = pairs[:count], pairs[count:]
                written = [one for one in workers.map(self._look, part) if one is not None]
                self._check(written, target, workers)
                bar.update(len(part))
            if first:
                self._refuse_missing(records, trail)
            self.tally.steps += paging.step(len(records))
            first, target = False, paging.following(target, answer, self.tally.steps, len(records))
            if not self.options.dry_run:
                self._write()

    def _next_count(self) -> int:
        """The number of records to look at before a check of what was written; at first one."""
        found_right = self.tally.converted
        if not (found_right or self.options.dry_run):
            return 1
        return max(self.options.parallel, min(found_right, _UNCHECKED))

    def _both_sides(self, records: Sequence[ReadRecord], target: str) -> _PageRecords:
        """The records of a page that the application has just shown, and by the proxy, too."""
        page = self.proxied.page(self.plan, target).body
        other = {one.id: one for one in self.plan.listing.records(page)}
        return {one.id: (one, other.get(one.id)) for one in records}

    def _check(self, written: Sequence[_Written], target: str, workers: ThreadPoolExecutor) -> None:
        """Judge accepted updates by their page, read once more."""
        listed: _PageRecords = {}
        if len(written) > _FEW:
            page = self.direct.page(self.plan, target).body
            listed = self._both_sides(self.plan.listing.records(page), target)

        def judge(sent: _Written) -> None:
            self._end(sent.record, self._judged(sent, *listed.get(sent.record.id, (None, None))))

        deque(workers.map(judge, written), maxlen=0)

    def _refuse_missing(self, records: Sequence[ReadRecord], trail: PageTrail) -> None:
        """A list of which no record is found at its own address names other ids than it should."""
        count = len(records)
        if self.options.dry_run:  # which reads few of them one by one
            records = records[:_STRANGE]
            self.missing.update(
                _mark(one.id) for one in records if self.direct.record(self.plan, one.id) is None
            )
        if len(records) >= _STRANGE and all(_mark(one.id) in self.missing for one in records):
            raise trail.fault(
                f"none of the {count} records of its first page is found by "
                f"{self.plan.reading.operation.label}: the ids that the rule of the list takes "
                "(response: {id: …}) are not those of that path, or it needs a query"
            )

    def _look(self, pair: tuple[ReadRecord, ReadRecord | None]) -> _Written | None:
        """Count one record of a page, as both sides show it; write it again where that is due.

        Returns what is to be checked.
        """
        direct, proxied = pair
        todo = self.direction.todo
        state = None if proxied is None else self.plan.state(direct, proxied)
        mark = _mark(direct.id)
        vague = state is None or (state not in todo and not self.plan.complete(direct))
        if vague and mark not in self._passed_over:
            examined = self._examined(direct.id)
            if isinstance(examined, RecordOutcome):
                self._end(direct, examined)
                return None
            state = examined
            if state not in todo:
                self._passed_over.add(mark)
        if state is None:
            return None
        self.unseen.difference_update([one.field for one in direct.spots])
        with self._lock:
            self.last.states[state] += 1
            if self.options.dry_run and state in todo and proxied is not None:
                self.refusable += self.plan.refused_values(proxied, self.options.region)
        if state in todo and not self.options.dry_run and mark not in self._passed_over:
            self._write_rate.wait()
            written = self._rewrite(direct.id, listed=True)
            if isinstance(written, _Written):
                return written
            self._end(direct, written)
        return None

    def _end(self, record: ReadRecord, outcome: RecordOutcome) -> None:
        """Count the outcome of one record. One that is deleted meanwhile is not listed again."""
        mark = _mark(record.id)
        if outcome is RecordOutcome.GONE and mark in self.missing and not self.options.dry_run:
            label = self.plan.reading.operation.label
            outcome = self._refuse(record, f"it is listed, and {label} does not find it")
        with self._lock:
            self.last.outcomes[outcome] += 1
            if outcome is RecordOutcome.GONE:
                self.missing.add(mark)
            elif outcome is RecordOutcome.REFUSED:
                self._passed_over.add(mark)

    def _examined(self, ident: str) -> RecordState | RecordOutcome:
        """Read the state of a single record, or that it is gone or changes all the time."""
        for _ in range(_ATTEMPTS):
            direct, proxied = (
                self.direct.record(self.plan, ident),
                self.proxied.record(self.plan, ident),
            )
            if direct is None or proxied is None:
                return RecordOutcome.GONE
            self.unseen.difference_update([one.field for one in direct[0].spots])
            if (state := self.plan.state(direct[0], proxied[0])) is not None:
                return state
        return RecordOutcome.BUSY

    def _rewrite(self, ident: str, *, listed: bool) -> _Written | RecordOutcome:
        """Write one record again; ``listed``: its page has just shown that this is due."""
        for attempt in range(_ATTEMPTS):
            # the state on the page is trusted once, if a repeated write is harmless
            sure = listed and self.direction.through_proxy and not attempt
            direct = None if sure else self.direct.record(self.plan, ident)
            proxied = self.proxied.record(self.plan, ident)
            if proxied is None or (direct is None and not sure):
                return RecordOutcome.GONE
            if direct is not None:
                state = self.plan.state(direct[0], proxied[0])
                if state is None:
                    continue
                if state not in self.direction.todo:
                    self._written_side.written()
                    return RecordOutcome.SETTLED
            record = proxied[0]
            tag = (proxied if direct is None or self.direction.through_proxy else direct)[1]
            if self.direction.unfit is not None and (reason := self.direction.unfit(record)):
                return self._refuse(record, reason)
            answer = self._update(record, tag)
            if answer is None or answer.status in _CHANGED:
                continue
            if answer.status in RECORD_GONE:
                return RecordOutcome.GONE
            if not 200 <= answer.status < 300:
                return self._refuse(record, reason_of(answer))
            return _Written(record, tag)
        return RecordOutcome.BUSY

    def _judged(
        self, sent: _Written, direct: ReadRecord | None, proxied: ReadRecord | None
    ) -> RecordOutcome:
        """The outcome of an accepted update, which is repeated if nothing came of it.

        By what a page shows of it since, and where that does not confirm it by a read of its own.
        """
        if direct and proxied and self._confirmed(sent.record, direct, proxied):
            return self._converted(sent.tag, ())
        for _ in range(_ATTEMPTS):
            if (outcome := self._after(sent)) is not None:
                return outcome
            again = self._rewrite(sent.record.id, listed=False)
            if isinstance(again, RecordOutcome):
                return again
            sent = again
        return self._ignored(sent.record)

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

    @property
    def _written_side(self) -> Site:
        return self.proxied if self.direction.through_proxy else self.direct

    def _update(self, record: ReadRecord, tag: str) -> HttpAnswer | None:
        site = self._written_side
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

    def _confirmed(self, sent: ReadRecord, direct: ReadRecord, proxied: ReadRecord) -> bool:
        """Whether a page shows a written record as it was sent."""
        due = self.plan.state(direct, proxied) in (None, *self.direction.todo)
        return not due and self.plan.confirms(sent, direct, proxied, self.tally.members)

    def _after(self, written: _Written) -> RecordOutcome | None:
        """Judge an accepted update by what both sides show now; ``None`` if undecided."""
        sent = written.record
        direct, proxied = (
            self.direct.record(self.plan, sent.id),
            self.proxied.record(self.plan, sent.id),
        )
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
        return self._converted(written.tag, other)

    def _converted(self, tag: str, changed: Sequence[str]) -> RecordOutcome:
        with self._lock:
            self.tally.converted += 1
            self.tally.conditional += bool(tag) and self.tally.heeds is not False
            self.tally.members = sorted({*self.tally.members, *changed})[:_LISTED]
        return RecordOutcome.CONVERTED

    def _harmful(self, text: str) -> VaultError:
        label = self.plan.update.label
        return VaultError(Code.UNREADABLE_ANSWER, f"Stopped: after {label} {text}.")

    def _write(self) -> None:
        write_file(self.options.state, (msgspec.json.encode(self.tally),))

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
