"""Members of JSON, and arguments of GraphQL, that no rule names and in which a value is suspected.

A body is looked at in part; what no rule names is told by its path, without any value.
"""

import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Any, Final

import msgspec

from proxy.errors import Code, VaultError
from proxy.model.schema import Path, PathStep
from proxy.redactor.bodies.patch_kinds import CHANGES
from proxy.redactor.json.text import fold_name
from proxy.redactor.message import Media, Request, is_patch
from proxy.redactor.named_places import OBJECT, PASSED, Selector, named_places, steps_in
from proxy.redactor.rules import Operation, PatchKind, Restore
from proxy.redactor.suspicions import legible, suspected
from proxy.redactor.xml_documents import LONE, TEXT, read_xml_document

_PIECE: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
#: Characters of a name and of a value that are looked at.
SIGNS: Final = 200
#: Of a body: values, elements of an array, texts, and texts with one path that are looked at.
_NODES: Final = 2500
_ELEMENTS: Final = 50
_TEXTS: Final = 250
_ALIKE: Final = 5
#: Answers that are looked at, the first ones and then one in that many milliseconds.
_ANSWERS: Final = 20
_ANSWER_EVERY: Final = 10_000
#: Words of documents in many interfaces, which are nobody's names.
PUBLIC_MEMBERS: Final = frozenset(
    (
        "alternate alternative assigned attribute attributes author birth body by city "
        "code comments contacts created creator date day description display emergency "
        "first full given guarantor guardian home husband id identifier identifiers "
        "insurance item mail mobile month name names national nested nickname number of on "
        "parent payload person personal phones postal primary reason recipient reference "
        "referrer second secondary sender ssn state street surname tax tel telecom "
        "telephone text third title to value wife work year zip"
    ).split()
)

#: Events of the log, of a member of JSON, of an argument, of an order, and of any other parameter.
EVENTS: Final = {
    "body": (
        "a member of a ruled request is not named: what it holds reaches the application in the "
        "clear; name it as a field, say with object where the named ones are, or pass it under "
        "values with pass: true where it holds nobody's data"
    ),
    "argument": (
        "an argument of a GraphQL operation is not named: what it holds reaches the application in "
        "the clear; name it under arguments, by its field or with refuse, or write pass: true for "
        "its field of the schema where that holds nobody's data"
    ),
    "path": (
        "a value is suspected in the path of a ruled request: it reaches the application and its "
        "logs in the clear; name its placeholder under path, or address records by a number"
    ),
    "order": (
        "an order names a protected field, and no rule refuses it: the application answers in the "
        "order of its tokens; name the field there under refuse or drop, as entity.field where it "
        "is one of another entity"
    ),
    "page": (
        "a page shows the token of a field, which people take for a value, below a head or behind "
        "a label that its rule does not name: name it under columns, with one of a column that "
        "shows whose row it is, or give the field the token opaque"
    ),
    "answer": (
        "an answer shows the token of a field, which people take for a value, in a member, an "
        "attribute, an element or a text that its rule does not name: name the member under "
        "fields, the element under form, or give the field the token opaque"
    ),
    "export": (
        "an export shows the token of a field, which people take for a value, in a column that its "
        "rule does not name: name it under columns, with the column of the record's id"
    ),
    "": (
        "a parameter of a ruled request is not named: what it holds reaches the application in the "
        "clear; name it under query, form, multipart or csv, with pass: true where it holds "
        "nobody's data"
    ),
}


#: Between the name of a member, an attribute or an element and its text, and that text.
_QUOTE: Final = r"""(?:\\?["']|&quot;|&#3[49];)?"""
_WRITTEN: Final = (
    rf"{_QUOTE}(?:\s{{0,9}}[:=]\s{{0,9}}|[^<>]{{0,100}}?(?:>\s{{0,99}}|\b(?:content|datetime|value)=))"
    rf"""{_QUOTE}([^\s"'<>&\\][^"'<>&\\\n\r]{{0,39}})"""
)
_NEVER: Final = 2**63
#: What joins the words of a name.
_JOINT: Final = re.compile(r"[\s_-]+")


