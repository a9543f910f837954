"""Environment variables → settings: ``DOMICILE__LISTEN__PROXY`` is ``listen.proxy``."""

from collections.abc import Mapping
from typing import Final

from proxy.config.document import Given
from proxy.config.naming import APPLICATIONS, find, is_section, nearest
from proxy.config.table import SETTINGS
from proxy.errors import Detail

#: Every variable that begins so is a setting, known or not. Two underscores, because an orchestrator makes variables
#: of its own for a service of that name (``DOMICILE_SERVICE_HOST``).
PREFIX: Final = "DOMICILE__"


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper().replace(".", "__")


#: What looks like a setting and is none -> the variable that is meant. ``keys: env:DOMICILE_KEYS`` is a fair name for a key.
_NEARLY: Final = {variable(name).replace("__", "_"): variable(name) for name in SETTINGS if not name.startswith("keys")}


def read(environ: Mapping[str, str]) -> tuple[dict[str, Given], list[Detail]]:
    """The settings that an environment holds, by dotted name, and the faults among them, in order of the alphabet."""
    given: dict[str, Given] = {}
    faults: list[Detail] = []
    for written in sorted(environ):
        if not written.startswith(PREFIX):
            if meant := _NEARLY.get(written):
                faults.append(Detail(written, f"this sets nothing, for one underscore is missing: write {meant}"))
            continue
        name = written.removeprefix(PREFIX).lower().replace("__", ".")
        text = environ[written]
        if fault := _fault(written, name, text):
            faults.append(Detail(written, fault))
        else:
            given[name] = Given(text, written)
    return given, faults


def _fault(written: str, name: str, text: str) -> str | None:
    setting = find(name)
    if is_section(name):
        first = next(
            (setting for setting in SETTINGS if setting.startswith(f"{name}.")), f"{APPLICATIONS}.name.connect"
        )
        return f"{name} has members: set each, such as {variable(first)}"
    if setting is None:
        return f"{name} is not a setting: {nearest(name)}"
    if written != variable(name):
        return f"write it in capital letters: {variable(name)}"
    if not text:
        return f"the variable is empty: write {setting.form}, or unset it"
    return None
