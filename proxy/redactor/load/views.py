"""``views:`` and ``endpoint.caller``: visibility by roles, and the proof of a role."""

import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from proxy.model.schema import Path, PathStep
from proxy.redactor.load.parsers import RULE_NAME, parse_selector
from proxy.redactor.load.value_forms import (
    FLAG,
    Block,
    Context,
    Key,
    KeywordForm,
    ListOf,
    MapOf,
    PlacedValue,
    Section,
    Text,
    number_within,
)
from proxy.redactor.load.yaml_tree import RuleFaults, Scalar, YamlNode, did_you_mean
from proxy.redactor.rules import Entity
from proxy.redactor.views import CallerRule, CallerSource, Level, View
from proxy.tokenization.base import Resolution
from proxy.tokenization.mask import Mask, field_mask

#: Parts of a certificate that may hold roles: how a rule file calls them, and Python's TLS.
_PARTS: Final[Mapping[str, tuple[str, str]]] = {
    "subject CN": ("subject", "commonName"),
    "subject O": ("subject", "organizationName"),
    "subject OU": ("subject", "organizationalUnitName"),
    "san DNS": ("subjectAltName", "DNS"),
    "san email": ("subjectAltName", "email"),
    "san URI": ("subjectAltName", "URI"),
}

_LOCAL: Final = ("localhost", "127.0.0.1", "::1")


class _Roles(NamedTuple):
    """Place of roles: in claims, or in a certificate."""

    path: Path | None
    part: tuple[str, str] | None


def _parse_roles(text: str) -> _Roles:
    if text in _PARTS:
        return _Roles(None, _PARTS[text])
    if not text.startswith("$"):
        raise ValueError(f"write $.roles, or of a certificate one of {', '.join(_PARTS)}")
    path = parse_selector(text)
    if not path or PathStep.DEEP in path:
        raise ValueError("name the claim that holds the roles, such as $.roles, without '..'")
    return _Roles(path, None)


def _parse_issuer_url(text: str) -> str:
    """An address at https://; at http:// only on this machine."""
    parts = urllib.parse.urlsplit(text)
    good = parts.hostname and "@" not in parts.netloc and not parts.fragment and text.isprintable()
    if not good or parts.scheme not in ("http", "https") or " " in text:
        raise ValueError("write the address at https:// that the issuer answers at")
    if parts.scheme == "http" and parts.hostname not in _LOCAL:
        raise ValueError("http:// is for this machine alone; write https://")
    return text


@dataclass(frozen=True, slots=True)
class _Secret(Text):
    """A text that may stand in a rule file by reference only."""

    def read(self, node: YamlNode, context: Context) -> Any:
        if isinstance(node, Scalar) and "${" not in node.text:
            text = "a secret stands in no rule file; write ${env:NAME} or ${file:PATH}"
            return context.faults.add(node.at, text)
        return Text.read(self, node, context)


_ADDRESS: Final = Text("address", "an address at https://", parse=_parse_issuer_url, reference=True)

CALLER_BLOCK: Final = Block(
    "caller",
    "How callers prove their roles. A header that a caller can write is no proof. The token stays "
    "in the request, for the application.",
    (
        Key("from", KeywordForm(("jwt", "introspection", "certificate", "none")), "`jwt`: the signed token in `Authorization: Bearer`, verified with the issuer's keys; `introspection`: that token, asked about (RFC 7662); `certificate`: the caller's own at the proxy listener (`listen.tls.clients`); `none`: nobody has a role", required=True),
        Key("jwks", _ADDRESS, "jwt: where the issuer publishes its keys (RFC 7517)"),
        Key("url", _ADDRESS, "introspection: where the issuer is asked about a token"),
        Key("credentials", _Secret("secret", "client id:secret", r"[^:\s]+:\S+", reference=True), "introspection: `client id:secret` of this proxy at the issuer, as `${env:NAME}` or `${file:PATH}`", "none"),
        Key("roles", Text("place of roles", "$.roles, subject OU", parse=_parse_roles), "the claim with the roles, a list or words: `$.roles`, `$.realm_access.roles`, `$.scope`; of a certificate " + ", ".join(f"`{part}`" for part in _PARTS), "`$.roles`; of a certificate `subject OU`"),
        Key("issuer", Text("text", "what tokens have as iss"), "what tokens must have as `iss`", "any"),
        Key("audience", ListOf(Text("text", "what tokens have as aud"), single=True), "what tokens must have as `aud`, one of these", "any"),
    ),
)  # fmt: skip

ROLE: Final = Text("role", "the name of a role, such as sales", r"\S(?:.*\S)?")
_LEVEL: Final = KeywordForm(tuple(Level))

VIEW_BLOCK: Final = Block(
    "view",
    "What callers of some roles see. Entities that it does not name are tokens.",
    (
        Key("who", ListOf(ROLE, single=True), "the roles", required=True),
        Key("except", MapOf(_LEVEL, "field name", RULE_NAME), "fields that are shown in another way"),
    ),
    named=Key("(entity name)", _LEVEL, "how its values are shown", "token"),
)  # fmt: skip

MASK_BLOCK: Final = Block(
    "mask",
    "What stays readable of a masked value; every other letter and digit becomes a sign. At least "
    "one is masked.",
    (
        Key("first", number_within(0, 1000), "letters and digits at the beginning", "0"),
        Key("last", number_within(0, 1000), "letters and digits at the end", "0"),
        Key("char", Text("sign", "one sign, such as * or •", r"."), "the sign that takes the place of the others", "`*`"),
        Key("domain", FLAG, "true: of an e-mail address, what stands behind the @"),
        Key("year", FLAG, "true: of a date, the year"),
    ),
)  # fmt: skip


