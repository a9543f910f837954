"""Reads access policies from bodies and files, and tells every fault with its place."""

import difflib
import re
import urllib.parse
from collections.abc import Mapping
from typing import Any, Final, Literal

from proxy.errors import Code, Detail, VaultError
from proxy.model.policy import AccessPolicy, Act, FieldVisibility, MaskRule, Visibility, is_purpose
from proxy.model.template import capacity, read_template
from proxy.model.values import step

_MEMBERS: Final = (
    "name", "schema", "actions", "fields", "rows", "external_acl", "firewall", "cors", "purpose",
)  # fmt: skip

#: Names of policies.
POLICY_NAME: Final = re.compile(r"[A-Za-z0-9]{1,64}", re.ASCII)
#: Fields that one policy names, origins that it lets in, and readable characters of a mask at
#: either end.
MOST_POLICY_FIELDS: Final = 200
MOST_ORIGINS: Final = 100
MOST_READABLE: Final = 64
MOST_PURPOSES: Final = 100
_LONGEST_URL: Final = 2048
_LONGEST_NAME: Final = 64
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_HOST: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?|\[[0-9a-f:.]+\]", re.ASCII)


def read_policy(name: str, raw: Any) -> AccessPolicy:
    """The policy that a body means.

    ``VaultError(INVALID_POLICY)`` with every fault: JSON Pointers into the body, or ``name``.
    """
    reading = PolicyReader()
    if not POLICY_NAME.fullmatch(name):
        reading.fault("name", "The name of a policy is 1 to 64 letters (a-z, A-Z) and digits.")
    policy = reading.policy(name, raw)
    if reading.details:
        raise VaultError(
            Code.INVALID_POLICY,
            "The policy has faults: fix what is listed.",
            tuple(reading.details),
        )
    return policy


class PolicyReader:
    """Parser of one body; ``details`` collects its faults."""

    def __init__(self) -> None:
        self.details: list[Detail] = []

    def fault(self, pointer: str, text: str) -> None:
        self.details.append(Detail(pointer, text))

    def policy(self, name: str, raw: Any) -> AccessPolicy:
        if not isinstance(raw, Mapping):
            self.fault("", "A policy is an object.")
            return AccessPolicy(name, "", ())
        self.members("", raw, _MEMBERS)
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
            self.purposes(raw["purpose"]) if "purpose" in raw else None,
        )

    def members(self, at: str, raw: Mapping[Any, Any], members: tuple[str, ...]) -> None:
        for name in raw:
            if name not in members:
                near = difflib.get_close_matches(str(name)[:_LONGEST_NAME], members, n=1)
                hint = f"did you mean {near[0]}?" if near else f"known are: {', '.join(members)}."
                self.fault(at + step(str(name)), f"Is not known here; {hint}")

    def object(self, at: str, raw: Any, *members: str) -> Mapping[str, Any]:
        """An object of these members; of anything else none."""
        if not isinstance(raw, Mapping):
            self.fault(at, f"Has to be an object with {' and '.join(members)}.")
            return {}
        self.members(at, raw, members)
        return raw

    def actions(self, raw: Any) -> tuple[Act, ...]:
        words = ", ".join(Act)
        if not isinstance(raw, list) or not raw:
            self.fault(
                "/actions", f"Has to be an array of what is allowed, with one at least of {words}."
            )
            return ()
        actions: list[Act] = []
        for number, item in enumerate(raw[:100]):
            if not isinstance(item, str) or item not in tuple(Act):
                self.fault(f"/actions/{number}", f"Has to be one of {words}.")
            elif item in actions:
                self.fault(f"/actions/{number}", "Stands here already.")
            else:
                actions.append(Act(item))
        return tuple(actions)

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
        members = self.object(at, raw, "valueType", "format", "mask")
        kind = members.get("valueType")
        if not isinstance(kind, str) or kind not in tuple(Visibility):
            if isinstance(raw, Mapping):
                self.fault(f"{at}/valueType", f"Has to be one of {', '.join(Visibility)}.")
            return FieldVisibility(Visibility.HIDDEN)
        how = Visibility(kind)
        if "format" in members and how is not Visibility.REDACTED:
            self.fault(f"{at}/format", "Is for redacted fields alone.")
        if "mask" in members and how is not Visibility.MASKED:
            self.fault(f"{at}/mask", "Is for masked fields alone.")
        if how is Visibility.REDACTED:
            return FieldVisibility(how, self.format(f"{at}/format", members.get("format")))
        if how is Visibility.MASKED:
            return FieldVisibility(how, mask=self.mask(f"{at}/mask", members.get("mask", {})))
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
        members = self.object(at, raw, "first", "last", "char")
        char = members.get("char", "*")
        if not isinstance(char, str) or len(char) != 1 or not char.isprintable() or char.isspace():
            self.fault(f"{at}/char", "Has to be one printable character.")
        readable = [self.count(f"{at}/{name}", members.get(name, 0)) for name in ("first", "last")]
        return MaskRule(readable[0], readable[1], str(char))

    def count(self, at: str, raw: Any) -> int:
        if not isinstance(raw, int) or isinstance(raw, bool) or not 0 <= raw <= MOST_READABLE:
            self.fault(at, f"Has to be a whole number of characters from 0 to {MOST_READABLE}.")
            return 0
        return raw

    def rows(self, raw: Any) -> dict[str, Any] | None:
        members = self.object("/rows", raw, "filter")
        wanted = members.get("filter")
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
        members = self.object("/firewall", raw, "mode")
        mode = members.get("mode")
        if mode in ("block", "mask"):
            return "mask" if mode == "mask" else "block"
        if isinstance(raw, Mapping):
            self.fault("/firewall/mode", "Has to be mask, or block.")
        return None

    def origins(self, raw: Any) -> tuple[str, ...]:
        origins = self.object("/cors", raw, "origins").get("origins")
        if not isinstance(origins, list) or not 1 <= len(origins) <= MOST_ORIGINS:
            if isinstance(raw, Mapping):
                self.fault("/cors/origins", f"Has to be an array of 1 to {MOST_ORIGINS} origins.")
            return ()
        for number, item in enumerate(origins):
            if not isinstance(item, str) or not _is_origin(item):
                text = (
                    "Has to be an origin as browsers send it, such as https://app.example.com: "
                    "scheme, host, port."
                )
                self.fault(f"/cors/origins/{number}", text)
        return tuple(dict.fromkeys(map(str, origins)))

    def purposes(self, raw: Any) -> tuple[str, ...]:
        if raw == "any":
            return ()
        if not isinstance(raw, list) or not 1 <= len(raw) <= MOST_PURPOSES:
            self.fault("/purpose", f"Has to be any, or an array of 1 to {MOST_PURPOSES} texts.")
            return ()
        for number, item in enumerate(raw):
            if not isinstance(item, str) or not is_purpose(item):
                self.fault(f"/purpose/{number}", "Has to be 1 to 200 visible characters.")
        return tuple(dict.fromkeys(map(str, raw)))


def _parts(text: str) -> urllib.parse.SplitResult | None:
    """Split an address; ``None`` if it is invalid."""
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
    """Whether a browser sends it like this (RFC 6454, section 6.2): no path, and no usual port."""
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
