"""Values and filters of a search: in query, form, JSON body or path.

Pure functions on bytes; ``exchange.vault_search`` asks the vault.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from proxy.errors import Code, VaultError
from proxy.model.schema import Value, spell
from proxy.redactor import form
from proxy.redactor.checks import Outline
from proxy.redactor.inner_texts import JSON_TEXT, URL_VALUE, InnerText, Spelling
from proxy.redactor.json.text import is_utf8
from proxy.redactor.json.tree import read_json_value, write_json_value
from proxy.redactor.message import Media, RawHeaders, Request, classify
from proxy.redactor.named_places import spared_paths
from proxy.redactor.path import split_target
from proxy.redactor.path_template import SegmentKind, TemplateSegment, parse_template
from proxy.redactor.redact import query_members
from proxy.redactor.request_rules import Parameter, SearchRule
from proxy.redactor.rules import Operation
from proxy.redactor.search.expressions import expressed_values
from proxy.redactor.search.sought import (
    Searched,
    SoughtList,
    SoughtQuestion,
    SoughtValue,
    document_names,
    json_list,
    most_specific,
    name_start,
    order_keys,
    question_fields,
    refuse_named,
    same_parameter,
    sought_texts,
    split_values,
    undropped,
    url_list,
    url_question,
)
from proxy.redactor.select import Selection

#: What is said of a parameter that passes.
NOBODYS: Final = "nobody's data, passed on purpose"
#: Values that one search may hold.
MOST_SOUGHT = 10_000

_DOUBTFUL = re.compile(r"[/\\;\x00-\x1f\x7f]|%[0-9A-Fa-f]{2}|\A\.{1,2}\Z")


class SearchPlan:
    """Reads what the requests of one operation search by; made when rules load."""

    def __init__(self, operation: Operation, rule: SearchRule) -> None:
        self.operation = operation
        self._rule = rule
        self._query, self._form = _watched(rule.query), _watched(rule.form)
        paths = [path for path, _ in rule.values]
        spared = spared_paths(operation)
        self._selection = Selection(None, (), paths, nested=True, spared=spared)
        self._outline = Outline(None, (), paths)
        #: what finds the places in texts of JSON, by identity of the parameter
        self._documents: dict[int, tuple[Selection, Outline]] = {}
        self.in_path = bool(rule.path)  #: whether values stand in the path of an address
        self.in_body = bool(rule.form or rule.values)  #: or may stand in a body
        self._segments = parse_template(operation.template).segments if rule.path else ()
        ruled = (*rule.query.values(), *rule.form.values(), *(one for _, one in rule.values))
        self.mixes = any(one.mixed for one in ruled)  #: whether some values are sent as well
        self._drops = any(one.dropped for one in rule.query.values())

    def undropped(self, target: bytes) -> bytes:
        """A request target without the parameters that the rule drops for what they hold."""
        return undropped(self._rule.query, target) if self._drops else target

    def check_head(self, head: Request) -> None:
        """Raise the faults of a request that do not depend on its body, which follows later."""
        self.address(head.target)
        self._media(head.headers, b"?")

    def address(self, target: bytes) -> Searched:
        part = Searched()
        start, members = query_members(target, self._query)
        if self._segments:
            part.values += self._path_values(target)
        if members and self._rule.query:
            self._members((target, start), members, (self._rule.query, part))
        return part

    def body(self, headers: RawHeaders, body: bytes) -> Searched:
        part, media = Searched(), self._media(headers, body)
        limits = self.operation.endpoint.limits
        if media is Media.FORM:
            members = form.form_members(body, limits.form_fields, self._form)
            self._members((body, 0), members, (self._rule.form, part))
        elif media is Media.JSON:
            for leaf in self._selection.find(body, limits.json_depth).anchored:
                self._json_place(
                    body, (leaf.start, leaf.end), self._rule.values[leaf.name][1], part
                )
            sending = [one.parameter for one in part.lists]
            if sending := sending + [one.parameter for one in part.questions]:
                places = [(str(path[-1]), one) for path, one in self._rule.values if one in sending]
                self._refuse_sent(document_names(body), places)
            if self._outline.strayed(body):
                raise self._refusal("something else stands where the way to a named place goes on")
        return part

    def _media(self, headers: RawHeaders, body: bytes) -> Media:
        """The kind of a body, where the rule names places in bodies of that kind."""
        rule = self._rule
        media = Media.NONE
        if self.in_body:
            media = classify(headers, body)
            named = {Media.FORM: rule.form, Media.JSON: rule.values}
            disguised = media is Media.FORM and body.lstrip()[:1] in form.OTHER_KINDS
            if media is not Media.NONE and (not named.get(media) or disguised):
                raise VaultError(
                    Code.UNREADABLE_BODY,
                    f"The rule of {self.operation.label} names no place in a body of this "
                    "Content-Type.",
                )
        return media

    # ------------------------------------------------------------------ query and form

    def _members(
        self,
        content: tuple[bytes, int],
        members: Iterable[form.Member],
        into: tuple[Mapping[str, Parameter], Searched],
    ) -> None:
        """Read the members of a query or form that stands in ``content`` from this byte on."""
        data, first = content
        parameters, part = into
        lists: dict[str, SoughtList] = {}
        names: set[str] = set()
        for member in members:
            names.add(member.name)
            parameter = most_specific(parameters, member.name)
            if parameter is None:
                continue
            start, end = first + member.start, first + member.end
            text = form.read_form_value(data[start:end])
            refuse_named(parameter, text)
            if parameter.inside and text.strip():
                self._document(parameter, (data, start, end), URL_VALUE, part)
            if parameter.attributes:
                part.values += expressed_values(parameter, (data, start, end), URL_VALUE)
            begin = max(data.rfind(b"&", first, start) + 1, first)
            if parameter.vault and _asks(parameter, text):
                if any(one.parameter is parameter for one in part.questions):
                    raise self._refusal(f"the parameter '{parameter.name}' stands twice")
                texts = sought_texts(
                    parameter, split_values(parameter, (data, start, end), URL_VALUE)
                )
                part.questions.append(url_question(parameter, (first, begin, end), texts))
            if not parameter.of:
                continue
            if parameter.send is None and not parameter.split:  # as nearly always
                if (of := parameter.field_of(text)) and text not in ("", parameter.none):
                    way = parameter.name, URL_VALUE.write
                    part.values.append(SoughtValue(of, start, end, Value(text), *way))
                continue
            values = split_values(parameter, (data, start, end), URL_VALUE)
            if parameter.send is None:
                part.values += [one for one in values if one.value.text != parameter.none]
                continue
            if (earlier := lists.get(member.name)) is None:
                name = parameter.send.param or member.name
                write = partial(url_list, parameter.send, name)
                lists[member.name] = SoughtList(parameter, [(begin, end)], values, write)
            else:
                earlier.spans.append((begin - 1, end))
                earlier.values.extend(values)
        part.lists += lists.values()
        sending = [(name, one.parameter) for name, one in lists.items()] if lists else []
        sending += [(one.parameter.name, one.parameter) for one in part.questions]
        self._refuse_sent(names, sending)
        _bound(part)

    def _refuse_sent(self, names: set[str], sending: Iterable[tuple[str, Parameter]]) -> None:
        """Refuse member names that the proxy itself sends, and those easily confused with them."""
        for name, one in sending:
            sent = one.send.param if one.send is not None else ""
            if (
                sent
                and sent != name
                and any(same_parameter(sent, other) for other in names - {name})
            ):
                raise self._refusal(f"it has the parameter '{sent}', which the proxy sends itself")

    # ------------------------------------------------------------------ JSON

    def _json_place(
        self, body: bytes, span: tuple[int, int], parameter: Parameter, part: Searched
    ) -> None:
        start, end = span
        value = read_json_value(body[start:end])
        if value is None or (value.json and value.text in ("true", "false")):
            return
        if value.text == parameter.none:
            return
        refuse_named(parameter, value.text)
        if value.json and (parameter.attributes or parameter.inside):
            raise self._refusal(f"something else than a text stands at {parameter.name}")
        if parameter.inside and value.text.strip():
            self._document(parameter, (body, start + 1, end - 1), JSON_TEXT, part)
        if parameter.attributes:
            part.values += expressed_values(parameter, (body, start + 1, end - 1), JSON_TEXT)
        asks = _asks(parameter, value.text)
        if not parameter.of and not asks:
            return
        if value.json and value.text[0] in "[{":
            raise self._refusal(f"an object or array stands at {parameter.name}")
        if value.json or not parameter.split:
            values = [
                SoughtValue(of, start, end, value, parameter.name, write_json_value)
                for of in [parameter.field_of(value.text)]
                if of or asks
            ]
        else:
            values = split_values(parameter, (body, start + 1, end - 1), JSON_TEXT)
        if parameter.send is None:
            part.values += values
            return
        begin = name_start(body, start) if parameter.send.param else start
        write = partial(json_list, parameter.send)
        if asks:
            removed = start, end, b"null"
            texts = sought_texts(parameter, values)
            part.questions.append(
                SoughtQuestion(
                    parameter,
                    (begin, end),
                    texts,
                    write,
                    question_fields(parameter, texts),
                    removed,
                )
            )
        else:
            part.lists.append(SoughtList(parameter, [(begin, end)], values, write))
        _bound(part)

    def _document(
        self, parameter: Parameter, at: tuple[bytes, int, int], spelling: Spelling, part: Searched
    ) -> None:
        """Read the document of JSON that is a text."""
        inner, within = InnerText(parameter.name, at, spelling), Searched()
        if (ways := self._documents.get(id(parameter))) is None:
            paths = [path for path, _ in parameter.inside]
            ways = Selection(None, (), paths, nested=True), Outline(None, (), paths)
            self._documents[id(parameter)] = ways
        selection, outline = ways
        depth = self.operation.endpoint.limits.json_depth
        for leaf in selection.find(inner.content, depth).anchored:
            span = leaf.start, leaf.end
            self._json_place(inner.content, span, parameter.inside[leaf.name][1], within)
        if outline.strayed(inner.content):
            raise self._refusal(
                f"something else stands where the way to a place in '{parameter.name}' goes on"
            )
        for one in within.values:
            start, end, write = inner.stretch(one.start, one.end, one.write)
            part.values.append(one._replace(start=start, end=end, write=write))
        _bound(part)

    # ------------------------------------------------------------------ path

    def _path_values(self, target: bytes) -> Iterator[SoughtValue]:
        """The values in the path of a target, which must have one reading as far as they go."""
        path = split_target(target).path
        at = (
            target.find(path)
            if target.startswith(b"/")
            else target.find(b"/", target.find(b"//") + 2)
        )
        parts = path.split(b"/")[1:]
        if len(parts) > 1 and not parts[-1]:
            parts.pop()
        if len(parts) != len(self._segments):
            raise self._unread()
        for segment, part in zip(self._segments, parts, strict=True):
            at += 1
            for name, start, end in self._placeholders(segment, part):
                raw, field = part[start:end], self._rule.path.get(name)
                text = unquote_to_bytes(raw)
                if field is None:
                    continue
                if not is_utf8(text) or _DOUBTFUL.search(text.decode()):
                    raise self._unread()
                value = Value(text.decode())
                yield SoughtValue(field, at + start, at + end, value, f"path {name}", _segment)
            at += len(part)

    def _placeholders(
        self, segment: TemplateSegment, part: bytes
    ) -> Iterator[tuple[str, int, int]]:
        if segment.kind is SegmentKind.LITERAL:
            if unquote_to_bytes(part).lower() != segment.text.encode().lower():
                raise self._unread()
        elif segment.kind is SegmentKind.MIXED:
            match = segment.regex(re.IGNORECASE).fullmatch(part)
            if match is None:
                raise self._unread()
            for number, name in enumerate(segment.names, 1):
                yield name, *match.span(number)
        else:
            yield segment.names[0], 0, len(part)

    # ------------------------------------------------------------------ refusals

    def _refusal(self, what: str) -> VaultError:
        return VaultError(
            Code.BAD_REQUEST, f"The request matches {self.operation.label}, and {what}."
        )

    def _unread(self) -> VaultError:
        return self._refusal(
            "a value in its path can be read in several ways: send the path as the rule has it, "
            "escaped once"
        )


def _watched(parameters: Mapping[str, Parameter]) -> tuple[str, ...]:
    """The names that others are near misses of: a pattern that lets pass whatever it fits, such as
    ``*``, must not make ``Email`` an expected name.
    """
    loose = {name for name, one in parameters.items() if "*" in name and one.passes}
    return tuple(name for name in parameters if name not in loose)


def _asks(parameter: Parameter, text: str) -> bool:
    """Whether this text of a parameter queries the vault."""
    if parameter.vault is None or not text.strip():
        return False
    return bool(parameter.vault.fields or order_keys(parameter, text))


def _bound(part: Searched) -> None:
    if len(part.every) > MOST_SOUGHT:
        raise VaultError(
            Code.TOO_LARGE, f"The request looks for more than {MOST_SOUGHT} values: send fewer."
        )


def _segment(token: Value) -> bytes:
    return quote(token.text, safe="@!$'()*,:~").encode()


def search_in_words(rule: SearchRule) -> dict[str, dict[str, str]]:
    """The rule as ``rules explain`` shows it."""
    parts: dict[str, dict[str, str]] = {
        "query": {name: parameter_in_words(one) for name, one in rule.query.items()},
        "form": {name: parameter_in_words(one) for name, one in rule.form.items()},
        "values": {spell(path): parameter_in_words(one) for path, one in rule.values},
        "path": dict(rule.path),
    }
    return {name: part for name, part in parts.items() if part}


def parameter_in_words(parameter: Parameter) -> str:
    """Describe the treatment of a parameter."""
    words = [NOBODYS] if parameter.passes and parameter.send is None else []
    if parameter.of:
        words.append(parameter.of + ", as token and in the clear" * parameter.mixed)
    if parameter.other is not None:
        words.append(f"without '@': {parameter.other or NOBODYS}")
    if parameter.split:
        words.append(f"several, split at '{parameter.split}'")
    if (send := parameter.send) is not None:
        how = f"joined by '{send.join}'" if send.join else "repeated"
        words.append(f"sent as {send.param or parameter.name}, {how}")
        words += [f"'{send.none}' for none"] if send.none is not None else []
    if (question := parameter.vault) is not None:
        ways = [f"{name} ({how})" for name, how in question.fields.items()]
        order = f"order of {', '.join(sorted(set(question.order.values())))}"
        words.append(f"asked of the vault: {' or '.join(ways) or order}")
    if parameter.attributes:
        named = sorted(f"{'.'.join(way)} ({of})" for way, of in parameter.attributes.items())
        words.append(f"a filter of SCIM, with {', '.join(named)}")
    if parameter.inside:
        inner = (f"{spell(path)} ({parameter_in_words(one)})" for path, one in parameter.inside)
        words.append(f"a text of JSON, with {', '.join(inner)}")
    treated = "left out" if parameter.dropped else "refused"
    if parameter.refused:
        words.append(treated)
    elif parameter.unwanted:
        words.append(f"{treated} with {' or '.join(sorted(set(parameter.unwanted.values())))}")
    return ", ".join(words)
