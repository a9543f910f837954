"""Names and docstrings say what a thing is.

No name tells a history (``found``, ``kept``). No docstring opens with a question word: the first line
is an imperative ("Return …") or a noun phrase ("A staged write and its tokens").
"""

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support.tree import PACKAGE, nodes, python_files

#: A function, class, parameter, variable or attribute is named for what it is.
NO_NAMES = frozenset(
    "found place kept known held told made shown plain given seen asked beside anew around".split()
)

#: Names that users write: fields of settings objects are named as the settings are.
SETTINGS = {("config", "held"), ("model", "plain")}


@cache
def _names(path: Path) -> tuple[str, ...]:
    """Every name that a module gives."""
    return tuple(_named(path))


def _named(path: Path) -> Iterator[str]:
    for node in nodes(path):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.alias(asname=str(name)):
                yield name


@cache
def _counted() -> Counter[str]:
    """How many names of the list each room has."""
    rooms: Counter[str] = Counter()
    for path in python_files("proxy"):
        room = path.relative_to(PACKAGE).parts[0]
        rooms[room] += sum(
            name.strip("_").lower() in NO_NAMES and (room, name) not in SETTINGS
            for name in _names(path)
        )
    return +rooms


def test_names_say_what_things_are() -> None:
    assert _counted() == {}


#: A docstring that opens so is a relative clause without its noun.
RELATIVE = re.compile(
    r"(?:What|Who|Whoever|Whom|Whose|Where|Wherever|How|Which|Why|Those|That|Whatever)\b"
)

#: Docstrings of that kind that are left, by room: the figures only fall.
LEFT = {"net": 3}


def test_docstrings_open_with_a_noun_or_an_imperative() -> None:
    opened = Counter[str]()
    for path in python_files("proxy"):
        for node in nodes(path):
            if isinstance(
                node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
            ) and RELATIVE.match(ast.get_docstring(node) or ""):
                opened[path.relative_to(PACKAGE).parts[0]] += 1
    assert opened - Counter(LEFT) == {}, "begin with an imperative, or name the result"


#: Public names of an earlier draft, whose standard names stand in their place.
RENAMED = frozenset("Asker Entrance Fence Passing Quick Standing fence_of".split())


def test_renamed_names_stay_gone() -> None:
    assert {name for path in python_files("proxy") for name in _names(path)} & RENAMED == set()


#: Names in notes that are no names of this program: examples, libraries, variables of others.
ELSEWHERE = frozenset(
    "ANN BO DMCL DOMICILE_SERVICE_HOST DOMICILE__LISTEN__PROXY EventSource HMAC LI NG RON Referer "
    "SO_REUSEPORT VAULT_CACERT XMLName abc aiolimiter byEmail close_notify cryptography "
    "email_not_in findOneAndUpdate handshake_failure hook importlib key1..3 key2 key3 lastName "
    "loop.start_tls nameStartsWithInsensitive name_Icontains name_contains pathlib petName "
    "registered_country seccomp_data.arch sock_filter "
    "test_a_caller_that_says_it_sends_nothing_more_gets_its_answer userErrors workEmail "
    "x_city".split()
)

_QUOTED = re.compile(r"``([A-Za-z_][\w.]*)(?:\(\))?``")


@cache
def _texts(path: Path) -> tuple[str, frozenset[str]]:
    """The notes of a file, docstrings and comments in one, and every word of its code."""
    notes: list[str] = []
    words = {*path.relative_to(PACKAGE).with_suffix("").parts}
    begins = True
    for token in tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and begins):
            notes.append(token.string)
        else:
            words.update(re.findall(r"\w+", token.string))
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            begins = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.ENCODING)
    return "\n".join(notes), frozenset(words)


def test_notes_name_what_there_is() -> None:
    """A docstring or a comment names nothing that has another name by now."""
    words = frozenset().union(*(_texts(path)[1] for path in python_files("proxy")))
    left = {
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in python_files("proxy")
        for name in _QUOTED.findall(_texts(path)[0])
        if name not in ELSEWHERE and not words.issuperset(name.split("."))
    }
    assert left == set()
