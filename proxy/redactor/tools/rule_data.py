"""Rule sets, their tests and their differences as JSON-ready data, for commands and the console."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from proxy.redactor.forks import each_operation
from proxy.redactor.load.shown_names import is_believed
from proxy.redactor.path_template import SegmentKind, parse_template
from proxy.redactor.rules import Entity, PassRule, Restore, RuleSet, Verb
from proxy.redactor.tools.difference import RuleChange, RuleEffect
from proxy.redactor.validation import numbers_and_pattern, unchecked
from proxy.tokenization import SHAPES
from proxy.tokenization.base import Resolution


def rules_data(rules: RuleSet) -> dict[str, Any]:
    """Return the content of a rule set with its warnings and hints."""
    hints = [unchecked(one.name, one.fields.values()) for one in rules.entities]
    hints += [numbers_and_pattern(one.name, one.fields.values()) for one in rules.entities]
    hints += map(_lower_cased, rules.entities)
    hints += map(_not_addresses, rules.entities)
    hints += [_versions(one, rules) for one in rules.entities]
    hints += [_believable(one, rules) for one in rules.entities]
    hints += [_dates_in_lists(one, rules) for one in rules.entities]
    hints += [_sent_ids(rules), _any_redirect(rules), _numbers_of_calls(rules)]
    hints += [_search_boxes(rules), _any_path(rules), _unnamed_start(rules), _file_names(rules)]
    return {
        "ok": True,
        "version": rules.version,
        "endpoints": [endpoint.name for endpoint in rules.endpoints],
        "operations": [operation.label for operation in rules.operations],
        "tests": len(rules.tests),
        "warnings": list(rules.warnings),
        "hints": list(filter(None, hints)),
    }


#: Paths and parameters of applications that keep drafts, languages or revisions of a record.
_VERSIONED: Final = re.compile(
    r"/(?:publish|unpublish|discard|discard-draft|drafts|revisions|versions)(?=/|$)"
)
_CHOOSING: Final = frozenset({"status", "locale", "draft", "version", "publicationState"})


def version_signs(paths: Iterable[str], parameters: Iterable[str]) -> list[str]:
    """The parts of paths and the parameters by which applications tell versions of a record."""
    parts = {match[0] for path in paths for match in _VERSIONED.finditer(path)}
    return sorted(parts | {f"?{name}=" for name in parameters if name in _CHOOSING})


def _versions(entity: Entity, rules: RuleSet) -> str:
    """A hint about rules of an entity that look as if its records had versions; empty for none."""
    own = [
        one
        for one in each_operation(rules.operations)
        if not entity.keeps and one.entity.name == entity.name
    ]
    paths = [one.template for one in own]
    signs = version_signs(paths, [name for one in own for name in one.request.passed.query])
    return (
        f"{entity.name}: {', '.join(signs)} in its rules; if the application keeps several "
        "versions of a record under one id (drafts, languages, revisions), say versions: keep at "
        "the entity, else an update ends the values of the others"
        if signs
        else ""
    )


#: Names of fields that applications often store in lower case.
_LOWER_CASED: Final = re.compile(
    r"(?i)(?:user|login|account|screen|nick)_?(?:name|id)?|handle|slug"
)


def _lower_cased(entity: Entity) -> str:
    """A hint about tokens with capitals in fields that applications lower-case; empty for none."""
    fields = entity.fields.values()
    names = [
        one.name
        for one in fields
        if _LOWER_CASED.fullmatch(one.name) and SHAPES[one.shape.name].capitals
    ]
    return (
        f"{', '.join(names)} of {entity.name}: many applications store such names in lower case, "
        "and a token with capitals is not restored then; write token: lower"
        if names
        else ""
    )


#: Names of fields that hold addresses of the web, and of the shape whose tokens can be one.
_ADDRESSES: Final = re.compile(r"(?i)(?:\w*_)?(?:url|uri|website|homepage|web_?site)")


def _not_addresses(entity: Entity) -> str:
    """A hint about tokens that applications complete to an address; empty for none."""
    names = [
        one.name
        for one in entity.fields.values()
        if _ADDRESSES.fullmatch(one.name)
        and not SHAPES[one.shape.name].looks_like
        and one.shape.resolution is not Resolution.CLEAR
    ]
    return (
        f"{', '.join(names)} of {entity.name}: many applications put http:// before what is no "
        "web address, and each form that is saved adds one more to the value then; write token: "
        '{shape: template, template: "https://[a-z0-9]{22}.example/"}'
        if names
        else ""
    )


def _numbers_of_calls(rules: RuleSet) -> str:
    """A hint about ids that are those of calls of JSON-RPC; empty for none."""
    labels = dict.fromkeys(
        one.label
        for call in rules.operations
        if any(condition.path == ("method",) for condition in call.when)
        for one in call.parts or (call,)
        if one.verb is Verb.CREATE
        if (ident := one.response.id) is not None and ident.path == ("id",)
        if (body := one.response.body) is None or not body.objects
    )
    return (
        f"{', '.join(labels)}: in JSON-RPC the id at the top of an answer is the number of the "
        "call, and creates with one number would be taken for one record, whose values replace "
        "each other; write the place of the record's own id, or id: $.result.id where no answer "
        "has one"
        if labels
        else ""
    )


#: Answers that show tokens without a record.
_PAGES: Final = (Restore.HTML, Restore.TEXT, Restore.ANYWHERE)


def _believable(entity: Entity, rules: RuleSet) -> str:
    """A hint about numbers of unknown records in pages and exports; empty for none."""
    names = [
        one.name
        for one in entity.fields.values()
        if one.shape.resolution is Resolution.INDEXED
        and SHAPES[one.shape.name].looks_like == "number"
    ]
    labels = dict[str, None]()
    fields = set[str]()
    for one in each_operation(rules.operations):
        answer = one.response
        columns = {*answer.columns.values()}
        if answer.restore in _PAGES:
            columns |= answer.only or {*names}
        if one.entity.name == entity.name and not columns.isdisjoint(names):
            labels[one.label] = None
            fields |= columns.intersection(names)
    return (
        f"{', '.join(sorted(fields))} of {entity.name}: {', '.join(labels)} shows the token of a "
        "record that the vault does not have (deleted there, or not in its backup) as a number "
        "that people believe; write token: opaque where the application's column is text"
        if labels
        else ""
    )


def _dates_in_lists(entity: Entity, rules: RuleSet) -> str:
    """A hint about pages and exports that show no small token, as their rules say; empty for
    none.
    """
    small = {one.name for one in entity.fields.values() if is_believed(one)}
    labels, fields = dict[str, None](), set[str]()
    for one in each_operation(rules.operations):
        answer = one.response
        named = answer.only | {*answer.columns.values()}
        exports = answer.restore is Restore.CSV or (answer.restore in _PAGES and answer.only)
        if one.entity.name == entity.name and exports and not small <= named:
            labels[one.label] = None
            fields |= small - named
    names = sorted(fields)
    heads = ", ".join(f"{one.replace('_', ' ').capitalize()}: {one}" for one in names)
    return (
        f"{', '.join(names)} of {entity.name}: by its rule the answer of {', '.join(labels)} has "
        "none; if it has, as a list or an export may, people believe the token there, and a form "
        f"saves it; name the head under columns, as in columns: {{{heads}}}, or the element under "
        "form, with one that shows whose it is (of an export, id: column ID); or write token: "
        "opaque where the application's column is text"
        if labels
        else ""
    )


def _sent_ids(rules: RuleSet) -> str:
    """A hint about the parameters in which applications are sent ids; empty for none."""
    searches = [one.request.search for one in each_operation(rules.operations)]
    sent = sorted(
        {
            parameter.send.param
            for one in searches
            if one is not None
            for parameter in (*one.query.values(), *one.form.values(), *dict(one.values).values())
            if parameter.vault is not None and parameter.send is not None
        }
    )
    return (
        f"what the vault finds is sent as {', '.join(sent)}: an application that does not know it "
        "ignores it, and shows every record; search for somebody once to see that it does"
        if sent
        else ""
    )


#: How applications call one box that looks in several columns.
_BOXES: Final = re.compile(
    r"(?i)(?:.*[\[._-])?(?:q|s|query|search(?:_?(?:term|text|query))?|terms?|keywords?|find|contains)\]?"
)


def _search_boxes(rules: RuleSet) -> str:
    """A hint about boxes that look in protected columns alone; empty for none."""
    boxes = dict[str, None]()
    for one in each_operation(rules.operations):
        search = one.request.search
        parts = (*search.query.values(), *search.form.values()) if search is not None else ()
        for part in parts:
            name = part.name.rpartition(".")[2]
            fields = [*part.vault_fields, *filter(None, (part.of, part.other))]
            if fields and part.other != "" and _BOXES.fullmatch(name):
                others = [field for field in one.entity.fields if field not in fields]
                left = f" (not in {', '.join(others)})" if others else ""
                boxes[f"{name} of {one.label} looks in {', '.join(fields)}{left}"] = None
    return (
        f"{'; '.join(boxes)}: a box that looks in other columns of the application as well, such "
        "as a city or a company, finds nobody by them any more; name all fields that it looks in, "
        "or give the other columns a parameter of their own, with pass: true"
        if boxes
        else ""
    )


def _any_redirect(rules: RuleSet) -> str:
    """A hint about updates that any redirect confirms; empty for none."""
    labels = [
        one.label
        for one in each_operation(rules.operations)
        if one.verb is Verb.UPDATE and any(300 <= status < 400 for status in one.response.success)
    ]
    return (
        f"any redirect confirms {', '.join(dict.fromkeys(labels))}, one to a login page as well: "
        "whoever is not signed in changes the vault's record; write where a success leads, "
        'success: {status: 302, location: "/path/{id}"}'
        if labels
        else ""
    )


def _any_path(rules: RuleSet) -> str:
    """A hint about reads of many paths that name no parameter; empty for none."""
    labels = [
        one.label
        for one in each_operation(rules.operations)
        if one.verb is Verb.READ and "*}" in one.label and one.request.search is None
    ]
    return (
        f"{', '.join(dict.fromkeys(labels))}: a page among these that searches gets what is "
        "searched for in the clear, and finds nothing; name its parameters under query, or refuse "
        'them, as in query: {"*name*": {refuse: always}}'
        if labels
        else ""
    )


def _unnamed_start(rules: RuleSet) -> str:
    """A hint about paths of which what is below is named, and they themselves are not."""
    named = {(one.endpoint.name, parse_template(one.template).shape) for one in rules.rules}
    labels = [
        f"{'|'.join(one.methods)} {one.template[: one.template.rindex('{')]}"
        for one in rules.operations
        if (shape := parse_template(one.template).shape)[1:] and shape[-1][0] is SegmentKind.REST
        if one.verb is Verb.READ and (one.endpoint.name, shape[:-1]) not in named
    ]
    return (
        f"{', '.join(dict.fromkeys(labels))}: no rule names these paths, as a placeholder such as "
        "{page*} takes at least one segment; write an operation of its own where such a page is"
        if labels
        else ""
    )


#: How paths are called that take files.
_UPLOADS: Final = re.compile(
    r"(?i)/(?:[\w-]*[_-])?(?:uploads?|files?|attachments?|documents?|scans?|photos?|pictures?|images?"
    r"|avatars?|media|papers?|import)(?:/\{[^{}]*\})?/?\Z"
)


def _takes_files(rule: PassRule) -> bool:
    """Whether a request that passes is an upload, by its path or by what it is told from."""
    types = [value.text for one in rule.when if one.source == "type" for value in one.values]
    return any("multipart" in one for one in types) or _UPLOADS.search(rule.template) is not None


def _file_names(rules: RuleSet) -> str:
    """A hint about uploads whose files pass, with the names that people gave them."""
    uploads = [one for one in each_operation(rules.operations) if one.request.files == "pass"]
    passed = [one for one in rules.passed if "GET" not in one.methods and _takes_files(one)]
    labels = dict.fromkeys([*(one.label for one in uploads), *(one.label for one in passed)])
    return (
        f"{', '.join(labels)}: files pass with their names, and people name files after people; "
        "write multipart: {scan: {filename: FIELD}} for each part that is a file, in place of "
        "files: pass"
        if labels
        else ""
    )


def results_data(results: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the results of a rule set's tests: by name, the problems."""
    return {
        "ok": not any(results.values()),
        "tests": [{"name": name, "problems": list(lines)} for name, lines in results.items()],
    }


def changes_data(changes: Iterable[RuleChange]) -> dict[str, Any]:
    """Return the changes by effect; ``ok`` if no value loses protection."""
    several = list(changes)
    data = {
        str(effect): [
            {"subject": one.subject, "text": one.text} for one in several if one.effect is effect
        ]
        for effect in RuleEffect
    }
    return {"ok": not data[str(RuleEffect.LOSES)], **data}
