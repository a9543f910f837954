"""Several operations behind one path, told apart by ``when``: by the head of a request, or by its
body.

The router sees one operation, the trunk, in place of all that share a path and a method. A near
match of a condition's value or place is refused: an application may take it for a match.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

from proxy.errors import Code, VaultError
from proxy.model.schema import Path, Value
from proxy.redactor import form
from proxy.redactor.checks import Outline
from proxy.redactor.json.text import fold_all, fold_name, is_utf8
from proxy.redactor.json.tree import read_json_value
from proxy.redactor.message import Media, RawHeaders, Request, classify, media_of, read_text
from proxy.redactor.multipart import form_parts, is_multipart
from proxy.redactor.named_places import deepest, document_path, inner_calls, spared_paths
from proxy.redactor.path_template import parse_template
from proxy.redactor.redact import MOST_QUERY, query_span, query_spots
from proxy.redactor.request_rules import Condition, ConditionSource
from proxy.redactor.rules import Operation, PassRule, Rule, Verb
from proxy.redactor.select import Selection
from proxy.redactor.xml_documents import read_xml_document

_IN_BODY = {
    ConditionSource.BODY: (Media.JSON, Media.XML, Media.VOBJECT),
    ConditionSource.FORM: (Media.FORM, Media.MULTIPART),
}
#: Bodies in which an application may look for what stands in its address, too.
_ALSO_READ = (Media.FORM, Media.MULTIPART, Media.JSON)
_IN_FIELDS = (ConditionSource.HEADER, ConditionSource.TYPE)

_Position = tuple[ConditionSource, str | Path]  #: the place of a condition
_Stated = Mapping[_Position, Sequence[Value]]


class Fork:
    """The operations of one path and method, the most specific first. Made when rules load."""

    def __init__(self, branches: Iterable[Rule]) -> None:
        self.branches = tuple(sorted(branches, key=_breadth))
        #: names in conditions, each of which may be confused with another in other letter case only
        self._values: dict[_Position, dict[Value, frozenset[object]]] = {}
        for one in (one for branch in self.branches for one in branch.when):
            self._values.setdefault(_position(one), {}).update(
                (value, frozenset((fold_name(value.text).strip(),))) for value in one.values
            )
        self._paths = tuple(name for _, name in self._values if isinstance(name, tuple))
        operations = [one for one in self.branches if isinstance(one, Operation)]
        self._spared = [path for one in operations for path in spared_paths(one)]
        bodies = (one.request.body for one in operations)
        #: how a document is read that is no JSON, by its kind
        self._kinds = {media_of(one.xml): one.xml for one in bodies if one is not None and one.xml}
        self._selections = {
            media: (Selection(None, (), paths, nested=True, spared=self._spared), outline)
            for media, kind in {Media.JSON: None, **self._kinds}.items()
            for paths in ([document_path(path, kind) for path in self._paths],)
            for outline in (Outline(None, (), paths),)
        }
        self._members = self._names(ConditionSource.FORM)
        self._parameters = {name: name for name in self._names(ConditionSource.QUERY)}
        self._fields = {
            _field_name(name.encode()): (source, name)
            for source in _IN_FIELDS
            for name in self._names(source)
        }
        self._lengths = frozenset(map(len, self._fields))
        #: of bodies, by the names under which a query may hold the same
        self._both: dict[str, list[_Position]] = {}
        for source, name in self._values:
            first = name if isinstance(name, str) else name[0]
            if source in _IN_BODY and (first is name or len(name) == 1) and isinstance(first, str):
                self._both.setdefault(first, []).append((source, name))
        self._limits = self.branches[0].endpoint.limits
        self._label = common_label(self.branches, self.branches[0])

    def _names(self, source: ConditionSource) -> tuple[str, ...]:
        return tuple(name for one, name in self._values if one is source and isinstance(name, str))

    def by_head(self, target: bytes, headers: RawHeaders) -> Rule | None:
        """The rule of a request; ``None`` where its body has to tell.

        Raises ``VaultError``: OPERATION_DENIED where it fits none, BAD_REQUEST or AMBIGUOUS_JSON
        where it is not clear.
        """
        open_branches = self._open(target, headers)
        if any(one.source in _IN_BODY for branch in open_branches for one in branch.when):
            return None
        rule = self._first(open_branches)
        # many applications look for a parameter in both, and what passes is not read otherwise
        return None if self._parameters and _kind(headers, b"?") in _ALSO_READ else rule

    def by_body(self, request: Request) -> Rule:
        """The rule of a whole request. Raises as ``by_head``, UNREADABLE_BODY where nothing in the
        body can be told and the request would pass, and as ``Selection.find``.
        """
        branches = self._open(request.target, request.headers)
        conditions = [one for branch in branches for one in branch.when if one.source in _IN_BODY]
        media = _kind(request.headers, request.body)
        read = any(media in _IN_BODY[one.source] for one in conditions) and (
            media in self._kinds
            if media in (Media.XML, Media.VOBJECT)
            else media is not Media.FORM or request.body.lstrip()[:1] not in form.OTHER_KINDS
        )
        stated = self._stated(request, media) if read else {}
        fitting = self._fitting(branches, stated, _IN_BODY)
        if self._both and b"?" in request.target:
            self._refuse_elsewhere(stated, request.target)
        if self._parameters and media in _ALSO_READ:
            self._refuse_in_body(request, media)
        rule = self._first(fitting)
        if isinstance(rule, PassRule) and conditions and not read and media is not Media.NONE:
            raise VaultError(
                Code.UNREADABLE_BODY,
                f"The rules of {self._label} tell requests apart by their body, and this one "
                "cannot be read for that: send it as JSON, or as the form that a rule names.",
            )
        return rule

    def _open(self, target: bytes, headers: RawHeaders) -> Sequence[Rule]:
        """The branches whose conditions on the head hold."""
        if not self._fields and not self._parameters:
            return self.branches
        stated: dict[_Position, list[Value]] = {}
        if self._parameters and b"?" in target:
            for spot in query_spots(target, self._parameters):
                position = (ConditionSource.QUERY, spot.field)
                stated.setdefault(position, []).append(spot.value or Value(""))
        for name, value in headers if self._fields else ():
            if len(name) in self._lengths and (field := self._fields.get(_field_name(name))):
                if name.lower() != field[1].encode():
                    raise _unclear("has a header whose name is almost one that a rule asks for")
                text = value.decode("utf-8" if is_utf8(value) else "latin-1").strip()
                if field[0] is ConditionSource.TYPE:
                    text = (text if "," in text else text.partition(";")[0].strip()).lower()
                stated.setdefault(field, []).append(Value(text))
        return self._fitting(self.branches, stated, (ConditionSource.QUERY, *_IN_FIELDS))

    def _stated(self, request: Request, media: Media) -> _Stated:
        stated: dict[_Position, list[Value]] = {}
        body, depth = request.body, self._limits.json_depth
        if (kind := self._kinds.get(media)) is not None:
            body, depth = read_xml_document(body, depth, kind).content, deepest(depth)
            if any(map(self._asks_for, inner_calls(body, depth))):
                raise _unclear("holds several calls, some of which rules ask for one by one")
        if media in self._selections:
            selection, outline = self._selections[media]
            for leaf in selection.find(body, depth).anchored:
                if body[leaf.start] in b"[{":
                    raise _unclear("has an array or object where a rule asks for a value")
                value = read_json_value(body[leaf.start : leaf.end])
                position = (ConditionSource.BODY, self._paths[leaf.name])
                stated.setdefault(position, []).append(value or Value("null", json=True))
            if len(stated) < len(self._paths) and outline.strayed(body):
                raise _unclear("has something else on the way to what a rule asks for")
            return stated
        for name, text in self._members_of(request, media, self._members):
            stated.setdefault((ConditionSource.FORM, name), []).append(Value(text))
        return stated

    def _asks_for(self, call: str) -> bool:
        names = frozenset(self._values.get((ConditionSource.BODY, ("methodName",)), ()))
        unnamed = _spelled(names).isdisjoint(_Readings()[False, call])
        return not (unnamed or Value("system.multicall") in names)  # a rule reads that

    def _members_of(
        self, request: Request, media: Media, names: tuple[str, ...]
    ) -> Iterator[tuple[str, str]]:
        """The members of a form, or texts of one of parts, that have these names."""
        body, limit = request.body, self._limits.form_fields
        if media is Media.FORM:
            for member in form.form_members(body, limit, names):
                if member.name in names:
                    yield member.name, form.read_form_value(body[member.start : member.end])
            return
        for part in form_parts(request.headers, body, limit):
            content = b"" if part.is_file else body[part.start : part.end]
            form.check_member(names, part.name, content)
            if part.name in names and part.is_file:
                raise _unclear("has a file where a rule asks for a text")
            if part.name in names:
                yield part.name, read_text(content).text

    def _fitting(
        self, branches: Sequence[Rule], stated: _Stated, sources: Iterable[ConditionSource]
    ) -> list[Rule]:
        """Return the branches whose conditions on this part of a request all hold."""
        readings = _Readings()
        return [
            branch
            for branch in branches
            if all(
                self._fits(one, stated.get(_position(one), ()), readings)
                for one in branch.when
                if one.source in sources
            )
        ]

    def _fits(self, condition: Condition, stated: Iterable[Value], readings: "_Readings") -> bool:
        values = set(stated)
        if len(values) > 1:
            raise _unclear("says several things by which rules tell it apart")
        for value in values:
            if value in condition.values:
                return True
            read = self._values[_position(condition)].get(value)
            if read is None:
                read = readings[condition.source in _IN_FIELDS, value.text]
            if not _spelled(condition.values).isdisjoint(read):
                raise _unclear("says almost what a rule asks for, in another spelling")
        return False

    def _refuse_elsewhere(self, stated: _Stated, target: bytes) -> None:
        """Refuse a query with a rule's body condition that the body lacks: many ask both."""
        query = target[query_span(target)[0] :].replace(b"#", b"&")
        for member in form.form_members(query, MOST_QUERY, tuple(self._both)):
            for position in self._both.get(member.name, ()):
                text = form.read_form_value(query[member.start : member.end])
                awaited = frozenset(self._values[position]).difference(stated.get(position, ()))
                if not _spelled(awaited).isdisjoint(_Readings()[False, text]):
                    raise _unclear("says in its address what a rule asks of its body")

    def _refuse_in_body(self, request: Request, media: Media) -> None:
        """Refuse a body with a rule's query condition that the query lacks."""
        stated: dict[str, list[Value]] = {}
        for spot in query_spots(request.target, self._parameters) if b"?" in request.target else ():
            stated.setdefault(spot.field, []).append(spot.value or Value(""))
        for name, text in self._repeated(request, media):
            values = self._values[ConditionSource.QUERY, name]
            awaited = frozenset(values).difference(stated.get(name, ()))
            if not _spelled(awaited).isdisjoint(_Readings()[False, text]):
                raise _unclear("says in its body what a rule asks of its address")

    def _repeated(self, request: Request, media: Media) -> Iterator[tuple[str, str]]:
        """The parameters by which rules tell requests apart, as a body has them."""
        names, body = tuple(self._parameters), request.body
        if media is not Media.JSON:
            yield from self._members_of(request, media, names)
            return
        paths = [(name,) for name in names]
        selection = Selection(None, (), paths, nested=True, spared=self._spared)
        for leaf in selection.find(body, self._limits.json_depth).anchored:
            value = read_json_value(body[leaf.start : leaf.end])
            if value is not None:
                yield names[leaf.name], value.text

    def _first(self, branches: Sequence[Rule]) -> Rule:
        if branches:
            return branches[0]
        raise VaultError(
            Code.OPERATION_DENIED,
            f"Rules name {self._label} by what a request says ('when'), and this one fits none of "
            "them.",
        )


