"""What stands around records in a request: wrapper objects, the country, keys, numbers in the query."""

import re
from collections.abc import Mapping
from typing import Any

from proxy.errors import Code, Detail, VaultError
from proxy.model.faults import Faults
from proxy.model.limits import DEFAULTS
from proxy.web.api.operation import Call

_COUNTRY = re.compile(r"[a-z]{2}", re.ASCII)  # ISO 3166-1 alpha-2

#: Digits of a number in the query; more than any that is allowed.
_DIGITS = 10


def members(content: Any, known: tuple[str, ...], required: tuple[str, ...] = ()) -> dict[str, Any]:
    """The object of a body, whose members are known; ``VaultError`` (INVALID_INPUT) with every other one and every missing one."""
    if not isinstance(content, dict):
        raise invalid("", "Has to be a JSON object.")
    faults = Faults(DEFAULTS.faults)
    faults.each(
        "", [name for name in content if name not in known], f"Is not known here; known are: {', '.join(known)}."
    )
    faults.each("", [name for name in required if name not in content], "Is missing.")
    if faults:
        raise faults.error(Code.INVALID_INPUT, "The body does not fit this operation.")
    return content


def invalid(pointer: str, text: str) -> VaultError:
    """The error of one fault of a body."""
    return VaultError(Code.INVALID_INPUT, "The body does not fit this operation.", (Detail(pointer, text),))


def check_country(call: Call, content: Mapping[str, Any], place: str = "/country", *, spelled: bool = False) -> None:
    """Raise ``VaultError`` (WRONG_COUNTRY) when a body, or what ``place`` points to, names another country than the instance's.

    What is no text is INVALID_INPUT, and so is one that can be no country's code where it has to be ``spelled`` as one.
    """
    if "country" not in content:
        return
    country = content["country"]
    if country == call.services.country:
        return
    if not isinstance(country, str) or (spelled and not _COUNTRY.fullmatch(country)):
        raise VaultError(
            Code.INVALID_INPUT,
            "The country cannot be read.",
            (Detail(place, "Has to be a country code of two lower-case letters."),),
        )
    raise VaultError(
        Code.WRONG_COUNTRY,
        f"This instance keeps the records of {call.services.country} alone.",
        (Detail(place, "Is another country than the instance's."),),
    )


def batch(call: Call, *more: str) -> tuple[Any, str, dict[str, Any]]:
    """The records of a batch, the pointer to them, and what stands beside them: a bare array, or an object with ``records``."""
    if isinstance(call.content, list):
        return call.content, "", {}
    content = members(call.content, ("records", "country", *more), ("records",))
    check_country(call, content)
    return content["records"], "/records", content


def strings(value: Any, pointer: str, most: int) -> list[str]:
    """A list of different texts, at least one. ``VaultError``: INVALID_INPUT, or BATCH_TOO_LARGE for more than ``most``."""
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise invalid(pointer, "Has to be an array of strings, with one at least.")
    if len(value) > most:
        text = f"At most {most} are taken at one time; send several requests."
        raise VaultError(Code.BATCH_TOO_LARGE, text, (Detail(pointer, text),))
    return list(dict.fromkeys(value))


def number(call: Call, name: str, default: int, least: int, most: int) -> int:
    """A whole number of the query. Raises ``VaultError`` (INVALID_INPUT)."""
    text = call.query.get(name)
    if text is None:
        return default
    if text.isascii() and text.isdigit() and len(text) <= _DIGITS and least <= int(text) <= most:
        return int(text)
    detail = Detail(name, f"Has to be a whole number from {least} to {most}.")
    raise VaultError(Code.INVALID_INPUT, "The query parameters do not fit.", (detail,))


def flag(call: Call, name: str, word: str) -> bool:
    """Whether a parameter was sent, which may say this word alone. Raises ``VaultError`` (INVALID_INPUT)."""
    if (given := call.query.get(name)) not in (None, word):
        raise VaultError(
            Code.INVALID_INPUT, "The query parameters do not fit.", (Detail(name, f"May only be {word}."),)
        )
    return given is not None
