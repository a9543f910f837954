"""Selection by walking a document once, member by member: slow, simple, and right in every case.

The compiled selection (``levels``) falls back to it in doubt; it is the only way for ``.*`` and
``..``, and the oracle of the tests. A node of the document carries the *threads* that reach it: the
path, the position in it, and the meaning of its end.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from proxy.model.schema import Path, PathStep
from proxy.redactor.json.grammar import (
    FIRST_ELEMENT,
    FIRST_MEMBER,
    NEXT_ELEMENT,
    NEXT_MEMBER,
    SCALAR_RUN,
    ambiguous,
    broken,
    member_name,
    not_utf8,
    run_end,
    scalar_end,
    skip,
    skip_patterns,
    too_deep,
    too_many,
)
from proxy.redactor.json.nested import (
    MOST_FOLLOWED,
    MOST_NAMES,
    Nested,
    first_piece,
    is_nested,
    onward,
    selects,
)
from proxy.redactor.json.text import (
    fold_name,
    is_utf8,
    lone_surrogate,
    loose_name,
    mask_escapes,
    most_steps,
    skip_space,
)
from proxy.redactor.json.tree import (
    HALF_PAIR,
    LETTER_CASE,
    MISSPELT,
    NESTED,
    TWICE,
    Hit,
    Selectors,
    TreeSelection,
    assemble,
)

#: Meaning of the end of a thread's path: (owner, leaf); owner -1 counts from the root. ``None``: an
#: object.
_Sink = tuple[int, int] | None


class _Thread(NamedTuple):
    path: Path
    at: int
    sink: _Sink


class WalkSpan:
    """Something selected whose end is not known yet."""

    __slots__ = ("end", "sink", "start")

    def __init__(self, start: int, sink: _Sink) -> None:
        self.start = start
        self.end = start
        self.sink = sink


class WalkFrame:
    """An array or object that is open and that threads lead into."""

    __slots__ = (
        *("count", "skips", "followed", "is_object", "looked", "loose", "named", "nested"),
        *("folded", "opened", "reached", "runs", "spread", "threads"),
    )

    def __init__(
        self, is_object: bool, threads: Sequence[_Thread], spread: bool, opened: list[WalkSpan]
    ) -> None:
        self.is_object = is_object
        self.threads = threads
        self.spread = spread  #: an array of selected objects
        self.opened = opened  #: what starts with this container and ends with it
        self.count = 0
        self.reached = ""  #: the name of the last member, where a walk needs it
        self.skips: re.Pattern[bytes] | None = None  #: a run in which nothing is selected
        #: places to which names lead, once one is in doubt
        self.nested: Nested | None = None
        self.followed = 0  #: names that begin like a way to a place
        self.looked = False  #: whether that was computed
        self.folded: dict[
            str, bool
        ] = {}  #: folded member names; whether one of that fold was chosen
        names = [step for one in threads if isinstance(step := one.path[one.at], str)]
        self.named = set(map(fold_name, names))
        self.loose = set(map(loose_name, names))  #: the same as readers have them that translate
        #: numbers, strings and the like in this array select nothing and need not be counted
        self.runs = not is_object and not any(
            isinstance(thread.path[thread.at], int) or thread.at + 1 == len(thread.path)
            for thread in threads
        )


def walk(
    objects: Path | None, leaves: Sequence[Path], anchored: Sequence[Path], body: bytes, depth: int
) -> TreeSelection:
    """Everything that a selection names in a document; see ``select.Selection``."""
    return _selection(DocumentWalk((objects, leaves, anchored, ()), body, depth))


def walk_nested(selectors: Selectors, body: bytes, depth: int) -> TreeSelection:
    """``walk`` where a name that writes out the way to a place is another spelling of it, and one
    that differs in signs may be.
    """
    return _selection(DocumentWalk(selectors, body, depth, nested=True))


def _selection(run: "DocumentWalk") -> TreeSelection:
    run.read()
    hits = (Hit(span.start, span.end, *span.sink) for span in run.hits if span.sink is not None)
    return assemble([(span.start, span.end) for span in run.objects], hits)


def locate(path: Path, body: bytes, depth: int) -> list[tuple[int, int]]:
    """The spans of all values that one path selects, each once, in order of the document."""
    run = DocumentWalk((None, (), (path,), ()), body, depth)
    run.read()
    return [(span.start, span.end) for span in run.hits]


class DocumentWalk:
    """One reading of a document."""

    def __init__(
        self, selectors: Selectors, body: bytes, depth: int, *, nested: bool = False
    ) -> None:
        self._objects, self._leaves, self._anchored, self._spared = selectors
        self.body = body
        self._text = mask_escapes(body)
        self.depth = depth
        self.objects: list[WalkSpan] = []
        self.hits: list[WalkSpan] = []
        self._stack: list[WalkFrame] = []
        self._at = 0
        self._doubt = ""
        self._escapes = self._text is not body
        self._steps = most_steps(len(body))  #: left
        self._nested = nested
        #: start of the value, the name, and its possible targets
        self._suspects: list[tuple[int, str, Nested]] = []

    def read(self) -> None:
        """Walk the whole document.

        Faults of its syntax come first, then what makes it ambiguous.
        """
        if not is_utf8(self.body):
            raise not_utf8()
        roots = [_Thread(path, 0, (-1, name)) for name, path in enumerate(self._anchored)]
        roots += [_Thread(self._objects, 0, None)] if self._objects is not None else []
        self._value(skip_space(self.body, 0), roots)
        while self._stack:
            self._advance(self._stack[-1])
        if skip_space(self.body, self._at) != len(self.body):
            self._doubt = "data follows the JSON document"
        elif self._suspects and not self._doubt and self._misled():
            self._doubt = NESTED
        if self._doubt:
            raise ambiguous(self._doubt)

    def _advance(self, frame: WalkFrame) -> None:
        """Go on to the next member or element of the innermost container, or behind its end."""
        if frame.count >= _WORTH_A_RUN:
            self._run(frame)
        if frame.is_object:
            pattern = NEXT_MEMBER if frame.count else FIRST_MEMBER
        else:
            pattern = NEXT_ELEMENT if frame.count else FIRST_ELEMENT
        match = pattern.match(self._text, self._at)
        if match is None:
            raise broken(self._at)
        if match[1]:
            self._stack.pop()
            self._close(frame.opened, match.end())
            return
        if frame.is_object:
            name = member_name(self.body[match.start(2) : match.end(2)])
            threads, chosen = _next(frame.threads, name)
            frame.reached = name
            self._judge(frame, name, chosen)
            if self._nested and frame.threads and is_nested(name):
                self._suspect(frame, name, match.end())
        else:
            threads, _ = _next(frame.threads, frame.count)
            if frame.spread:
                threads.append(_Thread((), 0, None))
        frame.count += 1
        self._steps -= 1
        if self._steps < 0:
            raise too_many()
        self._value(match.end(), threads)

    def _run(self, frame: WalkFrame) -> None:
        """Skip the following members of a container while none of them is selected."""
        if not frame.looked:
            frame.looked = True
            names = None if frame.spread else _names(frame)
            if names is not None:
                heads = frozenset(map(first_piece, names if self._nested else ()))
                loose = frozenset(map(loose_name, names))
                patterns = skip_patterns(loose, escapes=self._escapes, heads=heads)
                frame.skips = patterns[not frame.is_object]
        if frame.skips is not None:
            self._at = run_end(frame.skips, self._text, self._at)
        elif frame.runs:
            self._at = run_end(SCALAR_RUN, self._text, self._at)

    def _judge(self, frame: WalkFrame, name: str, chosen: bool) -> None:
        """Notice a name readers may take for a ``chosen`` one: by more than a passing ``..``."""
        folded = fold_name(name)
        before = frame.folded.get(folded)
        if not name.isascii() and any("\ud800" <= char <= "\udfff" for char in name):
            self._doubt = "a member name holds half of a surrogate pair"
        elif before is not None and (before or chosen):
            self._doubt = TWICE
        elif not chosen and (folded in frame.named or folded.strip() in frame.named):
            self._doubt = LETTER_CASE
        elif self._nested and not chosen and loose_name(name) in frame.loose and not self._spares():
            self._doubt = MISSPELT
        frame.folded[folded] = chosen or bool(before)

    def _way(self) -> tuple[str | int, ...]:
        return tuple([one.reached if one.is_object else one.count - 1 for one in self._stack])

    def _spares(self) -> bool:
        """Whether the last member may be called nearly as a place that is looked for."""
        return any(selects(path, self._way()) for path in self._spared)

    def _suspect(self, frame: WalkFrame, name: str, at: int) -> None:
        """Remember a member whose name may write out the way to a place; its value tells."""
        if any(thread.path[thread.at] == name for thread in frame.threads):
            return
        if frame.nested is None:
            ways = tuple([(t.path[t.at :], t.sink is None) for t in frame.threads])
            frame.nested = _nested(ways, tuple(self._leaves))
        frame.followed += frame.nested.may_lead(name)
        if frame.followed > MOST_FOLLOWED:
            self._doubt = NESTED
        elif len(self._suspects) <= MOST_NAMES and frame.nested.suspect(name):
            self._suspects.append((at, name, frame.nested))

    def _misled(self) -> bool:
        """Whether a member of a valid document puts something at a place by a written-out name."""
        if len(self._suspects) > MOST_NAMES:
            return True
        return any(
            nested.reaches(name, self.body[at : self._behind(at)])
            for at, name, nested in self._suspects
        )

    def _behind(self, at: int) -> int:
        end = scalar_end(self._text, at)
        return end if end >= 0 else skip(self._text, at, self.depth, self.depth)

    def _value(self, at: int, threads: Sequence[_Thread]) -> None:
        """Read the value that starts at ``at``: to its end, or into it when threads lead on."""
        kind = self.body[at : at + 1]
        live, opened, spread = self._enter(at, kind, threads) if threads else ((), [], False)
        scalar = scalar_end(self._text, at)
        if scalar >= 0:
            self._close(opened, scalar)
        elif kind not in (b"{", b"["):
            raise broken(at)
        elif live or spread:
            if len(self._stack) == self.depth:
                raise too_deep(self.depth)
            self._stack.append(WalkFrame(kind == b"{", live, spread, opened))
            self._at = at + 1
        else:
            self._close(opened, skip(self._text, at, self.depth - len(self._stack), self.depth))

    def _enter(
        self, at: int, kind: bytes, threads: Sequence[_Thread]
    ) -> tuple[list[_Thread], list[WalkSpan], bool]:
        """Threads that continue from a value, selections in it, whether it is an object array."""
        live: dict[tuple[Path, int, int], _Thread] = {}
        opened: list[WalkSpan] = []
        chosen = self._follow(at, threads, live, opened)
        if chosen and kind == b"{":
            owner = len(self.objects)
            self._select(self.objects, opened, at, None)
            leaves = [_Thread(path, 0, (owner, name)) for name, path in enumerate(self._leaves)]
            self._follow(at, leaves, live, opened)
        leads = _INTO_OBJECT if kind == b"{" else _INTO_ARRAY
        return (
            [t for t in live.values() if isinstance(t.path[t.at], leads)],
            opened,
            chosen and kind == b"[",
        )

    def _follow(
        self,
        at: int,
        threads: Iterable[_Thread],
        live: dict[tuple[Path, int, int], _Thread],
        opened: list[WalkSpan],
    ) -> bool:
        """Sort threads into those that end here and those that lead on; whether an object was
        chosen.

        Of threads that will select the same places the first stays: it belongs to the root or to
        the outer object.
        """
        chosen = False
        todo = list(threads)
        for thread in todo:
            if thread.at == len(thread.path):
                if thread.sink is None:
                    chosen = True
                else:
                    self._select(self.hits, opened, at, thread.sink)
                continue
            key = (thread.path, thread.at, -1 if thread.sink is None else thread.sink[1])
            if key not in live:
                live[key] = thread
                if thread.path[thread.at] is PathStep.DEEP:
                    todo.append(thread._replace(at=thread.at + 1))
        return chosen

    def _select(self, into: list[WalkSpan], opened: list[WalkSpan], at: int, sink: _Sink) -> None:
        if not any(span.sink == sink for span in opened):
            span = WalkSpan(at, sink)
            into.append(span)
            opened.append(span)

    def _close(self, opened: Iterable[WalkSpan], end: int) -> None:
        self._at = end
        for span in opened:
            span.end = end
            if span.sink is not None and lone_surrogate(self.body, span.start, end):
                self._doubt = HALF_PAIR


@lru_cache(maxsize=1024)
def _nested(threads: tuple[tuple[Path, bool], ...], leaves: tuple[Path, ...]) -> Nested:
    return Nested(
        [way for path, selects in threads for way in onward(path, leaves if selects else None)]
    )


#: Members or elements of a container after which it is worth while to look for runs.
_WORTH_A_RUN = 2


def _names(frame: WalkFrame) -> list[str] | None:
    """The names by which threads go on inside; ``None``: by more than names of letters."""
    names = []
    for thread in frame.threads:
        step = thread.path[thread.at]
        if step is PathStep.DEEP or (isinstance(step, PathStep) and not frame.is_object):
            step = thread.path[thread.at + 1] if thread.at + 1 < len(thread.path) else 0
        if not isinstance(step, str) or not first_piece(step).strip("_-"):
            return None
        names.append(step)
    return names


#: Steps that can lead into an object, and into an array.
_INTO_OBJECT = (str, PathStep)
_INTO_ARRAY = (int, PathStep)


def _next(threads: Sequence[_Thread], key: str | int) -> tuple[list[_Thread], bool]:
    """The threads that reach a member or element; whether one does by more than ``..``."""
    out: list[_Thread] = []
    chosen = False
    for thread in threads:
        step = thread.path[thread.at]
        if step is PathStep.DEEP:
            out.append(thread)
        elif step == key or step is PathStep.EACH or step is PathStep.MEMBERS:
            out.append(thread._replace(at=thread.at + 1))
            chosen = True
    return out, chosen