def _kind(headers: RawHeaders, body: bytes) -> Media:
    """As ``classify``, of a form of parts, too."""
    media = classify(headers, body)
    return Media.MULTIPART if media is Media.OTHER and is_multipart(headers) else media


def _position(condition: Condition) -> _Position:
    return condition.source, condition.name or condition.path


def _unclear(what: str) -> VaultError:
    return VaultError(
        Code.BAD_REQUEST, f"The request {what}: it cannot be told which rule it is for."
    )


_NO_LETTER: Final = re.compile(rb"[^0-9a-z]")
#: What ends a value for some application, and in header fields a part of one.
_ENDS: Final = re.compile(r"[\0;]")
_LISTS: Final = (re.compile(r"[,;]"), re.compile(r"[,;=()<>\s]"))
#: Signs that applications take away: of control, of formats, quotes, escapes.
_NO_SIGN: Final = re.compile(r"[^ -~\w]|[\"'\\]")


@lru_cache(maxsize=1024)  # only names as long as one of a rule are checked
def _field_name(name: bytes) -> bytes:
    """A header's name as CGI and its heirs read it, in which all but letters and digits is one."""
    return _NO_LETTER.sub(b"-", name.lower())


class _Readings(dict[tuple[bool, str], frozenset[object]]):
    """Possible readings of a value by applications, by value and whether it may be a list."""

    def __missing__(self, key: tuple[bool, str]) -> frozenset[object]:
        listed, text = key
        if text.isascii() and text.replace(".", "").isidentifier() and len(text) > 5:
            return frozenset((text.lower(),))  # a word longer than "false", as nearly always
        parts = {text}.union(*(cut.split(text) for cut in (_LISTS if listed else (_ENDS,))))
        self[key] = read = frozenset(one for part in parts for one in _spellings(part))
        return read


