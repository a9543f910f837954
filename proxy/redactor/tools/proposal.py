"""Writes observations of an application as a draft rule file, which an operator has to approve."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from proxy.errors import Code, VaultError
from proxy.redactor.load import load_text
from proxy.redactor.tools.learning import learn, sources
from proxy.redactor.tools.lessons import (
    DATE_DECLARATION,
    FIELD_DECLARATIONS,
    FILE,
    MOST_OF_MEMBER,
    UNKNOWN_PART,
    LeftOut,
    Lessons,
    RequestTraffic,
    body_of_rule,
    last_name,
    main_kind,
    path_in_words,
    rule_name,
    selectable,
    selector,
    singular,
    times_met,
    unread,
    why_not_passed,
    without_own_address,
)
from proxy.redactor.tools.page_lessons import page_words
from proxy.redactor.tools.path_roles import (
    ADDS,
    OF_OTHERS,
    SIGNS_IN,
    UNCLEAR,
    PathRoles,
    removes_record,
    restores,
)
from proxy.redactor.tools.watched import joined_recordings, learn_coverage

#: Operations that are looked at; a recording with more is of a crawler, or made to be large.
_MOST: Final = 2_000
_PLACEHOLDER: Final = re.compile(r"\{([^{}*]+)\*?\}")
_CHANGES: Final = ("update", "delete")
_VERBS: Final = {"POST": "create", "GET": "read", "PUT": "update", "PATCH": "update"}
_HEAD: Final = """\
# A proposal by `domicile rules learn`, from {source}.
# Nothing in it is active before it stands among the rules of an instance.
#
# Guessed are: what is a person, the kinds of fields, which request does what, where objects stand.
# Counts say how often something was met; values are nowhere in it. Go through every line, then
# `domicile rules check`, write tests (`tests:`), and say `unmatched: deny`.
# What is left out stands at the end, or as a comment in its place, with the reason.

version: 1

endpoint:
  name: {name}
  upstream: {upstream}        # where the application itself listens
"""
_SAME: Final = """\
  # Are these the records of {0} above, with the same ids? Then write {0} in place of {1}
  # everywhere: as two entities, each shows the tokens of the other."""


@dataclass(slots=True)
class _Entity:
    name: str
    like: str = ""  #: another entity, whose collection is called the same
    fields: dict[tuple[str, ...], Counter[str]] = field(default_factory=dict)
    dates: dict[str, str] = field(default_factory=dict)  #: field -> element of a page that takes it

    def field_name(self, member: tuple[str, ...]) -> str:
        """The name of a field: that of its member, with those around it where it is nested."""
        return rule_name("_".join(one for one in member if one != "[*]"), "field")


@dataclass(slots=True)
class _Proposed:
    """An operation as text, and why it is a comment if it is one."""

    request: str
    lines: list[str]
    fault: str = ""


class Proposal(NamedTuple):
    """The text of a rule file, which says what it leaves out, and that as a list."""

    text: str
    left_out: list[LeftOut]


def propose_from(
    contents: Sequence[bytes],
    words: Iterable[str],
    name: str | None,
    own: AbstractSet[str] = frozenset(),
) -> Proposal:
    """A rule file from a recording, a document, or coverage files of instances.

    ``name``: of the endpoint. ``own``: hosts and ports of the proxy. Raises
    ``VaultError(BAD_REQUEST)``.
    """
    lessons, named = learn_coverage(contents, name)
    if lessons is None and len(contents) > 1:
        contents = [joined_recordings(contents)]
    return propose(without_own_address(lessons or learn(contents[0], words), own), named)


