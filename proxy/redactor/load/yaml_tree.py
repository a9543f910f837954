"""YAML text as a tree of nodes that know where they stand, free of YAML's traps.

Scalars follow the core schema of YAML 1.2: ``no``, ``on`` and ``yes`` are texts, and so are dates,
``1_000`` and ``12:30``. A key that stands twice is a fault, tags and merge keys are refused,
aliases are resolved within a bound on the number of nodes, so that a small file cannot unfold into
a huge one.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import yaml

from proxy.errors import Code, Detail, VaultError
from proxy.redactor.rules import Position

# Collecting every fault of a rule file, so that an operator corrects them in one go.

#: Faults shown at most; a file with more is broken in a way that more lines would not explain.
MOST_RULE_FAULTS = 200


class RuleFaults:
    """Faults by place. ``raise_any`` makes one ``VaultError(BAD_RULES)`` with all as details."""

    def __init__(self) -> None:
        self._faults: dict[tuple[str, int, int, str], None] = {}

    def __bool__(self) -> bool:
        return bool(self._faults)

    def add(self, at: Position, text: str) -> None:
        """Note a fault: its position (line 0: none), and its remedy; no secret's content."""
        self._faults.setdefault((at.file, at.line, at.column, text))

    def add_once(self, at: Position, text: str) -> None:
        """The same for a name that is unknown wherever it stands: one place of a file is enough."""
        if not any(one[0] == at.file and one[3] == text for one in self._faults):
            self.add(at, text)

    def raise_any(self) -> None:
        """Raise when there is any fault: sorted by file, line and column."""
        if not self._faults:
            return
        places = sorted(self._faults)
        details = tuple(
            Detail((f"{file}:{line}:{column}" if line else file), text)
            for file, line, column, text in places[:MOST_RULE_FAULTS]
        )
        count = "1 fault" if len(places) == 1 else f"{len(places)} faults"
        raise VaultError(
            Code.BAD_RULES, f"The rules have {count}; nothing of them was loaded.", details
        )


def nearest_word(word: str, words: Iterable[str]) -> str | None:
    """The known word that a misspelt one may have been meant for."""
    return next(iter(difflib.get_close_matches(word.lower(), list(words), n=1, cutoff=0.6)), None)


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """A hint for a misspelt word: the nearest known one, else the list of known ones."""
    names = list(words)
    if near := nearest_word(word, names):
        return f"did you mean '{near}'?"
    return f"known here: {', '.join(names)}." if names else "nothing may stand here."


#: Nodes of one file, aliases unfolded; ten thousand operations need about a quarter of it.
MOST_NODES = 500_000
DEEPEST = 40

