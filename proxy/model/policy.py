"""An access policy as administrators write it, over HTTP and in files, and the ``Policy`` that it
means.

``{"schema": "contact", "actions": ["read"], "fields": {"email": {"valueType": "redacted", "format":
"[a-z]{8}@example.org"}, "phone": {"valueType": "masked", "mask": {"last": 2}}, "passport":
"hidden"}, "rows": {"filter": {"region": "north"}}}``

What it says of its own form is checked by ``read_policy``; whether it fits the schema that it
names, by ``misfits``.
"""

import enum
import re
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from proxy.errors import Code, Detail, VaultError
from proxy.model.filter_reader import read_filter
from proxy.model.query import AnyOf, Like, Test
from proxy.model.record import RecordLimits
from proxy.model.schema import (
    IS_ENCRYPTED,
    RECORDS_SCHEMA,
    STATED_VERSION,
    Field,
    FieldType,
    Schema,
    Storage,
)
from proxy.model.template import capacity, read_template
from proxy.model.values import step

#: What a policy may be called.
POLICY_NAME: Final = re.compile(r"[A-Za-z0-9]{1,64}", re.ASCII)

#: In place of the name of a field: every one that the policy does not name.
OTHERS: Final = "*"

#: Fields that one policy names, origins that it lets in, and readable characters of a mask at
#: either end.
MOST_POLICY_FIELDS: Final = 200
MOST_ORIGINS: Final = 100
MOST_READABLE: Final = 64
_LONGEST_URL: Final = 2048

_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_HOST: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?|\[[0-9a-f:.]+\]", re.ASCII)


class Act(enum.StrEnum):
    """What a policy can allow."""

    READ = "read"
    WRITE = "write"  #: create, update, copy, and change attachments
    DELETE = "delete"


class Visibility(enum.StrEnum):
    """How a field is shown (specification, "Redaction template")."""

    CLEAR = "clear"
    REDACTED = "redacted"
    MASKED = "masked"
    HIDDEN = "hidden"


class MaskRule(msgspec.Struct, frozen=True):
    """So many letters and digits at either end stay readable, ``char`` stands for the others; at
    least one is masked.
    """

    first: int = 0
    last: int = 0
    char: str = "*"


class FieldVisibility(msgspec.Struct, frozen=True, omit_defaults=True):
    """How one field is shown.

    ``format`` is the template of a redacted one, ``mask`` that of a masked one.
    """

    how: Visibility
    format: str = ""
    mask: MaskRule = MaskRule()


class AccessPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """One access policy. A field that it does not name is shown as ``OTHERS``, and in the clear
    where that is not there.
    """

    name: str
    schema: str
    actions: tuple[Act, ...]
    fields: dict[str, FieldVisibility] = {}
    #: the find filter by which everything is narrowed, as it was written
    rows: dict[str, Any] | None = None
    external_acl: str | None = None
    firewall: Literal["block", "mask"] | None = None
    origins: tuple[str, ...] = ()


def read_policy(name: str, raw: Any) -> AccessPolicy:
    """The policy that a body means.

    ``VaultError(INVALID_POLICY)`` with every fault: JSON Pointers into the body, or ``name``.
    """
    reading = _Reading()
    if not POLICY_NAME.fullmatch(name):
        reading.fault("name", "The name of a policy is 1 to 64 letters (a-z, A-Z) and digits.")
    policy = reading.policy(name, raw)
    if reading.details:
        raise VaultError(
            Code.INVALID_POLICY,
            "The policy has faults: mend what is listed.",
            tuple(reading.details),
        )
    return policy


def write_policy(policy: AccessPolicy) -> dict[str, Any]:
    """The body of a policy; ``read_policy`` reads it back as the same one."""
    written: dict[str, Any] = {
        "name": policy.name,
        "schema": policy.schema,
        "actions": [str(act) for act in policy.actions],
        "fields": {name: _written(sight) for name, sight in policy.fields.items()},
    }
    if policy.rows is not None:
        written["rows"] = {"filter": policy.rows}
    if policy.external_acl is not None:
        written["external_acl"] = policy.external_acl
    if policy.firewall is not None:
        written["firewall"] = {"mode": policy.firewall}
    if policy.origins:
        written["cors"] = {"origins": list(policy.origins)}
    return written


