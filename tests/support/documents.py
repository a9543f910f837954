"""Generated JSON documents as text, with everything that makes documents hard, and paths into them."""

import json
from typing import Any

from hypothesis import strategies as st

from proxy.model.schema import Path, PathStep

#: Few names, so that selectors meet them, and some that are the same to careless readers.
NAMES = ("a", "b", "id", "é", "x/y", 'q"', "A", "Id", "\u212a", "k", "É", "ſ", "s", "")

SPACES = st.sampled_from(["", "", "", " ", "\n  ", "\t\r"])
SCALARS = st.sampled_from(
    [
        "0", "-0", "1.0", "-1.50e+3", "1E400", "123456789012345678901234567890", "null", "true",
        "false", '""', '"a"', '"id"', '"[{"', '"]}"', r'"\\"', r'"\""', r'"\"id\":"', '"é😀"',
        r'"\u00e9\ud83d\ude00"', r'"\u0061"', r'"\n\/"',
    ],
)  # fmt: skip


@st.composite
def spelled(draw: st.DrawFn, text: str, escapes: bool) -> str:
    """A JSON string for that text, some of its characters escaped."""
    if not escapes or not draw(st.booleans()):
        return json.dumps(text, ensure_ascii=False)
    out = ""
    for char in text:
        plain = json.dumps(char, ensure_ascii=False)[1:-1]
        out += draw(st.sampled_from([plain, json.dumps(char)[1:-1], f"\\u{ord(char):04X}"]))
    return f'"{out}"'


@st.composite
def documents(draw: st.DrawFn, distinct: bool = False, depth: int = 4) -> str:
    """A document; ``distinct``: no two names of an object are alike to anybody, and names have only
    one case.
    """
    tight = draw(st.booleans())
    names = st.sampled_from(
        [name for name in NAMES if name not in ("A", "Id", "\u212a", "É", "ſ")]
        if distinct
        else NAMES
    )

    def space() -> str:
        return "" if tight else draw(SPACES)

    def value(room: int) -> str:
        kind = draw(st.integers(0, 3)) if room else 0
        if kind <= 1:
            return draw(SCALARS)
        items: list[str] = []
        if kind == 2:
            for name in draw(st.lists(names, max_size=5, unique=distinct)):
                items.append(draw(spelled(name, True)) + space() + ":" + space() + value(room - 1))
        else:
            items = [value(room - 1) for _ in range(draw(st.integers(0, 4)))]
        inner = space() + (space() + "," + space()).join(items) + space()
        return "{" + inner + "}" if kind == 2 else "[" + inner + "]"

    return space() + value(depth) + space()


@st.composite
def broken(draw: st.DrawFn) -> bytes:
    """The bytes of a document, mostly with something cut out or put in."""
    body = draw(documents()).encode()
    at = draw(st.integers(0, len(body)))
    end = min(len(body), at + draw(st.integers(0, 2)))
    put = draw(
        st.sampled_from(
            [
                b"", b",", b'"', b"{", b"]", b"\\", b"\xff", b"\0", b"\xed\xa0\x80", rb"\ud800",
                b" 1", b"id",
            ]
        )
    )  # fmt: skip
    return body[:at] + put + body[end:]


def paths(*, wild: bool, empty: bool = True) -> st.SearchStrategy[Path]:
    """Selectors; ``wild`` ones may hold ``.*`` and ``..``."""
    plain: list[str | int | PathStep] = [
        "a", "b", "id", "é", "x/y", 'q"', "k", 0, 1, PathStep.EACH, PathStep.EACH,
    ]  # fmt: skip
    steps = st.sampled_from([*plain, *([PathStep.MEMBERS, PathStep.DEEP] if wild else [])])
    made = st.lists(steps, min_size=0 if empty else 1, max_size=3)
    return made.map(
        lambda path: (*path, "a") if path and path[-1] is PathStep.DEEP else tuple(path)
    )


# ---------------------------------------------------------------------- the plain meaning of a selection


Place = tuple[int, ...]  #: numbers of children from the root: sorts like the document


class Object(list[tuple[str, Any]]):
    """Members in order."""


def parsed(body: bytes) -> Any:
    """The document with objects as lists of members."""
    return json.loads(body, object_pairs_hook=Object)


def select(node: Any, path: Path, place: Place = ()) -> list[tuple[Place, Any]]:
    """Every node that a path selects, by the definition of each step."""
    if not path:
        return [(place, node)]
    members = list(node) if isinstance(node, Object) else []
    elements = node if isinstance(node, list) and not isinstance(node, Object) else []
    step, rest = path[0], path[1:]
    found: list[tuple[Place, Any]] = []
    if step is PathStep.DEEP:
        found += select(node, rest, place)
        rest = path
    for number, (name, child) in enumerate(members):
        if isinstance(step, PathStep) or step == name:
            found += select(child, rest, (*place, number))
    for number, child in enumerate(elements):
        if isinstance(step, PathStep) or (isinstance(step, int) and step == number):
            found += select(child, rest, (*place, number))
    return found


def meaning(body: bytes, objects: Path | None, leaves: list[Path], anchored: list[Path]) -> Any:
    """What a selection names: for each object its (selector, value) pairs, and those that count
    from the root.
    """
    root = parsed(body)
    chosen: dict[Place, Any] = {}
    todo = select(root, objects) if objects is not None else []
    while todo:
        place, node = todo.pop()
        if isinstance(node, Object):
            chosen[place] = node
        elif isinstance(node, list):
            todo += [((*place, number), child) for number, child in enumerate(node)]
    owners = sorted(chosen)
    hits = [
        (at, -1, name, value)
        for name, path in enumerate(anchored)
        for at, value in select(root, path)
    ]
    for owner, place in enumerate(owners):
        hits += [
            (at, owner, name, value)
            for name, path in enumerate(leaves)
            for at, value in select(chosen[place], path, place)
        ]
    out: dict[int, list[tuple[int, Any]]] = {owner: [] for owner in range(-1, len(owners))}
    last: Place | None = None
    for at, owner, name, value in sorted(hits, key=lambda hit: hit[:3]):
        if last is None or at[: len(last)] != last:
            last = at
            out[owner].append((name, value))
    return [out[owner] for owner in range(len(owners))], out[-1]
