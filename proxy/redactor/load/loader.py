"""From files to a ``RuleSet``: all or nothing, every fault at once."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from proxy.errors import Code, VaultError
from proxy.model.schema import Field, Schema
from proxy.redactor.forks import each_operation
from proxy.redactor.load.answers import check_cookies, cookie_fields, with_lone_tokens
from proxy.redactor.load.conflicts import FileRules, check_conflicts, check_rivals, warnings
from proxy.redactor.load.deletes import check_ends, check_lists, warn_of_lists
from proxy.redactor.load.entities import compile_endpoint, compile_entities
from proxy.redactor.load.graphql import with_inner
from proxy.redactor.load.operations import Scope, carries_id, compile_operation
from proxy.redactor.load.rule_keys import RULE_FILE
from proxy.redactor.load.rule_tests import parse_case
from proxy.redactor.load.shown_names import with_labels
from proxy.redactor.load.sources import (
    RuleSource,
    decode_rule_text,
    no_rules,
    read_sources,
    rules_version,
)
from proxy.redactor.load.texts import settled_text
from proxy.redactor.load.value_forms import Context, PlacedValue, Section
from proxy.redactor.load.vault_questions import order_words, settled_search
from proxy.redactor.load.views import compile_views
from proxy.redactor.load.when import check_forks
from proxy.redactor.load.yaml_tree import RuleFaults, read_tree
from proxy.redactor.path import rest_prefix
from proxy.redactor.rules import (
    BodyPlace,
    Entity,
    Operation,
    PassRule,
    Position,
    Rule,
    RuleSet,
    RuleTest,
)
from proxy.telemetry.reloads import read_settled


@dataclass(slots=True)
class _Load:
    """A load: its faults, and the environment for references, if they are read."""

    environ: Mapping[str, str] | None
    faults: RuleFaults = field(default_factory=RuleFaults)


def load_rule_set(path: Path, environ: Mapping[str, str] | None = None) -> RuleSet:
    """The rules of a file or of every ``*.yaml`` and ``*.yml`` in a folder.

    Raises ``VaultError(BAD_RULES)`` with one ``Detail("file:line:column", sentence)`` for each
    fault of all files, and where a folder is never the same twice: half of one version of its files
    and half of the next may name less than either.
    """
    environ = os.environ if environ is None else environ
    job = _Load(environ)

    def read(path: Path) -> list[RuleSource]:
        job.faults = RuleFaults()  # those of the last reading count
        return read_sources(path, job.faults)

    sources = read_settled(path, read)
    if sources is None:
        text = f"{path} changes while it is read: load the rules once they are settled."
        raise VaultError(Code.BAD_RULES, text)
    return _compile(sources, job)


def load_text(
    text: str, name: str = "rules.yaml", environ: Mapping[str, str] | None = None
) -> RuleSet:
    """The rules in a text, as if it were the file ``name``. Raises as ``load``."""
    source = RuleSource(name, Path(name).parent, text.encode("utf-8", "surrogatepass"))
    return _compile([source], _Load(os.environ if environ is None else environ))


def load_files(files: Mapping[str, bytes]) -> RuleSet:
    """The rules of files that were read before (``RuleSet.files``); what they refer to is read now.

    Raises as ``load_rule_set``.
    """
    sources = [RuleSource(name, Path(name).parent, files[name]) for name in files]
    return _compile(sources, _Load(os.environ))


def load_draft(path: Path, draft: Mapping[str, str]) -> RuleSet:
    """Load a file or folder with these texts by file name, which replace or extend the files.

    References are not read: the author of a draft must not see the content of referenced files.
    Raises as ``load_rule_set``.
    """
    job = _Load(None)
    sources = {} if no_rules(path) else {one.name: one for one in read_sources(path, job.faults)}
    folder = path if path.is_dir() else path.parent
    for name, text in draft.items():
        source = str(folder / name)
        sources[source] = RuleSource(source, folder, text.encode("utf-8", "surrogatepass"))
    return _compile([sources[name] for name in sorted(sources)], job)


def _compile(sources: list[RuleSource], job: _Load) -> RuleSet:
    files = [compiled for source in sources if (compiled := _file(source, job))]
    check_conflicts(files, job.faults)
    check_lists(files, job.faults)
    job.faults.raise_any()
    addressed = [_addressed(file, _neighbours(file, files)) for file in files]
    mapped = [_settled(file) for file in addressed]
    return RuleSet(
        rules_version(sources),
        tuple(file.endpoint for file in mapped),
        tuple(draft.entity for file in mapped for draft in file.entities),
        tuple(operation for file in mapped for operation in file.operations),
        tuple(test for file in mapped for test in file.tests),
        (*warnings(addressed), *warn_of_lists(addressed)),
        tuple(rule for file in mapped for rule in file.passed),
        {source.name: source.content for source in sources},
    )


def _file(source: RuleSource, job: _Load) -> FileRules | None:
    text = decode_rule_text(source, job.faults)
    tree = None if text is None else read_tree(text, source.name, job.faults)
    section = (
        None
        if tree is None
        else RULE_FILE.read(tree, Context(job.faults, source.folder, job.environ))
    )
    if not isinstance(section, Section):
        return None
    if section.strange and "operations" in section and "entities" not in section:
        return None  # their key is misspelt, and nothing else means much without them
    entities = compile_entities(section.value("entities", {}), job.faults)
    head: Section | None = section.value("endpoint")
    drafted = {name: draft.entity for name, draft in entities.items()}
    views = compile_views(section, drafted, job.faults)
    endpoint = replace(compile_endpoint(head, section.value("on_error")), **views._asdict())
    # also with a faulty endpoint: every fault of the file is reported together
    scope = Scope(endpoint, entities, job.faults)
    rules = _operations(section.value("operations", []), scope)
    operations = tuple(rule for rule in rules if isinstance(rule, Operation))
    passed = tuple(rule for rule in rules if isinstance(rule, PassRule))
    tests = _tests(section.value("tests", []), endpoint.name, job.faults)
    if not (endpoint.name and endpoint.upstream):
        return None
    return FileRules(
        endpoint, section.key("endpoint"), tuple(entities.values()), operations, tests, passed
    )


def _operations(items: list[PlacedValue], scope: Scope) -> tuple[Rule, ...]:
    operations: list[Rule] = []
    places: dict[int, Position] = {}
    for item in items:
        operation = (
            compile_operation(item.value, scope) if isinstance(item.value, Section) else None
        )
        if operation is not None:
            operations.append(operation)
            places[id(operation)] = item.value.position("match")
    check_rivals(operations, places, scope.faults)
    check_forks(operations, places, scope.faults)
    check_ends(operations, scope.faults)
    whole = [one for one in operations if isinstance(one, Operation)]
    check_cookies(each_operation(whole), scope.faults)
    return tuple(operations)


def _tests(items: list[PlacedValue], endpoint: str, faults: RuleFaults) -> tuple[RuleTest, ...]:
    tests = []
    names: dict[str, Position] = {}
    for item in items:
        if not isinstance(item.value, Section) or "call" not in item.value:
            continue
        if faults and _is_broken(item.value):
            continue  # its fault is noted already
        name = item.value.value("name", "")
        if name in names:
            faults.add(
                item.value.position("name"),
                f"a test of this name stands in line {names[name].line}; rename one",
            )
        names.setdefault(name, item.at)
        test = RuleTest(
            name,
            endpoint,
            {key: _loaded(part.value) for key, part in item.value.items.items()},
            item.at,
        )
        try:
            parse_case(test)
            tests.append(test)
        except ValueError as error:
            faults.add(item.value.position("call"), f"{error}")
    return tuple(tests)


def _is_broken(section: Section) -> bool:
    """Whether a fault was noted in the section or below; only under ``json`` is null a value."""
    parts: list[object] = [item.value for key, item in section.items.items() if key != "json"]
    for part in list(parts):
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        parts.extend(item.value for item in inner if isinstance(item, PlacedValue))
    below = (_is_broken(part) for part in parts if isinstance(part, Section))
    return section.strange or any(part is None for part in parts) or any(below)


def _loaded(value: object) -> object:
    if isinstance(value, Section):
        return {key: _loaded(item.value) for key, item in value.items.items()}
    if isinstance(value, dict) and all(isinstance(item, PlacedValue) for item in value.values()):
        return {key: item.value for key, item in value.items()}
    if isinstance(value, list) and all(isinstance(item, PlacedValue) for item in value):
        return [item.value for item in value]
    return value


def _neighbours(file: FileRules, files: Sequence[FileRules]) -> list[FileRules]:
    """The files of all endpoints at the hosts of that one, the others first.

    A browser tells each of them the address that it comes from, and the cookies of the host.
    """
    hosts = file.endpoint.hosts
    shared = (one for one in files if not (hosts and one.endpoint.hosts.isdisjoint(hosts)))
    at_any = (one for one in files if not one.endpoint.hosts)
    return [*(one for one in (*shared, *at_any) if one is not file), file]


def _addressed(file: FileRules, joint: Sequence[FileRules]) -> FileRules:
    """Return the rules with facts that only all operations of ``joint`` files together give."""
    every = [*each_operation(file.operations)]
    bare = {op.entity.name for op in every if op.response.body and not carries_id(op)}
    bare |= {one.operation.entity.name for op in file.operations for one in op.graph}
    drafts = {
        (own := draft.entity).name: replace(
            draft,
            entity=replace(
                own,
                addressed=own.name not in bare,
                fields=with_labels(
                    own, with_lone_tokens(own, every, everywhere=own.name in bare), every
                ),
            ),
        )
        for draft in file.entities
    }
    searched = any(op.addressed for one in joint for op in one.operations)
    every_joint = each_operation([op for one in joint for op in one.operations])
    ordered = {
        word: f"{draft.entity.name}.{name}"
        for draft in file.entities
        for name in draft.entity.fields
        for word in order_words(draft.entity, name)
    }
    endpoint = replace(
        file.endpoint,
        searched=searched,
        viewed=any(one.endpoint.views for one in joint),
        cookies=cookie_fields(every_joint),
        ordered=ordered,
        rest_routes=frozenset(
            before
            for one in joint
            for op in one.operations
            if (before := rest_prefix(op.template)) is not None
        ),
    )

    def addressed(op: Operation) -> Operation:
        return replace(op, endpoint=endpoint, entity=drafts[op.entity.name].entity)

    operations = tuple(with_inner(op, addressed) for op in file.operations)
    passed = tuple(replace(rule, endpoint=endpoint) for rule in file.passed)
    return replace(
        file,
        endpoint=endpoint,
        entities=tuple(drafts.values()),
        operations=operations,
        passed=passed,
    )


# Entities of the record schema in its names: the last step of a load, when every check is done.

_T = TypeVar("_T")


def _settled(file: FileRules) -> FileRules:
    """The file with entities of the record schema and their operations, in its own names."""
    entities = {draft.entity.name: _settled_entity(draft.entity) for draft in file.entities}
    drafts = tuple(replace(draft, entity=entities[draft.entity.name]) for draft in file.entities)
    operations = tuple(
        with_inner(one, lambda inner: _settled_operation(inner, entities[inner.entity.name]))
        for one in file.operations
    )
    return replace(file, entities=drafts, operations=operations)


def _settled_entity(entity: Entity) -> Entity:
    names = entity.kept_as
    if names is None:
        return entity
    fields = {
        names.get(name, name): replace(rule, name=names.get(name, name))
        for name, rule in entity.fields.items()
    }
    schema = Schema(
        entity.schema.name, tuple(Field(rule.name, kind=rule.kind) for rule in fields.values())
    )
    return replace(entity, fields=fields, schema=schema)


def _settled_operation(operation: Operation, entity: Entity) -> Operation:
    names = entity.kept_as
    if names is None:
        return operation
    request = replace(
        operation.request,
        body=_body(operation.request.body, names),
        search=settled_search(operation.request.search, names),
    )
    answer = operation.response
    cookies, columns, heads, members = (
        {key: names.get(field, field) for key, field in places.items()}
        for places in (answer.cookies, answer.columns, answer.heads, answer.members)
    )
    response = replace(
        answer,
        body=_body(answer.body, names),
        cookies=cookies,
        columns=columns,
        heads=heads,
        members=members,
        only=frozenset(names.get(field, field) for field in answer.only),
    )
    return replace(operation, entity=entity, request=request, response=response)


def _body(body: BodyPlace | None, names: Mapping[str, str]) -> BodyPlace | None:
    if body is None:
        return None
    form, parts, files, csv = (
        {member: names.get(field, field) for member, field in members.items()}
        for members in (body.form, body.multipart, body.file_names, body.csv)
    )
    fields, anchored = _named(body.fields, names), _named(body.anchored, names)
    body = replace(body, texts=tuple(settled_text(one, names) for one in body.texts))
    body = replace(body, form=form, multipart=parts, file_names=files, csv=csv)
    return replace(body, fields=fields, anchored=anchored)


def _named(places: Mapping[str, _T], names: Mapping[str, str]) -> dict[str, _T]:
    return {names.get(field, field): value for field, value in places.items()}