def _written(sight: FieldVisibility) -> Any:
    if sight.how is Visibility.REDACTED:
        return {"valueType": "redacted", "format": sight.format}
    if sight.how is Visibility.MASKED:
        return {"valueType": "masked", "mask": msgspec.to_builtins(sight.mask)}
    return str(sight.how)


# ---------------------------------------------------------------------- against a schema


def row_tests(policy: AccessPolicy, schema: Schema, limits: RecordLimits) -> tuple[Test, ...]:
    """The tests of ``rows``.

    Raises ``VaultError`` as ``read_filter``, and for tests that an index alone cannot answer.
    """
    if policy.rows is None:
        return ()
    tests = read_filter(schema, policy.rows, limits, "/rows/filter")
    if any(_opens(schema, test) for test in tests):
        text = (
            "Cannot search for parts of texts of which only hashes are kept: what every request "
            "pays for has to be in an index."
        )
        raise VaultError(
            Code.INVALID_FILTER, "The filter cannot narrow rows.", (Detail("/rows/filter", text),)
        )
    return tests


def _opens(schema: Schema, test: Test) -> bool:
    """Whether rows have to be opened to answer it."""
    if isinstance(test, AnyOf):
        return any(_opens(schema, part) for tests in test.alternatives for part in tests)
    if not isinstance(test, Like):
        return False
    plain = {field.name for field in schema.fields if field.storage is Storage.INDEXED}
    return not plain.issuperset(test.fields)


def is_technical(schema: str, field: Field) -> bool:
    """Whether it says nothing of a person, and records cannot be told apart or read without it: it
    is always shown.
    """
    return field.type is FieldType.PRIMARY_KEY or (
        schema == RECORDS_SCHEMA and field.name in (STATED_VERSION, IS_ENCRYPTED)
    )


def misfits(policy: AccessPolicy, schema: Schema, limits: RecordLimits) -> list[Detail]:
    """What of a policy does not fit the schema that it names, as it is now."""
    fields = {field.name: field for field in schema.fields}
    found: list[Detail] = []
    for name, sight in policy.fields.items():
        at = f"/fields{step(name)}"
        field = fields.get(name)
        if name == OTHERS:
            continue  # what cannot be shown so is hidden
        if field is None:
            found.append(Detail(at, "The schema has no field of this name."))
        elif is_technical(schema.name, field) and sight.how is not Visibility.CLEAR:
            found.append(
                Detail(
                    at, "Is always shown: records are named by it, or cannot be read without it."
                )
            )
        elif (
            sight.how in (Visibility.REDACTED, Visibility.MASKED)
            and field.type is not FieldType.STRING
        ):
            text = (
                f"Only strings can be {sight.how}; a text in place of this type would break who "
                "reads it: hide it."
            )
            found.append(Detail(at, text))
    if (
        policy.external_acl is not None
        and schema.primary is not None
        and schema.primary.name in ("action", "type")
    ):
        text = (
            "The primary key of the schema has the name of another property of what a filter "
            "endpoint is asked."
        )
        found.append(Detail("/external_acl", text))
    try:
        row_tests(policy, schema, limits)
    except VaultError as error:
        found.extend(error.details)
    return found


def refuse_misfit(
    policy: AccessPolicy, schema: Schema | None, limits: RecordLimits, more: Sequence[Detail] = ()
) -> None:
    """Raise ``VaultError(INVALID_POLICY)`` with what does not fit, and ``more``; ``schema``: that
    of the name, if there is one.
    """
    unknown = [Detail("/schema", "There is no schema of this name.")]
    details = [*(unknown if schema is None else misfits(policy, schema, limits)), *more]
    if details:
        raise VaultError(
            Code.INVALID_POLICY, "The policy does not fit the schema that it names.", tuple(details)
        )


# ---------------------------------------------------------------------- reading


