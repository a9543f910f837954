"""Views: by its roles, a caller sees clear values, masks or tokens.

A view decides what is shown, never what is stored: masks are computed in the answer. The first view
that names one of a caller's roles counts; a caller without one sees tokens.
"""

import enum
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final

from proxy.errors import Code, VaultError
from proxy.model.schema import Path, PathStep, Value
from proxy.tokenization.mask import Mask

#: Roles of one caller; more are not read.
_MOST_ROLES: Final = 1000


class Level(enum.StrEnum):
    """Visible form of a value."""

    CLEAR = "clear"
    MASK = "mask"
    TOKEN = "token"


class CallerSource(enum.StrEnum):
    """Proof of a caller's identity."""

    JWT = "jwt"
    INTROSPECTION = "introspection"
    CERTIFICATE = "certificate"


@dataclass(frozen=True, slots=True)
class CallerRule:
    """Source of the roles of an endpoint's callers."""

    source: CallerSource
    url: str = ""  #: of the issuer's keys, or of its introspection
    roles: Path = ("roles",)  #: where the claims of a token hold the roles
    part: tuple[str, str] = ("subject", "organizationalUnitName")  #: of a certificate, likewise
    issuer: str | None = None  #: ``None``: any
    audience: frozenset[str] = frozenset()  #: empty: any
    credentials: str | None = field(default=None, repr=False)  #: ``client id:secret`` at the issuer


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """Visibility for callers of some roles; unnamed entities and fields are tokens."""

    name: str  #: its roles, as the audit log tells them
    who: frozenset[str]
    levels: Mapping[str, Mapping[str, Level]]  #: by entity and field
    whole: bool = False  #: every field of every entity is clear

    def shows(self, entity: str) -> bool:
        """Whether anything but tokens is shown of an entity."""
        return any(level is not Level.TOKEN for level in self.levels.get(entity, {}).values())


#: Callers whom no view fits, and callers outside the country.
UNKNOWN_VIEW: Final = View("none", frozenset(), {})
OUTSIDE_VIEW: Final = View("outside", frozenset(), {})


def outside_write() -> VaultError:
    """The refusal of a write by a caller outside the country."""
    return VaultError(
        Code.OUTSIDE_COUNTRY,
        "From outside the country, requests that a rule names may only read; what they read stays "
        "replaced by tokens.",
    )


def view_of(views: Sequence[View], roles: AbstractSet[str]) -> View:
    """The first view that names one of these roles."""
    for view in views:
        if not view.who.isdisjoint(roles):
            return view
    return UNKNOWN_VIEW


class FieldView:
    """A view of the fields of one entity."""

    __slots__ = ("clear", "hidden", "masks", "name", "outside")

    def __init__(self, view: View, entity: str, masks: Mapping[str, Mask]) -> None:
        levels = view.levels.get(entity, {})
        self.name = view.name
        self.outside = view is OUTSIDE_VIEW
        #: by field, those that are shown masked
        self.masks = {one: masks[one] for one in masks if levels.get(one) is Level.MASK}
        #: fields that stay tokens
        self.hidden = frozenset(one for one in masks if levels.get(one, Level.TOKEN) is Level.TOKEN)
        #: whether every value is shown as it is
        self.clear = not (self.hidden or self.masks)

    def covers(self, name: str) -> bool:
        """Whether the values of a field are not shown as they are."""
        return name in self.hidden or name in self.masks

    def visible(self, name: str, value: Value) -> Value | None:
        """Return the visible form of a value of that field; ``None``: its token."""
        mask = self.masks.get(name)
        if mask is not None:
            return Value(mask.of(value.text)) if value.text else value
        return None if name in self.hidden else value


def roles_in(claims: Mapping[str, Any], path: Path) -> frozenset[str]:
    """The roles that claims hold at that place: texts of a list, or the words of one text."""
    nodes: list[Any] = [claims]
    for step in path:
        nodes = [inner for node in nodes for inner in _inner(node, step)]
    roles: list[str] = []
    for node in nodes:
        roles += node.split() if isinstance(node, str) else node if _is_list(node) else ()
    return frozenset(roles[:_MOST_ROLES])


def _inner(node: Any, step: str | int | PathStep) -> Sequence[Any]:
    if isinstance(step, str):
        return [node[step]] if isinstance(node, dict) and step in node else ()
    if not isinstance(node, list):
        return list(node.values()) if isinstance(node, dict) and step is PathStep.MEMBERS else ()
    return node[step : step + 1] if isinstance(step, int) else node


def _is_list(node: Any) -> bool:
    return isinstance(node, list) and all(isinstance(one, str) for one in node)
