"""Any sequence of commits and reads gives the same on every engine as on the reference, alone and in one breath."""

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
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
    Accept,
    Bind,
    Change,
    Conflict,
    Doubt,
    Insert,
    Reindex,
    Release,
    Remove,
    Replace,
    Stage,
    Unstage,
)
from proxy.storage.memory import MemoryStore
from proxy.storage.rows import Cell, Column, ColumnType, Layout, Row, Staged, StagedKind, State
from tests.support.groups import Pair
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
    state = draw(st.sampled_from(State)) if key else State.PENDING
    return Row(
        draw(rids), key, b"sealed" if key else None, state, draw(st.integers(1, 2)), draw(instants), draw(instants),
        draw(st.one_of(st.none(), instants)), b"salt", draw(st.binary(max_size=2)), ("?",),
    )  # fmt: skip


staged = st.builds(
    Staged,
    sids,
    rids,
    st.sampled_from(StagedKind),
    instants,
    st.one_of(st.none(), instants),
    st.booleans(),
    st.binary(),
)
changes: st.SearchStrategy[Change] = st.one_of(
    st.builds(Insert, rows(), few, few),
    st.builds(Insert, rows(), few, few),
    st.builds(Release, keys, rids, instants),
    st.builds(Accept, rids, instants),
    st.builds(Bind, rids, keys, st.binary(max_size=1), instants),
    st.builds(Replace, rows(), st.integers(1, 2)),
    st.builds(Stage, staged, few, few),
    st.builds(Unstage, rids, sids),
    st.builds(Doubt, rids, sids, instants, st.booleans()),
    st.builds(Reindex, rids, few, few),
    st.builds(Remove, rids),
)
commits = st.lists(changes, min_size=1, max_size=4)


def fit(change: Change, layout: Layout) -> Change:
    """The change with cells for the layout, made from its body so that they differ."""
    if not isinstance(change, Insert | Replace):
        return change
    number = len(change.row.body) + change.row.rid
    made: dict[ColumnType, Cell] = {
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
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def fresh(self) -> Layout:
        layout = Layout(f"t{next(self.numbers)}", LAYOUTS[0])
        self.ensure(layout)
        return layout

    def ensure(self, layout: Layout) -> None:
        for store in (self.reference, self.other):
            self.runner.run(store.ensure(layout))

    def agree(self, layout: Layout) -> None:
        expected = self.runner.run(whole(self.reference, layout.table))
        assert self.runner.run(whole(self.other, layout.table)) == expected


@pytest.fixture(scope="module")
def engines() -> Iterator[Engines]:
    with TemporaryDirectory() as folder, asyncio.Runner() as runner:
        other = runner.run(open_store(f"sqlite:///{folder}/vault.db"))
        yield Engines(runner, MemoryStore(), other)
        runner.run(other.close())


@settings(max_examples=400)
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


@settings(max_examples=40)
@given(burst=st.lists(commits, min_size=2, max_size=12))
def test_commits_called_in_one_breath_are_as_one_after_the_other(engines: Engines, burst: list[list[Change]]) -> None:
    layout = engines.fresh()
    group = [[fit(change, layout) for change in commit] for commit in burst]

    async def together() -> list[Any]:
        return await asyncio.gather(*(outcome(engines.other, layout.table, commit) for commit in group))

    expected = [engines.runner.run(outcome(engines.reference, layout.table, commit)) for commit in group]
    assert engines.runner.run(together()) == expected
    engines.agree(layout)


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

        @rule(content=st.binary())
        def put(self, content: bytes) -> None:
            for store in (engines.reference, engines.other):
                engines.runner.run(store.put_note(self.layout.table, content, self.note))
                assert engines.runner.run(store.note(self.layout.table)) == content
            self.note = content

    run_state_machine_as_test(Walk, settings=settings(max_examples=25, stateful_step_count=20))