def propose(lessons: Lessons, name: str) -> Proposal:
    """A rule file that loads; what would not is a comment with the reason.

    Raises ``VaultError(BAD_REQUEST)`` for very many operations.
    """
    if len(lessons.operations) > _MOST:
        text = f"More than {_MOST:,} shapes of paths were met: name a smaller recording."
        raise VaultError(Code.BAD_REQUEST, text)
    roles = PathRoles(lessons)
    entities = _entities(lessons, roles)
    operations: list[_Proposed] = []
    passed: list[str] = []
    left_out = [*lessons.left_out, *_doubts(entities)]
    for method, path, traffic in sources(lessons):
        guessed = None if UNKNOWN_PART in path else entities.get(roles.base(path))
        operation = _operation((method, path), traffic, guessed, roles)
        request = f"{method} {path}"
        if operation is not None and guessed is not None:
            operations.append(operation)
            left_out += _unproposed(request, traffic, guessed)
        elif reason := roles.unclear(method, path) or why_not_passed(path, traffic):
            left_out.append(LeftOut(request, "", f"{reason}, {times_met(traffic)}"))
        else:
            rule = f"{{match: {json.dumps(request)}, pass: true}}"
            passed.append(f"  # - {rule}    # nothing suspected, {times_met(traffic)}")
        left_out += unread(request, traffic, ruled=operation is not None)
    while True:  # until no operation is at fault: each round makes comments of some
        faults = [LeftOut(one.request, "", one.fault) for one in operations if one.fault]
        text, lines = _text(_head(lessons, name), entities, operations, passed, left_out)
        try:
            load_text(text, "proposal.yaml", {})
        except VaultError as error:
            if not _comment_out(lines, error):
                raise
        else:
            return Proposal(text, [*faults, *left_out])


def _comment_out(lines: dict[int, _Proposed], error: VaultError) -> bool:
    """Make comments of the operations in which faults stand; whether there is any."""
    faulty = False
    for detail in error.details:
        position = detail.source.split(":")
        number = int(position[1]) if len(position) > 2 and position[1].isdigit() else 0
        operation = lines.get(number)
        if operation is not None and not operation.fault:
            operation.fault = detail.text
            faulty = True
    return faulty


def _entities(lessons: Lessons, roles: PathRoles) -> dict[str, _Entity]:
    """Return the entity of each collection with suspected personal data."""
    written = {
        roles.base(path)
        for _, path, traffic in sources(lessons)
        if traffic.objects("request") or traffic.form
    }
    entities: dict[str, _Entity] = {}
    names: Counter[str] = Counter()
    for _, path, traffic in sorted(sources(lessons), key=lambda one: roles.is_sign_in_path(one[1])):
        if UNKNOWN_PART in path:
            continue
        members: dict[tuple[str, ...], Counter[str]] = {}
        for direction in ("request", "response"):
            first = traffic.objects(direction)[:1]
            fields = [
                of
                for at, objects in first
                if selectable(at)
                for of in objects.fields.items()
                # a sentence that nobody writes is the application's, about others
                if roles.base(path) in written or (direction, at + of[0]) not in traffic.repeats
            ]
            members.update({one: kinds for one, kinds in fields if selectable(one)})
        members.update(
            {
                (last_name(one),): kinds
                for one, kinds in traffic.form.items()
                if selectable((last_name(one),)) and len(one) <= MOST_OF_MEMBER
            }
        )
        base = roles.base(path)
        if not members or base == UNCLEAR:
            continue
        if base not in entities:
            words = [one for one in base.split("/") if one and "{" not in one]
            word = words[-1].rpartition("::")[2].partition(".")[0] if words else ""
            word = singular(rule_name(word, "record_")) if word else "record"
            names[word] += 1
            again = names[word] > 1
            entities[base] = _Entity(f"{word}_{names[word]}" if again else word, again * word)
        for member, kinds in members.items():
            entities[base].fields.setdefault(member, Counter()).update(kinds)
    for _, path, traffic in sources(lessons):
        entity = entities.get(roles.base(path))
        if entity is not None:
            declared = {entity.field_name(one) for one in entity.fields}
            named = {entity.field_name((last_name(one),)): one for one in traffic.dates}
            entity.dates.update({one: named[one] for one in named if one in declared})
    return entities