@lru_cache(maxsize=4096)
def _spelled(values: frozenset[Value]) -> frozenset[object]:
    """The values that a rule names, as ``_Readings`` compares them."""
    return frozenset(one for value in values for one in _spellings(value.text))


def _spellings(text: str) -> Iterator[object]:
    """A text whatever its letters' case and form, its number where it is one, and its segments
    where it may be a route: Yii and Drupal drop slashes round them.
    """
    spaced = " ".join(unicodedata.normalize("NFKC", text).split())
    bare = fold_all(_NO_SIGN.sub("", spaced)).strip()
    yield bare
    if _ROUTE.search(spaced):
        route = fold_all(_NO_SIGN.sub("", unquote(spaced).replace("\\", "/")))
        if segments := [one for one in route.split("/") if one.strip() not in ("", ".")]:
            yield "/".join(segments)
    with suppress(ValueError):
        yield float(_NUMBERS.get(bare, bare))


_NUMBERS: Final = {"true": "1", "false": "0"}
#: A sign of a route with several segments.
_ROUTE: Final = re.compile(r"[/\\]|%(?:2[Ff]|5[Cc])")


def _breadth(rule: Rule) -> tuple[int, int]:
    """Return the sort key of a branch among nested ones that fit the same request."""
    return -len(rule.when), sum(len(one.values) for one in rule.when)