class _Reading:
    """One body; ``details`` has what is wrong with it."""

    def __init__(self) -> None:
        self.details: list[Detail] = []

    def fault(self, pointer: str, text: str) -> None:
        self.details.append(Detail(pointer, text))

    def policy(self, name: str, raw: Any) -> AccessPolicy:
        if not isinstance(raw, Mapping):
            self.fault("", "A policy is an object.")
            return AccessPolicy(name, "", ())
        self.members(
            "",
            raw,
            ("name", "schema", "actions", "fields", "rows", "external_acl", "firewall", "cors"),
        )
        if raw.get("name", name) != name:
            self.fault("/name", "Is not the name in the address.")
        if not isinstance(schema := raw.get("schema"), str):
            self.fault("/schema", "The name of a schema is needed here.")
        return AccessPolicy(
            name,
            str(schema),
            self.actions(raw.get("actions")),
            self.fields(raw.get("fields", {})),
            self.rows(raw["rows"]) if "rows" in raw else None,
            self.external_acl(raw["external_acl"]) if "external_acl" in raw else None,
            self.firewall(raw["firewall"]) if "firewall" in raw else None,
            self.origins(raw["cors"]) if "cors" in raw else (),
        )

    def members(self, at: str, raw: Mapping[Any, Any], known: tuple[str, ...]) -> None:
        for name in raw:
            if name not in known:
                self.fault(
                    at + step(str(name)), f"Is not known here; known are: {', '.join(known)}."
                )

    def object(self, at: str, raw: Any, *known: str) -> Mapping[str, Any]:
        """An object of these members; of anything else none."""
        if not isinstance(raw, Mapping):
            self.fault(at, f"Has to be an object with {' and '.join(known)}.")
            return {}
        self.members(at, raw, known)
        return raw

    def actions(self, raw: Any) -> tuple[Act, ...]:
        words = ", ".join(Act)
        if not isinstance(raw, list) or not raw:
            self.fault(
                "/actions", f"Has to be an array of what is allowed, with one at least of {words}."
            )
            return ()
        found: list[Act] = []
        for number, item in enumerate(raw[:100]):
            if not isinstance(item, str) or item not in tuple(Act):
                self.fault(f"/actions/{number}", f"Has to be one of {words}.")
            elif item in found:
                self.fault(f"/actions/{number}", "Stands here already.")
            else:
                found.append(Act(item))
        return tuple(found)

    def fields(self, raw: Any) -> dict[str, FieldVisibility]:
        if not isinstance(raw, Mapping):
            self.fault("/fields", "Has to be an object: how each field is shown, by its name.")
            return {}
        if len(raw) > MOST_POLICY_FIELDS:
            self.fault("/fields", f"A policy names at most {MOST_POLICY_FIELDS} fields.")
            return {}
        return {
            str(name): self.sight(f"/fields{step(str(name))}", item) for name, item in raw.items()
        }

    def sight(self, at: str, raw: Any) -> FieldVisibility:
        if isinstance(raw, str):
            raw = {"valueType": raw}
        given = self.object(at, raw, "valueType", "format", "mask")
        kind = given.get("valueType")
        if not isinstance(kind, str) or kind not in tuple(Visibility):
            if isinstance(raw, Mapping):
                self.fault(f"{at}/valueType", f"Has to be one of {', '.join(Visibility)}.")
            return FieldVisibility(Visibility.HIDDEN)
        how = Visibility(kind)
        if "format" in given and how is not Visibility.REDACTED:
            self.fault(f"{at}/format", "Is for redacted fields alone.")
        if "mask" in given and how is not Visibility.MASKED:
            self.fault(f"{at}/mask", "Is for masked fields alone.")
        if how is Visibility.REDACTED:
            return FieldVisibility(how, self.format(f"{at}/format", given.get("format")))
        if how is Visibility.MASKED:
            return FieldVisibility(how, mask=self.mask(f"{at}/mask", given.get("mask", {})))
        return FieldVisibility(how)

    def format(self, at: str, raw: Any) -> str:
        if not isinstance(raw, str):
            self.fault(at, "A redacted field needs a template, such as [a-z]{8}@example.org.")
            return ""
        try:
            groups = read_template(raw)
        except ValueError as error:
            self.fault(at, f"This is no template: {error}.")
            return ""
        if not all(group.choices.isprintable() for group in groups):
            self.fault(at, "This is no template: every character has to be printable.")
        elif capacity(groups) < 2:
            self.fault(
                at,
                "A template needs characters to choose from, such as [a-z0-9]{8}; else mask or "
                "hide the field.",
            )
        return raw

    def mask(self, at: str, raw: Any) -> MaskRule:
        given = self.object(at, raw, "first", "last", "char")
        char = given.get("char", "*")
        if not isinstance(char, str) or len(char) != 1 or not char.isprintable() or char.isspace():
            self.fault(f"{at}/char", "Has to be one printable character.")
        readable = [self.count(f"{at}/{name}", given.get(name, 0)) for name in ("first", "last")]
        return MaskRule(readable[0], readable[1], str(char))

    def count(self, at: str, raw: Any) -> int:
        if not isinstance(raw, int) or isinstance(raw, bool) or not 0 <= raw <= MOST_READABLE:
            self.fault(at, f"Has to be a whole number of characters from 0 to {MOST_READABLE}.")
            return 0
        return raw

    def rows(self, raw: Any) -> dict[str, Any] | None:
        found = self.object("/rows", raw, "filter")
        wanted = found.get("filter")
        if isinstance(wanted, Mapping) and wanted:
            return dict(wanted)
        if isinstance(raw, Mapping):
            self.fault("/rows/filter", "Has to be a find filter with one condition at least.")
        return None

    def external_acl(self, raw: Any) -> str | None:
        if not isinstance(raw, str) or len(raw) > _LONGEST_URL or not _is_endpoint(raw):
            text = (
                "Has to be the address of the filter endpoint: https://host/path, or http:// on "
                "this machine alone."
            )
            self.fault("/external_acl", text)
            return None
        return raw

    def firewall(self, raw: Any) -> Literal["block", "mask"] | None:
        found = self.object("/firewall", raw, "mode")
        mode = found.get("mode")
        if mode in ("block", "mask"):
            return "mask" if mode == "mask" else "block"
        if isinstance(raw, Mapping):
            self.fault("/firewall/mode", "Has to be mask, or block.")
        return None

    def origins(self, raw: Any) -> tuple[str, ...]:
        found = self.object("/cors", raw, "origins")
        given = found.get("origins")
        if not isinstance(given, list) or not 1 <= len(given) <= MOST_ORIGINS:
            if isinstance(raw, Mapping):
                self.fault("/cors/origins", f"Has to be an array of 1 to {MOST_ORIGINS} origins.")
            return ()
        for number, item in enumerate(given):
            if not isinstance(item, str) or not _is_origin(item):
                text = (
                    "Has to be an origin as browsers send it, such as https://app.example.com: "
                    "scheme, host, port."
                )
                self.fault(f"/cors/origins/{number}", text)
        return tuple(dict.fromkeys(map(str, given)))