def _operation(
    request: tuple[str, str], traffic: RequestTraffic, entity: _Entity | None, roles: PathRoles
) -> _Proposed | None:
    """The rule of one method at one path; ``None`` where nothing is suspected."""
    method, path = request
    placed = {direction: traffic.objects(direction)[:1] for direction in ("request", "response")}
    single = bool(_PLACEHOLDER.search(path)) and path != roles.base(path)
    within = not path.endswith("}") and path != roles.base(path)  # such as /people/{id}/photo
    deletes = single and removes_record(method, path)
    shows = method == "GET" and bool(traffic.answers) and bool(traffic.pages)
    opens = traffic.open_body and not within
    reasons = [*placed.values(), traffic.form, deletes, shows, restores(*request), opens]
    if entity is None or not any(reasons):
        return None
    verb = "delete" if deletes else _VERBS.get(method, "read")
    if method == "POST" and single and not deletes:
        verb = "create" if traffic.makes else "update"  # as of a step: /wizard/3 leads to /users/17
    signs_in = method != "GET" and roles.is_sign_in_path(path)
    adds = verb == "update" and method == "POST" and bool(traffic.form)
    others = single and roles.holds_others(roles.base(path))
    verb = "read" if signs_in else verb
    if method == "GET" and not placed["response"] and not shows:
        return None
    lines = [f"  - match: {json.dumps(f'{method} {path}')}", f"    {verb}: {entity.name}"]
    if single and not others and verb != "create":
        lines.append(f"    id: path {_PLACEHOLDER.findall(path)[-1]}")
    lines += _query(traffic, entity) if traffic.query and verb == "read" else ()
    sent = [body_of_rule(at, objects, looks=signs_in) for at, objects in placed["request"]]
    sent += _form(traffic, entity)
    lines += [SIGNS_IN] * signs_in + [ADDS] * (adds and within) + traffic.open_body
    if sent and verb != "delete":
        lines.append(f"    request: {{{', '.join(sent)}}}")
    lines += filter(None, [roles.keep(*request) if verb == "delete" else ""])
    for at, objects in placed["response"]:
        word = "each" if "[*]" in at else "object"
        ident = "" if objects.has_id else "      # the id was not there: where is it?"
        lines.append(f"    response: {{{word}: {selector(at)}, id: $.{objects.id}}}{ident}")
    if not placed["response"] and (words := _answer(verb, path, traffic, entity, single=single)):
        lines.append(f"    response: {{{', '.join(words)}}}")
    lines[0] += f"      # {times_met(traffic)}"
    return _Proposed(f"{method} {path}", lines, OF_OTHERS * (others and verb in _CHANGES))


def _form(traffic: RequestTraffic, entity: _Entity) -> list[str]:
    """Words of the rule about the form that a request carries."""
    fields = {entity.field_name(one): main_kind(of) for one, of in entity.fields.items()}
    pairs = list[str]()
    for one, kinds in traffic.form.items():
        name, of_file = entity.field_name((last_name(one),)), FILE in kinds
        if name in fields and (fields[name] == FILE or not of_file):
            pairs.append(f"{json.dumps(one)}: {f'{{filename: {name}}}' if of_file else name}")
    if not pairs or not traffic.files:
        return [f"form: {{{', '.join(pairs)}}}"] if pairs else []
    named = any("{filename:" in one for one in pairs)
    return [f"multipart: {{{', '.join(pairs)}}}", *([] if named else ["files: pass"])]


def _answer(
    verb: str, path: str, traffic: RequestTraffic, entity: _Entity, *, single: bool
) -> list[str]:
    """Words about an answer that is no JSON: redirects that are success, pages, exports."""
    words = []
    ids = [one for one in traffic.redirects.values() if _PLACEHOLDER.findall(one) == ["id"]]
    if verb == "create" and ids:  # one below a record, and back to it, does not tell its own id
        source = "$.id" if path.startswith(f"{ids[0]}/") else f"header Location {ids[0]}"
        words.append(f"id: {json.dumps(source)}")
    if verb != "read" and traffic.redirects:
        words.append(f"success: [{', '.join(map(str, sorted(traffic.redirects)))}]")
    if "csv" in traffic.answers:
        names = {entity.field_name(one) for one in entity.fields}
        pairs = [f"{json.dumps(one)}: {one}" for one in traffic.columns if one in names]
        words += ["restore: csv", f"columns: {{{', '.join(pairs)}}}"]
        words += ["id: column id"] if "id" in traffic.columns else []
    elif ("html" in traffic.answers and traffic.pages) or (verb == "read" and traffic.redirects):
        fields = {entity.field_name(one): main_kind(of) for one, of in entity.fields.items()}
        one = single or verb == "create"
        words += page_words(traffic.heads, fields, entity.dates, single=one)
    return words