def forked(rules: Iterable[Rule]) -> tuple[list[Rule], dict[int, Fork]]:
    """The rules for a router, one trunk for operations that share a path; the forks by trunk."""
    groups: dict[object, list[Rule]] = {}
    for rule in rules:
        shape = parse_template(rule.template).shape
        groups.setdefault((rule.endpoint.name, shape), []).append(rule)
    routed: list[Rule] = []
    forks: dict[int, Fork] = {}
    for group in groups.values():
        if not any(one.when for one in group):
            routed += group
            continue
        for methods, branches in _by_methods(group):
            operations = [one for one in branches if isinstance(one, Operation)]
            whole = all(one.methods == methods for one in branches)
            if not operations or (whole and len(branches) == 1 and not branches[0].when):
                routed += branches if whole else [replace(one, methods=methods) for one in branches]
                continue
            fork = Fork(branches)
            # A possible write counts as a write until decided; a possible search as a search.
            first = max(operations, key=_weight)
            label = common_label(branches, first)
            trunk = replace(first, label=label, methods=methods, when=(), branches=fork.branches)
            forks[id(trunk)] = fork
            routed.append(trunk)
    return routed, forks


def common_label(branches: Iterable[Rule], first: Rule) -> str:
    """The label of what stands for several rules: that of the first, or what they have in common
    where that has a query.
    """
    if "?" not in first.label:
        return first.label
    methods = dict.fromkeys(method for one in branches for method in one.methods)
    return f"{'|'.join(methods)} {first.template}"


def _weight(operation: Operation) -> tuple[bool, bool]:
    return operation.verb is not Verb.READ, operation.request.addressed


def _by_methods(rules: Sequence[Rule]) -> Iterator[tuple[tuple[str, ...], list[Rule]]]:
    """The rules that share a method, for each of the methods that have the same ones."""
    groups: dict[tuple[int, ...], list[str]] = {}
    for method in dict.fromkeys(method for rule in rules for method in rule.methods):
        sharing = tuple(at for at, rule in enumerate(rules) if method in rule.methods)
        groups.setdefault(sharing, []).append(method)
    for sharing, methods in groups.items():
        yield tuple(methods), [rules[at] for at in sharing]


def branches_of(rule: Rule) -> tuple[Rule, ...]:
    """The rules that one stands for."""
    return (isinstance(rule, Operation) and rule.branches) or (rule,)


def each_operation(operations: Iterable[Operation]) -> Iterator[Operation]:
    """Every operation on an entity: fields of GraphQL, and several objects, stand in others."""
    for operation in operations:
        inner = tuple(one.operation for one in operation.graph)
        yield from inner or operation.parts or (operation,)
