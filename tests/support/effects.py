"""What a key of a rule file does: exchanges under the rules, and under the same ones without it."""

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from html import unescape
from types import MappingProxyType
from typing import Any, NamedTuple

from proxy.errors import VaultError
from proxy.net.problem import proxy_status
from proxy.redactor.load.operation_keys import _MEMBER, _Inner
from proxy.redactor.load.rule_keys import RULE_FILE, blocks
from proxy.redactor.load.value_forms import Block, Either, Form, ListOf, MapOf
from proxy.redactor.load.yaml_tree import Items, Members, RuleFaults, YamlNode, read_tree
from proxy.redactor.message import RawHeaders, Response
from proxy.redactor.rules import Match
from tests.support.exchanges import Call, Desk, desk_of, written

Word = tuple[str, str]  #: the name of a block, and of a key in it
Way = tuple[str | int, ...]  #: to the value of a key in a file


def every_word() -> list[Word]:
    return [(block.definition, key.name) for block in blocks() for key in block.keys]


def tree_of(text: str) -> YamlNode:
    tree = read_tree(text, "rules.yaml", RuleFaults())
    assert tree is not None
    return tree


def plain(node: YamlNode) -> Any:
    """The node as JSON has it."""
    if isinstance(node, Members):
        return {name: plain(one) for name, one in node.entries.items()}
    return [plain(one) for one in node.nodes] if isinstance(node, Items) else node.value


def words_in(form: Form, node: YamlNode, way: Way = ()) -> Iterator[tuple[Word, Way]]:
    """The keys in a part of a file, each with the way to its value."""
    if isinstance(form, _Inner):
        form = _MEMBER
    if isinstance(form, Either):
        form = form.mapping if isinstance(node, Members) else form.scalar
    if isinstance(form, Block) and isinstance(node, Members):
        forms = {key.name: key.form for key in form.keys}
        for name, one in node.entries.items():
            if name in forms:
                yield (form.definition, name), (*way, name)
                yield from words_in(forms[name], one, (*way, name))
    elif isinstance(form, ListOf):
        several = node.nodes if isinstance(node, Items) else ()
        for number, one in enumerate(several):
            yield from words_in(form.form, one, (*way, number))
    elif isinstance(form, MapOf) and isinstance(node, Members):
        for name, one in node.entries.items():
            yield from words_in(form.form, one, (*way, name))


class Probe:
    """A caller and an application that note what they see: which of these words, and no tokens,
    since those differ from run to run.
    """

    def __init__(self, one: Desk, words: Sequence[str]) -> None:
        self.desk = one
        self.notes: list[Any] = []
        self._words = words

    def note(self, *what: Any) -> None:
        self.notes.append(what)

    def words(self, *parts: bytes) -> list[str]:
        """Those that stand in any of the parts."""
        texts = [unescape(part.decode("utf-8", "replace")) for part in parts]
        return [word for word in self._words if any(word in text for text in texts)]

    async def send(
        self,
        match: str,
        body: Any = b"",
        answer: Any = b"",
        status: int = 200,
        *,
        headers: RawHeaders | None = None,
        back: RawHeaders | None = None,
        role: str = "",
    ) -> tuple[Call, Response]:
        """One exchange. ``answer``: a body, or what makes one of what the application was sent."""
        view = self.desk.view(role) if role else None
        verb, endpoint = None, self.desk.runtime.rules.endpoints[0]
        try:
            head = (match.split(" ", 1)[1].encode("latin-1"), headers or ())
            _, matched = self.desk.runtime.match(match.split(" ", maxsplit=1)[0], "app", *head)
            verb = matched.operation.verb if isinstance(matched, Match) else None
            self.note(type(matched).__name__)
            call = await self.desk.send(match, body, headers, view)
            sent = call.sent
            self.note(
                match, self.words(sent.target, sent.body, *(line for _, line in sent.headers))
            )
            raw = answer(call) if callable(answer) else answer
            seen = await call.answer(status, raw, back)
        except VaultError as error:
            self.note(match, error.code, proxy_status(error, endpoint.on_error, verb))
            raise Ended from error
        self.note(seen.status, self.words(seen.body, *(line for _, line in seen.headers)))
        return call, seen

    async def tried(self, match: str, body: Any = b"", answer: Any = b"", status: int = 200, **more: Any) -> None:  # fmt: skip
        """An exchange that may be refused."""
        try:
            await self.send(match, body, answer, status, **more)
        except (Ended, AssertionError) as error:
            self.note(type(error).__name__)

    async def streamed(self, match: str, status: int, body: Any, headers: RawHeaders) -> None:
        """An answer that comes as a stream, or not as one."""
        call = await self.desk.send(match)
        stream = await call.exchange.stream(status, headers)
        self.note(match, stream is not None)
        if stream is None:
            self.note(self.words((await call.answer(status, body, headers)).body))
            return
        seen = await stream.restore(written(body)) + (b"" if status == 101 else await stream.rest())
        await stream.end()
        self.note(self.words(seen))


class Ended(Exception):
    """The proxy refused the exchange."""


class Scenario(NamedTuple):
    """Rules, what happens under them, and the words that are looked for."""

    rules: str
    run: Callable[[Probe], Awaitable[None]]
    words: tuple[str, ...]
    hosted: bool = False
    #: what keys hold in place of nothing, where they need something
    instead: Mapping[Word, Any] = MappingProxyType({})


async def notes_of(scenario: Scenario, text: str) -> list[Any]:
    """What is noted under these rules; the fault, where they do not load."""
    try:
        one = await desk_of(text, hosted=scenario.hosted)
    except VaultError as error:
        return [(error.code.value, "no rules")]
    probe = Probe(one, scenario.words)
    try:
        await scenario.run(probe)
    except Exception as error:  # noqa: BLE001  # what goes wrong without a key is its effect
        probe.note(type(error).__name__)
    return probe.notes


def without(content: Any, way: Way, scenario: Scenario, word: Word) -> Iterator[str]:
    """The rules without the key, or with another value; then without what it stands in, from the
    inside out: rules with which a key is needed where it stands do not load without it.
    """
    for depth in range(len(way) - 1, -1, -1):
        other = deepcopy(content)
        inner = other
        for step in way[:depth]:
            inner = inner[step]
        if depth == len(way) - 1 and word in scenario.instead:
            inner[way[depth]] = scenario.instead[word]
        else:
            del inner[way[depth]]
        yield json.dumps(other)


NO_RULES = ("bad_rules", "no rules")


async def effective(scenario: Scenario, before: set[Word]) -> set[Word]:
    """The keys without which something else happens; those of ``before`` are not tried again."""
    tree = tree_of(scenario.rules)
    content = plain(tree)
    text = json.dumps(content)
    first, second = await notes_of(scenario, text), await notes_of(scenario, text)
    assert first == second, "the notes of a scenario hold nothing that differs by chance"
    assert first != [NO_RULES]
    telling: set[Word] = set()
    for word, way in words_in(RULE_FILE, tree):
        if word in telling | before:
            continue
        notes = first
        for mutant in without(content, way, scenario, word):
            notes = await notes_of(scenario, mutant)
            if notes != [NO_RULES]:
                break
        if notes not in (first, [NO_RULES]):
            telling.add(word)
    return telling