class AnswerSample:
    """A sample of the answers of an operation: the first ones, then one in some seconds. They are
    looked at for fields whose tokens people believe.

    ``heads``: those of pages that its rule does not name, with the fields that other rules mean.
    ``fields``: by all names, without joints; ``written`` finds them with what stands behind.
    """

    __slots__ = ("due", "fields", "heads", "left", "written")

    def __init__(self, operation: Operation) -> None:
        answer = operation.response
        pages = answer.restore in (Restore.HTML, Restore.ANYWHERE, Restore.CSV)
        named = {*answer.heads.values(), *answer.members.values(), *answer.columns.values()}
        self.fields = dict[str, list[str]]()
        for rule in operation.entity.fields.values():
            for word in {_JOINT.sub("", label) for label in rule.labels}:
                self.fields.setdefault(word, []).append(rule.name)
        self.heads = {
            label: rule.name
            for rule in operation.entity.fields.values()
            for label in sorted(rule.labels if pages and rule.name not in named else ())
        }
        labels = {label for rule in operation.entity.fields.values() for label in rule.labels}
        words = {r"[\s_-]?".join(map(re.escape, _JOINT.split(label))) for label in labels}
        self.written = re.compile(
            rf"(?<![^\W_])({'|'.join(sorted(words, key=len, reverse=True))}){_WRITTEN}",
            re.IGNORECASE,
        )
        self.left = _ANSWERS
        self.due = 0 if self.fields else _NEVER  #: in milliseconds since the epoch

    def fields_of(self, name: str) -> Sequence[str]:
        """The fields that are called so."""
        return self.fields.get(_JOINT.sub("", name).casefold(), ())

    def taken(self, now: int) -> None:
        """An answer is looked at; ``now``: in milliseconds since the epoch."""
        self.left -= 1
        if self.left <= 0:
            self.due = now + _ANSWER_EVERY


#: A step of a patch that is an element of an array (RFC 6901).
_ELEMENT_STEP: Final = re.compile(r"0|[1-9][0-9]*|-")


def suspected_members(
    document: Any, places: Sequence[Selector]
) -> tuple[dict[Path, list[str]], bool]:
    """The kinds of values suspected by path, where no place leads to; and whether one leads
    anywhere. Elements of an array share their path. A long document is looked at in part, what
    lies less deep first.
    """
    met: dict[Path, list[str]] = {}
    alike = Counter[Path]()
    named, texts, left = False, _TEXTS, _NODES
    nodes = deque[tuple[Path, Any, Sequence[Selector]]]([((), document, places)])
    while nodes and left and texts:
        left -= 1
        path, value, leading = nodes.popleft()
        if any(selector == (PASSED,) for selector in leading):
            continue
        if any(not selector or selector == (OBJECT,) for selector in leading):
            named = True
        elif isinstance(value, dict):
            for name, one in islice(value.items(), _NODES):
                nodes.append(((*path, name), one, list(_below(leading, name))))
        elif isinstance(value, list):
            for index, one in enumerate(value[:_ELEMENTS]):
                nodes.append(((*path, PathStep.EACH), one, list(_below(leading, index))))
        elif isinstance(value, str) and value and alike[path] < _ALIKE:
            alike[path] += 1
            texts -= 1
            name = next((step for step in reversed(path) if isinstance(step, str)), "")
            if kinds := suspected(f'"{name[:SIGNS]}": "{legible(value, SIGNS)}"'):
                met[path] = list(dict.fromkeys((*met.get(path, ()), *kinds)))
    return met, named


def selectors_of(operation: Operation) -> Iterator[Selector]:
    """The places that an operation names in what ``read_members`` gives."""
    body = operation.request.body
    for selector in named_places(operation):
        if body is not None and body.xml is not None and body.xml.nests:
            yield steps_in(tuple(step for step in selector if step is not OBJECT), text=False)
        else:
            yield selector