def compile_mask(kind: str, section: Section, faults: RuleFaults) -> Mask:
    """The mask of a field."""
    inner: Section | None = section.value("mask")
    options = {} if inner is None else {key: inner.value(key) for key in inner}
    try:
        return field_mask(kind, {key: one for key, one in options.items() if one is not None})
    except ValueError as error:
        faults.add(section.position("mask"), f"{error}")
        return field_mask(kind)


class CallerViews(NamedTuple):
    """Callers and views of an endpoint."""

    caller: CallerRule | None
    views: tuple[View, ...]


def compile_views(
    section: Section, entities: Mapping[str, Entity], faults: RuleFaults
) -> CallerViews:
    """The caller and the views of a file; faults are noted."""
    head: Section | None = section.value("endpoint")
    stated: Section | None = head.value("caller") if head is not None else None
    caller = _caller(stated, faults) if stated is not None else None
    items: list[PlacedValue] = section.value("views", [])
    views = [_view(one.value, entities, faults) for one in items if isinstance(one.value, Section)]
    if items and (stated is None or stated.value("from") == "none"):
        faults.add(
            section.key("views"),
            "views go by the roles of callers, and nothing proves a role; write caller: {from: "
            "jwt, jwks: ADDRESS} at the endpoint, or leave views out",
        )
    proven = stated is not None and stated.value("from") != "none"
    if proven and not items and head is not None:
        faults.add(
            head.key("caller"),
            "roles mean nothing without views; write views: [{who: [ROLE], ENTITY: clear}], or "
            "leave caller out",
        )
    _check_order(items, faults)
    for test in section.value("tests", []) if not items else ():
        if isinstance(test.value, Section) and "as" in test.value:
            at = test.value.key("as")
            faults.add(at, "there are no views, so roles mean nothing; leave it out")
    return CallerViews(caller, tuple(views))


#: What each proof needs, and may have besides.
_KEYS: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "jwt": (("jwks",), ("roles", "issuer", "audience")),
    "introspection": (("url",), ("credentials", "roles", "issuer", "audience")),
    "certificate": ((), ("roles",)),
    "none": ((), ()),
}


def _caller(section: Section, faults: RuleFaults) -> CallerRule | None:
    source = section.value("from")
    if source is None:
        return None
    needed, allowed = _KEYS[source]
    text = f"'{{key}}' means nothing with 'from: {source}'; leave it out"
    section.allow(("from", *needed, *allowed), faults, text)
    for key in needed:
        if key not in section:
            faults.add(section.at, f"'from: {source}' needs '{key}': the address at the issuer")
    if source == "none":
        return None
    roles: _Roles | None = section.value("roles")
    certified = source == "certificate"
    if roles is not None and certified is not (roles.part is not None):
        where = "a part of the certificate: subject OU" if certified else "a claim: $.roles"
        faults.add(section.position("roles"), f"with 'from: {source}' roles stand in {where}")
        return None
    usual = CallerRule(CallerSource(source))
    return CallerRule(
        CallerSource(source),
        section.value(needed[0], "") if needed else "",
        roles.path if roles is not None and roles.path is not None else usual.roles,
        roles.part if roles is not None and roles.part is not None else usual.part,
        section.value("issuer"),
        frozenset(item.value for item in section.value("audience", []) if item.value),
        section.value("credentials"),
    )


def _view(section: Section, entities: Mapping[str, Entity], faults: RuleFaults) -> View:
    roles = [item.value for item in section.value("who", []) if item.value]
    excepted: Mapping[str, PlacedValue] = section.value("except", {})
    named = {key: item for key, item in section.items.items() if key not in ("who", "except")}
    levels: dict[str, Mapping[str, Level]] = {}
    for name, item in named.items():
        if name in entities:
            levels[name] = _levels(entities[name], item, excepted, faults)
        else:
            faults.add_once(
                item.key, f"there is no entity '{name}'; {did_you_mean(name, entities)}"
            )
    names = [one for name in levels for one in entities[name].fields]
    for field, item in excepted.items():
        if field not in names:
            hint = did_you_mean(field, names)
            faults.add(item.key, f"no entity of this view has a field '{field}'; {hint}")
    if not named:
        faults.add(
            section.at,
            "a view says what its callers see; name an entity: {who: [sales], contact: mask}",
        )
    fields = [level for of in levels.values() for level in of.values()]
    whole = levels.keys() == entities.keys() and all(one is Level.CLEAR for one in fields)
    return View("|".join(roles), frozenset(roles), levels, whole)


def _levels(
    entity: Entity, whole: PlacedValue, excepted: Mapping[str, PlacedValue], faults: RuleFaults
) -> Mapping[str, Level]:
    levels: dict[str, Level] = {}
    for name, rule in entity.fields.items():
        item = excepted.get(name, whole)
        level = Level(item.value or Level.TOKEN)
        if level is Level.TOKEN and item.value and rule.shape.resolution is Resolution.CLEAR:
            faults.add(
                item.at,
                f"the token of {name} is its value itself (shape plain), so it cannot be shown as "
                f"a token; write except: {{{name}: mask}}, or give the field another shape",
            )
        levels[(entity.kept_as or {}).get(name, name)] = level
    return levels


def _check_order(items: list[PlacedValue], faults: RuleFaults) -> None:
    """A view whose roles all stand in views before it never counts."""
    before: set[str] = set()
    for item in items:
        if not isinstance(item.value, Section):
            continue
        roles = {one.value for one in item.value.value("who", []) if one.value}
        if roles and roles <= before:
            faults.add(
                item.value.key("who"),
                "each of these roles stands in a view before this one, and the first that fits "
                "counts; put this one first, or leave it out",
            )
        before |= roles
