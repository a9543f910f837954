"""Any sequence of commits and reads gives the same on every engine as on the reference, alone and
in one breath.
"""

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from proxy.errors import VaultError
from proxy.storage import open_store
from proxy.storage.base import Store
from proxy.storage.changes import (
    ANY_ROW,
    Accept,
    AddVersion,
    Attach,
    Bind,
    Change,
    Conflict,
    Detach,
    ForgetReplies,
    Insert,
    MarkInDoubt,
    Reindex,
    Release,
    Remember,
    Remove,
    Replace,
    ReplaceCiphertext,
    SealedPart,
    StageRow,
    Unstage,
    UpdateFile,
)
from proxy.storage.rows import (
    Column,
    ColumnType,
    ColumnValue,
    File,
    Past,
    Row,
    RowState,
    Staged,
    StagedKind,
    StoredReply,
    TableLayout,
)
from tests.conformance.test_storage import PLACES
from tests.support.effort import examples
from tests.support.groups import Pair
from tests.support.memory import MemoryStore
from tests.support.rows import LAYOUT as WIDE
from tests.support.rows import h

# So few of each that changes meet: most of what can go wrong needs two that touch the same thing.
RIDS, SIDS, INSTANTS = range(1, 5), range(1, 5), range(1, 6)
KEYS = [h(f"k{n}") for n in range(3)]
HASHES = [h(f"t{n}") for n in range(4)]
LAYOUTS = (
    (Column("a", ColumnType.TEXT), Column("d", ColumnType.DECIMAL)),
    (Column("d", ColumnType.DECIMAL),),
    (Column("n", ColumnType.INTEGER), Column("a", ColumnType.TEXT)),
)

rids, sids, instants = st.sampled_from(RIDS), st.sampled_from(SIDS), st.sampled_from(INSTANTS)
keys, hashes = st.sampled_from(KEYS), st.lists(st.sampled_from(HASHES), max_size=2).map(tuple)
few = st.one_of(st.just(()), hashes)


@st.composite
def rows(draw: st.DrawFn) -> Row:
    key = draw(st.one_of(st.none(), keys))
    state = draw(st.sampled_from(RowState)) if key else RowState.PENDING
    return Row(
        draw(rids), key, b"sealed" if key else None, state, draw(st.integers(1, 2)), draw(instants), draw(instants),
        draw(st.one_of(st.none(), instants)), b"salt", draw(st.binary(max_size=2)), ("?",),
    )  # fmt: skip


staged = st.builds(
    Staged, sids, rids, st.sampled_from(StagedKind), instants, st.one_of(st.none(), instants),
    st.booleans(), st.binary(),
)  # fmt: skip
pasts = st.builds(
    Past, rids, st.integers(1, 3), keys, instants, st.just(b"salt"), st.binary(max_size=1)
)
replies = st.builds(StoredReply, keys, instants, st.binary(max_size=1), st.binary(max_size=1))
names = st.sampled_from([h("n1"), h("n2")])
# An object never holds the content of two files, so each has names of its own.
files = st.builds(
    File, keys, rids, names, st.just(""), st.integers(0, 2), instants, instants,
    st.binary(max_size=1),
)  # fmt: skip
objects = st.builds(
    lambda file, n: file._replace(object=f"{file.file_id!r} {n}"), files, st.integers(0, 2)
)
bodies, sealed_keys = st.binary(max_size=1), st.sampled_from([None, b"sealed", b"other"])
changes: st.SearchStrategy[Change] = st.one_of(
    st.builds(Insert, rows(), few, few),
    st.builds(Insert, rows(), few, few),
    st.builds(Release, keys, rids, instants, st.one_of(st.none(), rids), sealed_keys),
    st.builds(Accept, rids, instants, sealed_keys),
    st.builds(Bind, rids, keys, st.binary(max_size=1), instants),
    st.builds(Replace, rows(), st.integers(1, 2)),
    st.builds(StageRow, staged, few, few),
    st.builds(Unstage, rids, sids),
    st.builds(MarkInDoubt, rids, sids, instants, st.booleans()),
    st.builds(Reindex, rids, few, few),
    st.builds(Remove, rids, st.booleans()),
    st.builds(AddVersion, pasts),
    st.builds(Attach, objects),
    st.builds(UpdateFile, objects, rids),
    st.builds(
        UpdateFile, objects, rids, st.one_of(st.none(), objects.map(lambda file: file.object)),
    ),
    st.builds(Detach, rids, keys),
    st.builds(
        ReplaceCiphertext, st.just(SealedPart.ROW), st.tuples(rids), st.tuples(bodies, sealed_keys),
        st.tuples(bodies, sealed_keys),
    ),
    st.builds(
        ReplaceCiphertext, st.just(SealedPart.STAGED), st.tuples(sids, rids), st.tuples(bodies),
        st.tuples(bodies),
    ),
    st.builds(
        ReplaceCiphertext, st.just(SealedPart.PAST), st.tuples(rids, st.integers(1, 3)),
        st.tuples(bodies), st.tuples(bodies),
    ),
    st.builds(
        ReplaceCiphertext, st.just(SealedPart.FILE), st.tuples(keys, rids), st.tuples(bodies),
        st.tuples(bodies),
    ),
    st.builds(ForgetReplies, rids),
    st.builds(
        Remember, replies, instants,
        st.lists(st.sampled_from((*RIDS, ANY_ROW)), max_size=2).map(tuple), st.booleans(),
    ),
)  # fmt: skip
commits = st.lists(changes, min_size=1, max_size=4)