def read_members(operation: Operation, request: Request, media: Media) -> Any:
    """A body as the members that ``suspected_members`` looks at: JSON, or XML, a card or a calendar
    where the rule names places in it; ``None``: neither. Raises what reading them does.
    """
    body = operation.request.body
    kind = body.xml if body is not None else None
    if kind is not None and media in (Media.XML, Media.VOBJECT):
        read = read_xml_document(request.body, operation.endpoint.limits.json_depth, kind)
        document = msgspec.json.decode(read.content)
        return _without_elements(document) if kind.nests else document
    if media is not Media.JSON or is_patch(request.headers):
        return None
    return msgspec.json.decode(request.body)


def _without_elements(document: Any) -> Any:
    """A document of XML as JSON, with a text for each element that holds nothing else."""
    if isinstance(document, list):
        return [_without_elements(one) for one in document]
    if not isinstance(document, dict):
        return document
    members = {name: _without_elements(one) for name, one in document.items() if name != LONE}
    return members[TEXT] if len(members) == 1 and TEXT in members else members


class PatchedMembers:
    """Reads the changes of a patch as documents with the value of each at its path, so that a path
    that no rule names is noticed as a member is.
    """

    __slots__ = ("_changes", "_named")

    def __init__(self, operation: Operation, kind: PatchKind) -> None:
        body = operation.request.body
        objects: Path = (body.objects if body is not None else None) or ()
        paths = [] if body is None else [objects + at for at in body.fields.values()]
        self._changes = CHANGES[kind](objects, paths, _unread)
        self._named = {_names(path) for path in paths}

    def is_named(self, path: Path) -> bool:
        """Whether a path leads to a field, whatever its letter case, arrays and schema of SCIM."""
        names = _names(path)
        return any(names[:length] in self._named for length in range(1, len(names) + 1))

    def documents(self, body: bytes, depth: int) -> Iterator[Any]:
        """A document for each change with a value. Raises ``VaultError`` for a malformed patch."""
        for change in islice(self._changes(body, depth), _ELEMENTS):
            start, end = change.span
            if start == end:
                continue
            document = msgspec.json.decode(body[start:end])
            for step in reversed(change.steps):
                document = [document] if _ELEMENT_STEP.fullmatch(step) else {step: document}
            yield document


def _names(path: Path) -> tuple[str, ...]:
    names = (step for step in path if isinstance(step, str))
    return tuple(fold_name(name) for name in names if not name.lower().startswith("urn:"))


def _unread(text: str, code: Code = Code.VALUE_UNFIT) -> VaultError:
    return VaultError(code, text)


def _below(places: Sequence[Selector], step: str | int) -> Iterator[Selector]:
    """The rest of places beneath a member or an element."""
    for selector in places:
        if not selector:
            continue
        first, rest = selector[0], selector[1:]
        if first is PathStep.DEEP:
            yield selector
            yield from _below((rest,), step)
        elif first is OBJECT and isinstance(step, int):
            yield selector
        elif first is OBJECT:
            yield from _below((rest,), step)
        elif first == step or isinstance(first, PathStep):
            yield rest


def suspected_arguments(
    texts: Iterable[tuple[tuple[str, ...], str]], is_field: Callable[[str], bool]
) -> dict[Path, list[str]]:
    """The kinds of values suspected in texts of arguments, by their ways; also those without any of
    which a step holds the name of a field: ``byEmail``, ``emails``.
    """
    met: dict[Path, list[str]] = {}
    for path, text in islice(texts, _TEXTS):
        kinds = suspected(f'"{path[-1][:SIGNS]}": "{text[:SIGNS]}"')
        if kinds or any(map(is_field, _pieces(path))):
            met[path] = list(dict.fromkeys((*met.get(path, ()), *kinds)))
    return met


def _pieces(path: Iterable[str]) -> Iterator[str]:
    """The words of names, and each with the one behind it, since fields have names of two."""
    for step in path:
        words = _PIECE.findall(step[:SIGNS])
        yield from (word.removesuffix("s") for word in words)
        yield from (f"{word}{after.removesuffix('s')}" for word, after in pairwise(words))