def _query(traffic: RequestTraffic, entity: _Entity) -> Iterator[str]:
    fields = {entity.field_name(one): kinds for one, kinds in entity.fields.items()}
    exact = [one for one in traffic.query if one in fields and main_kind(fields[one]) == "email"]
    pairs = [f"{json.dumps(one)}: {{field: {one}}}" for one in exact]
    if pairs:
        yield f"    query: {{{', '.join(pairs)}}}"
    for one in traffic.query:
        if one not in exact:
            words = f"{main_kind(traffic.query[one])} suspected: field, via: vault or refuse"
            yield f"    # query: {{{json.dumps(one)}: …}}    # {words}"


def _unproposed(request: str, traffic: RequestTraffic, entity: _Entity) -> Iterator[LeftOut]:
    """Parts of a proposed operation that are not in it."""
    declared = {entity.field_name(one) for one in entity.fields}
    for one in traffic.form:
        if entity.field_name((last_name(one),)) not in declared:
            yield LeftOut(request, f"form {one}", "no field can have this name: declare one")
    for one, kinds in traffic.query.items():
        if main_kind(kinds) != "email" or one not in declared:
            text = "suspected in a search: say query with field, via: vault or refuse"
            yield LeftOut(request, f"query {one}", f"{main_kind(kinds)} {text}")
    members = [
        (direction, at, member)
        for direction in ("request", "response")
        for at, objects in traffic.objects(direction)[:1]
        for member in objects.fields
    ]
    for direction, at, member in members:
        if not (selectable(at) and selectable(member)):
            text = "it has a name that a selector cannot have, or a long one"
            yield LeftOut(request, f"a member of the {direction}", text)


def _doubts(entities: dict[str, _Entity]) -> Iterator[LeftOut]:
    """Kinds that fields could have as well, and members whose name another field has."""
    for entity in entities.values():
        taken: set[str] = set()
        for member, kinds in entity.fields.items():
            own = entity.field_name(member)
            if own.casefold() in taken:
                text = f"another member is the field {own}: choose a name"
                yield LeftOut("", f"{entity.name}, {path_in_words(member)}", text)
            taken.add(own.casefold())
            (kind, most), *others = kinds.most_common()
            for other, number in others:
                text = f"{kind} was suspected {most} x: say which it is"
                yield LeftOut("", f"{other} ({number} x) as the kind of {entity.name}.{own}", text)


def _head(lessons: Lessons, name: str) -> list[str]:
    upstream = json.dumps(lessons.origin)
    return _HEAD.format(source=lessons.source, name=name, upstream=upstream).split("\n")


def _text(
    head: list[str],
    entities: dict[str, _Entity],
    operations: list[_Proposed],
    passed: list[str],
    left_out: list[LeftOut],
) -> tuple[str, dict[int, _Proposed]]:
    """The file, and which operation stands on each of its lines, counted from 1."""
    lines = [*head, *(["entities:"] if entities else [])]
    for entity in entities.values():
        lines += _SAME.format(entity.like, entity.name).split("\n") if entity.like else []
        lines += [f"  {entity.name}:", "    fields:", *_fields(entity)]
    at: dict[int, _Proposed] = {}
    lines += ["", "operations:" if any(not one.fault for one in operations) else "# operations:"]
    for operation in operations:
        if operation.fault:
            lines.append(f"  # not proposed: {operation.fault}")
            lines += [f"  # {line[2:]}" for line in operation.lines]
            continue
        for line in operation.lines:
            lines.append(line)
            at[len(lines)] = operation
    lines += ["", *passed] if passed else []
    lines += ["", *(f"# {one}" for one in left_out)] if left_out else []
    return "\n".join(lines).rstrip() + "\n", at


def _fields(entity: _Entity) -> Iterator[str]:
    taken: set[str] = set()
    for member, kinds in entity.fields.items():
        kind, own = main_kind(kinds), entity.field_name(member)
        if own.casefold() in taken:
            yield f"      # {selector(member)}: a field of this name stands above; choose another"
            continue
        taken.add(own.casefold())
        declared = FIELD_DECLARATIONS.get(kind, f"{{kind: {kind}}}")
        declared = DATE_DECLARATION if kind == "date" and own in entity.dates else declared
        if member != (own,):
            at = selector(member)
            declared = f"{declared[:-1]}, at: {json.dumps(at) if at[:1] == '$' else at}}}"
        doubt = [f"{one} {number}" for one, number in kinds.most_common()]
        yield f"      {own}: {declared}      # suspected: {', '.join(doubt)}"