_CORE = {
    "null": re.compile(r"null|Null|NULL|~|"),
    "bool": re.compile(r"true|True|TRUE|false|False|FALSE"),
    "int": re.compile(r"[-+]?[0-9]+"),
    "float": re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"),
}
# The compiled scanner of libyaml reads ten times faster; both give the same events.
_LOADER: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value: text, number, boolean or null; ``text`` is as written, without quotes."""

    value: str | int | float | bool | None
    text: str
    at: Position


@dataclass(frozen=True, slots=True)
class Items:
    """A sequence."""

    nodes: tuple["YamlNode", ...]
    at: Position


@dataclass(frozen=True, slots=True)
class Members:
    """A mapping: each key's value and the key's own position, in the order of the file."""

    entries: Mapping[str, "YamlNode"]
    keys: Mapping[str, Position]
    at: Position

    def position(self, key: str) -> Position:
        """Return the position of the key, or of the mapping if it has no such key."""
        return self.keys.get(key, self.at)


YamlNode: TypeAlias = Scalar | Items | Members


def plain_values(node: YamlNode) -> object:
    """The tree as ordinary values: dicts, lists, texts, numbers."""
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Items):
        return [plain_values(item) for item in node.nodes]
    return {key: plain_values(value) for key, value in node.entries.items()}


def read_tree(text: str, file: str, faults: RuleFaults) -> YamlNode | None:
    """The document in ``text``; ``None`` after noting why there is none."""
    start = Position(file, 1, 1)
    try:
        return _Builder(file, faults).build(text)
    except _Refused as refused:
        faults.add(refused.at, refused.text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = Position(file, mark.line + 1, mark.column + 1) if mark else start
        problem = error.problem or error.context or ""
        hint = _CHARACTER_HINT if "cannot start" in problem else _YAML_HINT
        faults.add(at, f"not YAML: {problem}{_opened(error)}; {hint}")
    except UnicodeEncodeError as error:
        faults.add(
            _position(text, error.start, file),
            "half of a surrogate pair; write the character itself",
        )
    except yaml.reader.ReaderError as error:
        faults.add(
            _position(text, error.position, file),
            "a control character that YAML does not allow; remove it",
        )
    return None


def _opened(error: yaml.MarkedYAMLError) -> str:
    """The line of the bracket that a fault of a flow collection is about."""
    mark = error.context_mark
    within = mark is not None and "flow" in (error.context or "")
    return f" for the bracket of line {mark.line + 1}" if mark and within else ""


def _position(text: str, index: int, file: str) -> Position:
    before = text[:index]
    return Position(file, before.count("\n") + 1, len(before) - before.rfind("\n"))


_CHARACTER_HINT = (
    "indent with spaces, not with tabs, and put values that begin with '@', '%' or '`' in quotes"
)
_YAML_HINT = "check indentation and brackets, and put values with ': ', '#', '{' or '[' in quotes"


class _Refused(Exception):
    """Something that no rule file may hold."""

    def __init__(self, at: Position, text: str) -> None:
        super().__init__(text)
        self.at = at
        self.text = text


class _Sized(NamedTuple):
    """A node with the number of values in it and the levels below it, aliases unfolded."""

    node: YamlNode
    size: int = 1
    height: int = 0


class _Open:
    """A collection whose end has not come yet."""

    def __init__(self, at: Position, anchor: str | None, *, mapping: bool) -> None:
        self.at = at
        self.anchor = anchor
        self.mapping = mapping
        self.nodes: list[YamlNode] = []
        self.size = 1
        self.height = 1

    def put(self, child: _Sized) -> None:
        self.nodes.append(child.node)
        self.size += child.size
        self.height = max(self.height, child.height + 1)


class _Builder:
    """Turns the parser's events into nodes with an explicit stack: depth costs no recursion."""

    def __init__(self, file: str, faults: RuleFaults) -> None:
        self._file = file
        self._faults = faults
        self._stack: list[_Open] = []
        self._anchors: dict[str, _Sized] = {}
        self._count = 0
        self._root: YamlNode | None = None
        self._documents = 0

    def build(self, text: str) -> YamlNode | None:
        for event in yaml.parse(text, Loader=_LOADER):
            self._take(event)
        if self._root is None:
            raise _Refused(
                Position(self._file, 1, 1),
                "the file is empty; a rule file begins with 'version: 1'",
            )
        return self._root

    def _take(self, event: yaml.Event) -> None:
        mark = event.start_mark
        at = (
            Position(self._file, mark.line + 1, mark.column + 1)
            if mark
            else Position(self._file, 1, 1)
        )
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise _Refused(
                    at, "a second document; write one document a file, without '---' in between"
                )
        elif isinstance(event, yaml.AliasEvent):
            alias = self._alias(event.anchor or "", at)
            self._put(alias, None, alias.size)
        elif isinstance(event, yaml.ScalarEvent):
            _refuse_tag(event.tag, at)
            self._put(_Sized(_scalar(event, at)), event.anchor, 1)
        elif isinstance(event, yaml.CollectionStartEvent):
            _refuse_tag(event.tag, at)
            self._stack.append(
                _Open(at, event.anchor, mapping=isinstance(event, yaml.MappingStartEvent))
            )
            self._refuse_depth(at, 0)
        elif isinstance(event, yaml.CollectionEndEvent):
            done = self._stack.pop()
            node = self._members(done) if done.mapping else Items(tuple(done.nodes), done.at)
            self._put(_Sized(node, done.size, done.height), done.anchor, 1)

    def _alias(self, anchor: str, at: Position) -> _Sized:
        if any(opened.anchor == anchor for opened in self._stack):
            raise _Refused(at, f"'*{anchor}' stands inside what it names; write the content out")
        if anchor not in self._anchors:
            raise _Refused(
                at, f"'*{anchor}' names nothing; put '&{anchor}' before the value it repeats"
            )
        self._refuse_depth(at, self._anchors[anchor].height)
        return self._anchors[anchor]

    def _refuse_depth(self, at: Position, below: int) -> None:
        if len(self._stack) + below > DEEPEST:
            raise _Refused(at, f"more than {DEEPEST} levels deep; no rule needs that")

    def _put(self, sized: _Sized, anchor: str | None, added: int) -> None:
        self._count += added
        if self._count > MOST_NODES:
            raise _Refused(
                sized.node.at,
                f"more than {MOST_NODES} values, aliases counted; split the file or drop the "
                "aliases",
            )
        if anchor:
            self._anchors[anchor] = sized
        if self._stack:
            self._stack[-1].put(sized)
        else:
            self._root = sized.node

    def _members(self, done: _Open) -> Members:
        entries: dict[str, YamlNode] = {}
        keys: dict[str, Position] = {}
        for key, value in zip(done.nodes[::2], done.nodes[1::2], strict=True):
            if not isinstance(key, Scalar):
                self._faults.add(
                    key.at, "a key must be a plain text; put values with '{' or '[' in quotes"
                )
            elif key.text == "<<":
                self._faults.add(key.at, "merge keys are not part of YAML 1.2; write the keys out")
            elif key.text in entries:
                self._faults.add(
                    key.at,
                    f"the key '{key.text}' stands twice (first in line {keys[key.text].line}); "
                    "keep one",
                )
            else:
                entries[key.text] = value
                keys[key.text] = key.at
        return Members(entries, keys, done.at)


def _refuse_tag(tag: str | None, at: Position) -> None:
    if tag is not None:
        raise _Refused(at, f"the tag '{tag}' is not allowed; write the value without it")


def _scalar(event: yaml.ScalarEvent, at: Position) -> Scalar:
    text = event.value
    return Scalar(_core(text) if event.implicit[0] else text, text, at)


def _core(text: str) -> str | int | float | bool | None:
    """A plain scalar by the core schema; octal and hexadecimal numbers stay texts."""
    if _CORE["null"].fullmatch(text):
        return None
    if _CORE["bool"].fullmatch(text):
        return text.lower() == "true"
    if len(text) < 300:
        if _CORE["int"].fullmatch(text):
            return int(text)
        if _CORE["float"].fullmatch(text):
            return float(text)
    return text