def fit(change: Change, layout: TableLayout) -> Change:
    """The change with cells for the layout, made from its body so that they differ."""
    if not isinstance(change, Insert | Replace):
        return change
    number = len(change.row.body) + change.row.rid
    made: dict[ColumnType, ColumnValue] = {
        ColumnType.HASH: h(number),
        ColumnType.TEXT: f"x{number}",
        ColumnType.DECIMAL: f"{number}.5",
        ColumnType.INTEGER: number,
    }
    row = change.row._replace(cells=tuple(made[column.type] for column in layout.columns))
    return change._replace(row=row)


async def whole(store: Store, table: str) -> list[Any]:
    """Everything that can be asked."""
    return [
        await store.rows(table, RIDS),
        await store.by_keys(table, KEYS),
        await store.by_tokens(table, HASHES),
        await store.staged(table, RIDS),
        *[await store.unsettled(table, before, 2) for before in INSTANTS],
        *[await store.expired(table, now, 2) for now in INSTANTS],
        await store.count(table),
        *[await store.past(table, key, 5, 0) for key in KEYS],
        await store.files(table, RIDS),
        await store.file_scan(table, b"", 5),
        await store.past_scan(table, (1, 1), 5),
        await store.reply_scan(table, KEYS[0], 5),
        *[await store.reply(table, key, now) for key in KEYS for now in INSTANTS],
        set(await store.doomed(10**6)),
        await store.scan(table, 1, 2),
    ]


async def outcome(store: Store, table: str, commit: Sequence[Change]) -> Any:
    """``None``, or what the refusal says."""
    try:
        await store.commit(table, commit)
    except Conflict as conflict:
        return conflict.change, conflict.hashes
    except VaultError as error:
        return error.code
    return None


@dataclass
class Engines:
    """The reference and another engine, with a fresh table for each example."""

    runner: asyncio.Runner
    reference: Store
    other: Store
    served: bool  #: whether a server has the other one's tables
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def fresh(self) -> TableLayout:
        layout = TableLayout(f"t{next(self.numbers)}", LAYOUTS[0])
        self.ensure(layout)
        return layout

    def ensure(self, layout: TableLayout) -> None:
        for store in (self.reference, self.other):
            self.runner.run(store.ensure(layout))

    def agree(self, layout: TableLayout) -> None:
        expected = self.runner.run(whole(self.reference, layout.table))
        assert self.runner.run(whole(self.other, layout.table)) == expected


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def engines(request: pytest.FixtureRequest) -> Iterator[Engines]:
    with TemporaryDirectory() as folder, asyncio.Runner() as runner:
        other = runner.run(open_store(PLACES[request.param](Path(folder))))
        yield Engines(runner, MemoryStore(), other, request.param == "postgresql")
        runner.run(other.close())


@examples(120)
@given(before=st.lists(commits, max_size=4), burst=st.lists(commits, min_size=1, max_size=8))
def test_a_group_gives_what_its_commits_give_one_after_the_other(
    before: list[list[Change]], burst: list[list[Change]]
) -> None:
    pair = Pair()
    for commit in before:
        pair.run([[fit(change, WIDE) for change in commit]])
    ours, reference = pair.run([[fit(change, WIDE) for change in commit] for commit in burst])
    assert ours == reference
    ours, reference = pair.states()
    assert ours == reference
    pair.connection.close()


@examples(20)
@given(burst=st.lists(commits, min_size=2, max_size=12))
def test_commits_called_in_one_breath_are_as_one_after_the_other(
    engines: Engines, burst: list[list[Change]]
) -> None:
    layout = engines.fresh()
    group = [[fit(change, layout) for change in commit] for commit in burst]

    async def together() -> list[Any]:
        return await asyncio.gather(
            *(outcome(engines.other, layout.table, commit) for commit in group)
        )

    expected = [
        engines.runner.run(outcome(engines.reference, layout.table, commit)) for commit in group
    ]
    assert engines.runner.run(together()) == expected
    engines.agree(layout)


@pytest.mark.slow
def test_any_walk_gives_the_same(engines: Engines) -> None:
    class Walk(RuleBasedStateMachine):
        """Commits, changes of layout and notes, one at a time."""

        def __init__(self) -> None:
            super().__init__()
            self.layout = engines.fresh()
            self.note: bytes | None = None

        @rule(commit=commits)
        def commit(self, commit: list[Change]) -> None:
            fitted = [fit(change, self.layout) for change in commit]
            results = [
                engines.runner.run(outcome(store, self.layout.table, fitted))
                for store in (engines.reference, engines.other)
            ]
            assert results[0] == results[1]
            engines.agree(self.layout)

        @rule(columns=st.sampled_from(LAYOUTS))
        def relay(self, columns: tuple[Column, ...]) -> None:
            self.layout = self.layout._replace(columns=columns)
            engines.ensure(self.layout)
            engines.agree(self.layout)

        @rule(before=instants, now=instants, limit=st.integers(0, 2))
        def prune(self, before: int, now: int, limit: int) -> None:
            pruned = [
                engines.runner.run(store.prune(self.layout.table, before, now, limit))
                for store in (engines.reference, engines.other)
            ]
            assert pruned[0] == pruned[1]
            engines.agree(self.layout)

        @rule()
        def drop(self) -> None:
            for store in (engines.reference, engines.other):
                engines.runner.run(store.drop(self.layout.table))
            engines.ensure(self.layout)
            engines.agree(self.layout)

        @rule(content=st.binary())
        def put(self, content: bytes) -> None:
            for store in (engines.reference, engines.other):
                engines.runner.run(store.put_note(self.layout.table, content, self.note))
                assert engines.runner.run(store.note(self.layout.table)) == content
            self.note = content

    # a server answers ten times as slowly as a file does, and differs in the same statements
    usual = settings(examples(8), stateful_step_count=20)
    fewer = settings(usual, max_examples=max(5, usual.max_examples // 2))
    run_state_machine_as_test(Walk, settings=fewer if engines.served else usual)
