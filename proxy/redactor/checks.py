"""The containers on the way to a rule's places, and whether a request keeps to them.

A rule that names ``$.address.street`` finds nothing in ``{"address": "Main Street 1"}``, and a
lenient application may well accept it. So if a path continues and the document does not, or has
another kind of container there, a part of the request was not understood. Empty values (null, an
empty text, array or object) and a bare true or false may stand anywhere.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from proxy.errors import Code, Detail, VaultError
from proxy.model.schema import Path, PathStep, Value
from proxy.redactor import form
from proxy.redactor.ambiguity import selector_of
from proxy.redactor.json.nested import pieces
from proxy.redactor.json.text import replace_surrogates
from proxy.redactor.json.walk import locate
from proxy.redactor.message import Media, RawHeaders, classify, is_patch
from proxy.redactor.named_places import document_path, spared_paths
from proxy.redactor.rules import Operation, PatchKind
from proxy.redactor.select import Selection
from proxy.redactor.words import DocumentKind

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])
_NOTHING = (b"null", b"true", b"false", b'""')
_WHITE = b" \t\n\r"


class _Node:
    """A place on the way, with the next steps of its paths."""

    __slots__ = ("each", "end", "indexes", "item", "names")

    def __init__(self) -> None:
        self.end = False  #: a protected place: whatever stands here is swapped as a whole
        self.names: dict[str, _Node] = {}
        self.indexes: dict[int, _Node] = {}
        self.each: _Node | None = None
        #: objects are selected here, alone or in arrays, and this is the way on in each
        self.item: _Node | None = None

    def lay(self, path: Path) -> "_Node | None":
        """The node at the end of a path; ``None`` after a descent, which expects nothing."""
        node = self
        for step in path:
            if step is PathStep.DEEP:
                return None
            if isinstance(step, str):
                node = node.names.setdefault(step, _Node())
            elif isinstance(step, int):
                node = node.indexes.setdefault(step, _Node())
            else:
                node.each = node = node.each or _Node()
        return node

    @property
    def expects(self) -> bool:
        return bool(self.names or self.indexes or self.each or self.item)

    @property
    def goes_on(self) -> bool:
        """Whether something lies behind the members of an object here."""
        return bool(self.each) or any(not child.end for child in self.names.values())


class Outline:
    """Made when rules load; asked for every request."""

    def __init__(
        self, objects: Path | None, leaves: Iterable[Path], anchored: Iterable[Path]
    ) -> None:
        self._root = _Node()
        for path in anchored:
            _end(self._root, path)
        selected = self._root.lay(objects) if objects is not None else None
        if selected is not None:
            selected.item = selected.item or _Node()
            for path in leaves:
                _end(selected.item, path)
        item = self._root.item
        #: A document that is an object is a selected one, and its members are the places
        #: themselves: none can lie behind another.
        self.flat = item is not None and not (self._root.end or self._root.goes_on or item.goes_on)

    def strayed(self, body: bytes) -> str:
        """Return where a valid JSON document leaves the way to a protected place; empty: nowhere.

        A JSON Pointer with ``*`` for names outside the rule, or ``the body``.
        """
        if self.flat and body.startswith(b"{"):
            return ""
        try:
            steps = _strayed([self._root], body.strip(_WHITE))
        except msgspec.DecodeError:  # half of a surrogate pair, somewhere
            steps = _strayed([self._root], replace_surrogates(body).strip(_WHITE))
        return "" if steps is None else steps or "the body"


def _end(start: _Node, path: Path) -> None:
    node = start.lay(path)
    if node is not None:
        node.end = True


def _strayed(nodes: Sequence[_Node], raw: bytes | msgspec.Raw) -> str | None:
    """The steps from here to a deviation; ``None``: there is none."""
    if not any(node.expects for node in nodes) or any(node.end for node in nodes):
        return None
    kind = memoryview(raw)[0]
    if kind == 0x7B:  # {
        return _object([*nodes, *(node.item for node in nodes if node.item)], raw)
    if kind == 0x5B:  # [
        return _array(nodes, raw)
    return None if bytes(raw) in _NOTHING else ""


def _object(nodes: Sequence[_Node], raw: bytes | msgspec.Raw) -> str | None:
    every = [node.each for node in nodes if node.each]
    leads = bool(every) or any(node.names or node.item for node in nodes)
    if leads and not any(node.goes_on for node in nodes):
        return None
    members = _MEMBERS.decode(raw)
    if not leads:
        return "" if members else None
    further = {
        name
        for node in nodes
        for name, child in node.names.items()
        if not child.end and name in members
    }
    for name in members if every else further:
        children = [node.names[name] for node in nodes if name in node.names]
        steps = _strayed([*every, *children], members[name])
        if steps is not None:
            return f"/{name.replace('~', '~0').replace('/', '~1') if children else '*'}{steps}"
    return None


def _array(nodes: Sequence[_Node], raw: bytes | msgspec.Raw) -> str | None:
    every = [one for node in nodes for one in (node.each, node if node.item else None) if one]
    if any(following.end for following in every):
        return None
    elements = _ELEMENTS.decode(raw)
    indexed = [node.indexes for node in nodes if node.indexes]
    if not every and not indexed:
        return "" if elements else None
    for at, element in enumerate(elements):
        steps = _strayed([*every, *(places[at] for places in indexed if at in places)], element)
        if steps is not None:
            return f"/{at}{steps}"
    return None


# A body on a matched request whose rule names no body, such as that of a DELETE or a search.
#
# The rule says nothing about it, yet the entity says what is personal. So a body without any of the
# entity's fields passes, and one with a field, wherever it stands, is refused: no rule released or
# redacted it.

#: What holds no value of anyone.
_NO_FIELDS: Final = frozenset({b"null", b"true", b"false", b'""', b"[]", b"{}"})
#: The head of an envelope of SOAP, in the JSON that XML is read as.
_HEAD: Final = ("Envelope", PathStep.EACH, "Header")


class Unnamed:
    """Looks for an entity's fields in bodies that its operation says nothing about.

    Made when rules load.
    """

    __slots__ = ("_anywhere", "_names", "_operation", "_xml")

    def __init__(self, operation: Operation) -> None:
        self._operation = operation
        fields = [field.at for field in operation.entity.fields.values()]
        # Applications that put query and body together take a parameter out of either.
        named = [tuple(filter(None, pieces(name))) for name in _parameters(operation)]
        places = list(dict.fromkeys((*fields, *filter(None, named))))
        body = operation.request.body
        self._xml = None if body is None else body.xml
        self._anywhere = Selection(
            *(None, (), [document_path((PathStep.DEEP, *path), self._xml) for path in places]),
            nested=True,
            spared=spared_paths(operation),
        )
        names = ([step for step in path if isinstance(step, str)] for path in places)
        #: of each path the last: a form member is called so, or ends so in brackets
        self._names = {form.loose_form_name(name) for some in names for name in some[-1:]}

    def refuse(self, headers: RawHeaders, body: bytes) -> None:
        """Raise ``VaultError`` unless the body is JSON or a form that carries no field of the
        entity.

        UNREADABLE_BODY where it does or is of another kind; MALFORMED_JSON, AMBIGUOUS_JSON and
        TOO_LARGE as for a body that is named.
        """
        media = self.refuse_kind(headers, body)
        if media is Media.NONE:
            return
        limits = self._operation.endpoint.limits
        if media is Media.JSON:
            self.refuse_document(body, limits.json_depth)
            return
        members = form.form_members(body, limits.form_fields)
        if body.lstrip()[:1] in form.OTHER_KINDS or any(
            self._is_field(member.name) for member in members
        ):
            raise self._carries()

    def refuse_document(self, text: bytes, depth: int) -> None:
        """Do so with a document of JSON, or one of XML as JSON. The head of an envelope of SOAP
        passes: it is of transport, and names users of its own.
        """
        heads = locate(_HEAD, text, depth) if self._xml is DocumentKind.ELEMENTS else ()
        for leaf in self._anywhere.find(text, depth).anchored:
            if text[leaf.start : leaf.end] not in _NO_FIELDS and not any(
                start <= leaf.start < end for start, end in heads
            ):
                raise self._carries()

    def _carries(self) -> VaultError:
        entity = self._operation.entity.name
        return self._refusal(f"carries a field of {entity}, or a parameter, in its body")

    def refuse_kind(self, headers: RawHeaders, body: bytes) -> Media:
        """The kind of a body.

        Raises ``VaultError`` (UNREADABLE_BODY) where it can be looked for in none of that kind.
        """
        media = classify(headers, body)
        if media in (Media.OTHER, Media.XML, Media.VOBJECT):
            raise self._refusal("carries a body that is neither JSON nor a form")
        return media

    def _is_field(self, member: str) -> bool:
        return any(
            form.loose_form_name(piece) in self._names for piece in (member, *pieces(member))
        )

    def _refusal(self, what: str) -> VaultError:
        return VaultError(
            Code.UNREADABLE_BODY,
            f"The request matches {self._operation.label}, whose rule names no body, and {what}: "
            "send it without, or say with request: in the rule where the fields stand.",
        )


class UnnamedInMessage(Unnamed):
    """Looks for fields in messages of a WebSocket, but where the rule names or passes them."""

    __slots__ = ("_passed", "_words")

    def __init__(self, operation: Operation) -> None:
        super().__init__(operation)
        self._passed = Selection(None, (), operation.request.passed.values)
        steps = (step for one in operation.entity.fields.values() for step in (one.name, *one.at))
        self._words = {step.lower() for step in steps if isinstance(step, str)}

    def refuse_beside(self, text: bytes, named: Iterable[tuple[int, int]]) -> None:
        """Raise ``VaultError`` as ``refuse``, with the place of the field. ``named``: spans."""
        depth = self._operation.endpoint.limits.json_depth
        passed = self._passed.find(text, depth).anchored
        rest, at = b"", 0
        for start, end in sorted((*named, *((leaf.start, leaf.end) for leaf in passed))):
            if start >= at:
                rest += text[at:start] + b"null"
            at = max(at, end)
        rest += text[at:]
        for leaf in self._anywhere.find(rest, depth).anchored:
            if rest[leaf.start : leaf.end] not in _NO_FIELDS:
                raise self._refused_at(selector_of(rest, leaf.start, self._words))

    def _refused_at(self, selector: str) -> VaultError:
        entity = self._operation.entity.name
        return VaultError(
            Code.OPERATION_DENIED,
            f"A message of {self._operation.label} carries a field of {entity}, or a parameter, at "
            f"{selector}, where its rule names none: send it without, name it under fields, or "
            f"write values: {{{selector}: {{pass: true}}}} where it holds nobody's data.",
            (Detail(selector, "holds a field that no rule names there"),),
        )


def _parameters(operation: Operation) -> Iterator[str]:
    """The names of query parameters that hold values, or may not be answered."""
    if (search := operation.request.search) is not None:
        yield from (name for name, one in search.query.items() if not one.passes)


_OPERATION: Final = re.compile(rb'"op(?:eration)?s?"\s*:', re.IGNORECASE)
_POINTING: Final = re.compile(rb'"(?:path|from|value)"\s*:', re.IGNORECASE)


def refuse_patch(
    operation: Operation, headers: RawHeaders, body: bytes, *, understood: bool
) -> None:
    """Raise ``VaultError(UNREADABLE_BODY)`` when the JSON body of a matched request is a patch
    document and the rule says nothing of such: the path next to a value names its field, so every
    value would pass.

    By its type it always is. ``understood``: the rule found protected places in it; where it found
    none, a body that looks like a list of operations is taken for one as well, because applications
    accept it as plain JSON.
    """
    if operation.request.patch not in (None, PatchKind.MERGE):
        return
    if is_patch(headers) or (not understood and _OPERATION.search(body) and _POINTING.search(body)):
        raise VaultError(
            Code.UNREADABLE_BODY,
            f"The request matches {operation.label} and carries a patch document (a list of "
            "operations), of which its rule says nothing: send the changed members themselves, or "
            "write request: {patch: json} or {patch: scim} in the rule.",
        )


# Fields that a request clears, by the values on the way to their places.
#
# ``$.tags[*]`` selects nothing in ``{"tags": []}``, and ``$.address.street`` nothing in
# ``{"address": null}``. Such an update differs from one that omits them: the application drops the
# values, and the vault would keep invisible ones. An object without members says nothing (RFC
# 7396), nor does a list that ends before its index.

_NO_ELEMENTS: Final = re.compile(rb"\[[ \t\n\r]*\]\Z")
_EMPTY: Final = Value("")


class Emptied:
    """Made when rules load; asked for each object of an update."""

    def __init__(self, fields: Sequence[str], paths: Sequence[Path]) -> None:
        """``fields`` by their ``paths``, which all start where the object does."""
        self._ways: list[tuple[str, bytes, list[tuple[Path, bool]]]] = []
        for name, path in zip(fields, paths, strict=True):
            way = _way(path)
            first = path[0]
            if way:
                self._ways.append(
                    (
                        name,
                        first.encode("utf-8", "surrogatepass") if isinstance(first, str) else b"",
                        way,
                    )
                )

    def __bool__(self) -> bool:
        return bool(self._ways)

    def among(self, present: Collection[str], body: bytes, depth: int) -> dict[str, Value | None]:
        """The fields that are not ``present`` and hold nothing: ``None`` by a null, an empty value
        by an empty array or text.

        ``body`` is a valid document. Raises ``VaultError`` as ``Selection.find``.
        """
        emptied: dict[str, Value | None] = {}
        for name, first, way in self._ways:
            if name in present or (first not in body and b"\\" not in body):
                continue
            for path, listed in way:
                stands = [body[start:end] for start, end in locate(path, body, depth)]
                if b"null" in stands:
                    emptied[name] = None
                elif b'""' in stands or (listed and any(map(_NO_ELEMENTS.match, stands))):
                    emptied[name] = _EMPTY
        return emptied


def _way(path: Path) -> list[tuple[Path, bool]]:
    """The places before the last one, as far as they are known; whether an array is expected."""
    definite = path.index(PathStep.DEEP) if PathStep.DEEP in path else len(path) - 1
    return [
        (path[:at], path[at] is PathStep.EACH or path[at] is PathStep.DEEP)
        for at in range(1, definite + 1)
    ]
