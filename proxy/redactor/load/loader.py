"""From files to a ``RuleSet``: all or nothing, every fault at once."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from proxy.redactor.cases import parse_case
from proxy.redactor.load.checks import FileRules, check_files, warnings
from proxy.redactor.load.endpoints import compile_endpoint
from proxy.redactor.load.entities import compile_entities
from proxy.redactor.load.faults import Faults
from proxy.redactor.load.files import Source, decode, read_sources, version_of
from proxy.redactor.load.forms import Context, Item, Section
from proxy.redactor.load.grammar import RULE_FILE
from proxy.redactor.load.operations import Scope, carries_id, compile_operation
from proxy.redactor.load.rivals import check_rivals
from proxy.redactor.load.settling import settled
from proxy.redactor.load.tree import read_tree
from proxy.redactor.rules import Operation, PassRule, Position, Rule, RuleSet, RuleTest


@dataclass(slots=True)
class _Load:
    """One load: where faults go, and the environment that references are read from."""

    environ: Mapping[str, str]
    faults: Faults = field(default_factory=Faults)


def load(path: Path, environ: Mapping[str, str] | None = None) -> RuleSet:
    """The rules of a file or of every ``*.yaml`` and ``*.yml`` in a folder.

    Raises ``VaultError(BAD_RULES)`` with one ``Detail("file:line:column", sentence)`` for each fault of all files.
    """
    job = _Load(os.environ if environ is None else environ)
    return _compile(read_sources(path, job.faults), job)


def load_text(text: str, name: str = "rules.yaml", environ: Mapping[str, str] | None = None) -> RuleSet:
    """The rules in a text, as if it were the file ``name``. Raises as ``load``."""
    source = Source(name, Path(name).parent, text.encode("utf-8", "surrogatepass"))
    return _compile([source], _Load(os.environ if environ is None else environ))


def _compile(sources: list[Source], job: _Load) -> RuleSet:
    files = [compiled for source in sources if (compiled := _file(source, job))]
    check_files(files, job.faults)
    job.faults.raise_any()
    addressed = [_addressed(file) for file in files]
    told = tuple(warnings(addressed))
    kept = [settled(file) for file in addressed]
    return RuleSet(
        version_of(sources),
        tuple(file.endpoint for file in kept),
        tuple(draft.entity for file in kept for draft in file.entities),
        tuple(operation for file in kept for operation in file.operations),
        tuple(test for file in kept for test in file.tests),
        told,
        tuple(rule for file in kept for rule in file.passed),
        tuple(source.name for source in sources),
    )


def _file(source: Source, job: _Load) -> FileRules | None:
    text = decode(source, job.faults)
    tree = None if text is None else read_tree(text, source.name, job.faults)
    section = None if tree is None else RULE_FILE.read(tree, Context(job.faults, source.folder, job.environ))
    if not isinstance(section, Section):
        return None
    entities = compile_entities(section.value("entities", {}), job.faults)
    head: Section | None = section.value("endpoint")
    endpoint = None if head is None else compile_endpoint(head, section.value("on_error"))
    if endpoint is None:
        return None
    scope = Scope(endpoint, entities, job.faults)
    rules = _operations(section.value("operations", []), scope)
    operations = tuple(rule for rule in rules if isinstance(rule, Operation))
    passed = tuple(rule for rule in rules if isinstance(rule, PassRule))
    tests = _tests(section.value("tests", []), endpoint.name, job.faults)
    return FileRules(endpoint, section.key("endpoint"), tuple(entities.values()), operations, tests, passed)


def _operations(items: list[Item], scope: Scope) -> tuple[Rule, ...]:
    operations: list[Rule] = []
    places: dict[int, Position] = {}
    for item in items:
        operation = compile_operation(item.value, scope) if isinstance(item.value, Section) else None
        if operation is not None:
            operations.append(operation)
            places[id(operation)] = item.value.place("match")
    check_rivals(operations, places, scope.faults)
    return tuple(operations)


def _tests(items: list[Item], endpoint: str, faults: Faults) -> tuple[RuleTest, ...]:
    tests = []
    names: dict[str, Position] = {}
    for item in items:
        if not isinstance(item.value, Section) or "call" not in item.value:
            continue
        if faults and _is_broken(item.value):
            continue  # what is wrong with it is noted already
        name = item.value.value("name", "")
        if name in names:
            faults.add(item.value.place("name"), f"a test of this name stands in line {names[name].line}; rename one")
        names.setdefault(name, item.at)
        test = RuleTest(name, endpoint, {key: _content(part.value) for key, part in item.value.items.items()}, item.at)
        try:
            parse_case(test)
            tests.append(test)
        except ValueError as error:
            faults.add(item.value.place("call"), f"{error}")
    return tuple(tests)


def _is_broken(section: Section) -> bool:
    """Whether a fault was noted in the section or below; only under ``json`` is null a value."""
    parts: list[object] = [item.value for key, item in section.items.items() if key != "json"]
    for part in list(parts):
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        parts.extend(item.value for item in inner if isinstance(item, Item))
    below = (_is_broken(part) for part in parts if isinstance(part, Section))
    return section.strange or any(part is None for part in parts) or any(below)


def _content(value: object) -> object:
    """A read section as ordinary values."""
    if isinstance(value, Section):
        return {key: _content(item.value) for key, item in value.items.items()}
    if isinstance(value, dict) and all(isinstance(item, Item) for item in value.values()):
        return {key: item.value for key, item in value.items()}
    if isinstance(value, list) and all(isinstance(item, Item) for item in value):
        return [item.value for item in value]
    return value


def _addressed(file: FileRules) -> FileRules:
    """The same with ``Entity.addressed`` and ``Endpoint.searched`` told from all operations."""
    bare = {op.entity.name for op in file.operations if op.response.body is not None and not carries_id(op)}
    drafts = {
        draft.entity.name: replace(draft, entity=replace(draft.entity, addressed=draft.entity.name not in bare))
        for draft in file.entities
    }
    endpoint = replace(file.endpoint, searched=any(op.request.query for op in file.operations))
    operations = tuple(replace(op, endpoint=endpoint, entity=drafts[op.entity.name].entity) for op in file.operations)
    passed = tuple(replace(rule, endpoint=endpoint) for rule in file.passed)
    return replace(file, endpoint=endpoint, entities=tuple(drafts.values()), operations=operations, passed=passed)
