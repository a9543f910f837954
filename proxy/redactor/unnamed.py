"""A body on a matched request whose rule names no body: a DELETE or a search that carries one all the same.

The rule says nothing about it, yet the entity says what is personal. So a body without any of the entity's fields passes,
and one that carries a field, wherever it stands, is refused: nobody said that it may leave, and nobody swapped it.
"""

from collections.abc import Iterable
from typing import Final

from proxy.errors import Code, VaultError
from proxy.model.path import Path, Step
from proxy.redactor.codecs import form
from proxy.redactor.codecs.media import Media, classify
from proxy.redactor.message import RawHeaders
from proxy.redactor.nested import pieces
from proxy.redactor.rules import Operation
from proxy.redactor.selectors import Selection

#: What holds no value of anyone.
_NOTHING: Final = frozenset({b"null", b"true", b"false", b'""', b"[]", b"{}"})


class Unnamed:
    """Looks for an entity's fields in bodies that its operation says nothing about. Made when rules load."""

    __slots__ = ("_anywhere", "_names", "_operation")

    def __init__(self, operation: Operation) -> None:
        self._operation = operation
        places = [field.at for field in operation.entity.fields.values()]
        self._anywhere = Selection(None, (), [(Step.DEEP, *place) for place in places], nested=True)
        self._names = {form.loosely(name) for name in _last_names(places)}

    def refuse(self, headers: RawHeaders, body: bytes) -> None:
        """Raise ``VaultError`` unless the body is JSON or a form that carries no field of the entity.

        UNREADABLE_BODY where it does or is of another kind; MALFORMED_JSON, AMBIGUOUS_JSON and TOO_LARGE as for a body that is named.
        """
        media = self.refuse_kind(headers, body)
        if media is Media.NONE:
            return
        limits = self._operation.endpoint.limits
        if media is Media.JSON:
            found = self._anywhere.find(body, limits.json_depth).anchored
            carries = any(body[leaf.start : leaf.end] not in _NOTHING for leaf in found)
        else:
            members = form.members(body, limits.form_fields)
            carries = body.lstrip()[:1] in form.OTHER_KINDS or any(self._is_field(member.name) for member in members)
        if carries:
            raise self._refusal(f"carries a field of {self._operation.entity.name} in its body")

    def refuse_kind(self, headers: RawHeaders, body: bytes) -> Media:
        """The kind of a body. Raises ``VaultError`` (UNREADABLE_BODY) where it can be looked for in none of that kind."""
        media = classify(headers, body)
        if media is Media.OTHER:
            raise self._refusal("carries a body that is neither JSON nor a form")
        return media

    def _is_field(self, member: str) -> bool:
        return any(form.loosely(piece) in self._names for piece in (member, *pieces(member)))

    def _refusal(self, what: str) -> VaultError:
        return VaultError(
            Code.UNREADABLE_BODY,
            f"The request matches {self._operation.label}, whose rule names no body, and {what}: "
            "send it without, or say with request: in the rule where the fields stand.",
        )


def _last_names(places: Iterable[Path]) -> Iterable[str]:
    """The last name on the way to each place: a form member is called so, or ends so in brackets."""
    for place in places:
        names = [step for step in place if isinstance(step, str)]
        yield from names[-1:]