def _parts(text: str) -> urllib.parse.SplitResult | None:
    """The parts of an address; ``None`` for what is none."""
    if not text.isascii() or not text.isprintable() or " " in text or "\\" in text:
        return None
    try:
        parts = urllib.parse.urlsplit(text)
        _ = parts.port
    except ValueError:
        return None
    return parts if parts.scheme in ("http", "https") and parts.hostname else None


def _is_endpoint(text: str) -> bool:
    parts = _parts(text)
    if parts is None or parts.username is not None or parts.password is not None or parts.fragment:
        return False
    return parts.scheme == "https" or parts.hostname in _LOOPBACK


def _is_origin(text: str) -> bool:
    """Whether a browser sends it like this (RFC 6454, section 6.2): nothing behind the port, and no
    usual port.
    """
    parts = _parts(text)
    if parts is None:
        return False
    host, _, port = (
        parts.netloc.partition(":")
        if not parts.netloc.startswith("[")
        else _bracketed(parts.netloc)
    )
    usual = {"http": "80", "https": "443"}[parts.scheme]
    fits = _HOST.fullmatch(host) is not None and port != usual and (not port or port.isdigit())
    return fits and text == f"{parts.scheme}://{host}" + (f":{port}" if port else "")


def _bracketed(netloc: str) -> tuple[str, str, str]:
    host, bracket, rest = netloc.partition("]")
    return host + bracket, ":", rest.removeprefix(":")


#: Policies as they are kept; numbers with a point stay exact.
encode_policy: Final[Callable[[Any], bytes]] = msgspec.json.Encoder(decimal_format="number").encode
