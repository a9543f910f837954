"""A settings file → the text and place of each setting in it, and its faults.

YAML is read without its traps: every scalar is a text (``no`` is not false, ``1:30`` is not
ninety), a key that stands twice is a fault, and so are tags and anchors, which settings do not
need.
"""

import difflib
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import yaml

from proxy.config.parsers import Setting
from proxy.config.schema import SETTINGS
from proxy.errors import Detail

# Relations of setting names, and suggestions for unknown ones.

#: Settings of one application: ``applications.crm.tls.ca`` overrides ``upstream.tls.ca``.
APPLICATIONS: Final = "applications"

#: Names that hold other names: ``listen``, ``upstream.tls`` and so on.
SECTIONS: Final = frozenset(
    name[: dot.start()] for name in SETTINGS for dot in re.finditer(r"\.", name)
)


def general(name: str) -> str:
    """The setting that an application's own one overrides; any other name as it is."""
    first, _, rest = name.partition(".")
    return f"upstream.{rest.partition('.')[2]}" if first == APPLICATIONS and "." in rest else name


def find_setting(name: str) -> Setting | None:
    """The setting of that name, or ``None``."""
    return SETTINGS.get(general(name))


def is_section(name: str) -> bool:
    """Whether the name holds other names."""
    return (
        name == APPLICATIONS
        or (name.startswith(f"{APPLICATIONS}.") and name.count(".") == 1)
        or general(name) in SECTIONS
    )


def section_members(section: str) -> list[str]:
    """The names directly inside a section, without the section's own; ``""`` for the outermost."""
    if not section:
        return sorted({name.partition(".")[0] for name in SETTINGS} | {APPLICATIONS})
    inside = [
        name.removeprefix(f"{section}.") for name in SETTINGS if name.startswith(f"{section}.")
    ]
    return list(dict.fromkeys(name.partition(".")[0] for name in inside))


def suggest_setting(name: str) -> str:
    """Suggest a setting for an unknown name, as a sentence."""
    if general(name) != name:
        return suggest_setting(general(name)).replace("upstream", ".".join(name.split(".")[:2]))
    section, _, last = name.rpartition(".")
    members = section_members(section) if section in SECTIONS or not section else []
    if close := difflib.get_close_matches(last, members, n=1):
        return f"did you mean {f'{section}.{close[0]}' if section else close[0]}?"
    if elsewhere := [setting for setting in SETTINGS if setting.rpartition(".")[2] == last]:
        return f"did you mean {elsewhere[0]}?"
    if members and section:
        return f"{section} has {', '.join(members)}"
    if close := difflib.get_close_matches(name, SETTINGS, n=1):
        return f"did you mean {close[0]}?"
    return f"there are {', '.join(section_members(''))}"


#: A settings file is a page of text; more is a mistake, such as a wrong file.
LARGEST_FILE: Final = 256 * 1024

_TEXT: Final = "tag:yaml.org,2002:str"
_MAP: Final = "tag:yaml.org,2002:map"
_LIST: Final = "tag:yaml.org,2002:seq"


def not_yaml(error: yaml.MarkedYAMLError) -> str:
    """Describe why a file is not YAML, with a hint where a tab was found."""
    hint = "; indent with spaces, not with tabs" if "\\t" in (error.problem or "") else ""
    return f"not YAML: {error.problem or 'not readable'}{hint}"


class GivenSetting(NamedTuple):
    """A setting as written, and its source: ``file:line:column`` or a variable's name."""

    text: str
    source: str


class SettingsDocument:
    """Reads one settings file: ``settings`` by dotted name, ``faults`` in order of the file."""

    def __init__(self, name: str, content: bytes) -> None:
        self.name = name
        self.settings: dict[str, GivenSetting] = {}
        self.faults: list[Detail] = []
        root = self._compose(content)
        if root is not None and not (isinstance(root, yaml.ScalarNode) and root.value == ""):
            self._section("", root)

    def _compose(self, content: bytes) -> yaml.Node | None:
        if len(content) > LARGEST_FILE:
            self.faults.append(
                Detail(
                    self.name, f"larger than {LARGEST_FILE // 1024} KiB: is this the settings file?"
                )
            )
            return None
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            self.faults.append(
                Detail(f"{self.name}:{line}", "not UTF-8: save the file in that encoding")
            )
            return None
        try:
            return yaml.compose(text, Loader=yaml.BaseLoader)
        except yaml.MarkedYAMLError as error:
            self.faults.append(Detail(self._position(error.problem_mark), not_yaml(error)))
        except yaml.YAMLError:
            self.faults.append(Detail(self.name, "not YAML: a control character stands in it"))
        except RecursionError:
            self.faults.append(Detail(self.name, "nested too deeply for a settings file"))
        return None

    def _section(self, section: str, node: yaml.Node) -> None:
        if not isinstance(node, yaml.MappingNode) or node.tag != _MAP:
            what = f"{section} takes" if section else "the file takes"
            self._fault(node, f"{what} names and values, each as `name: value` on its own line")
            return
        names: set[str] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._fault(key, "a name is needed before the colon")
                continue
            name = f"{section}.{key.value}" if section else key.value
            if name in names:
                self._fault(key, f"{name} stands twice: remove one")
            else:
                names.add(name)
                self._member(name, key, value)

    def _member(self, name: str, key: yaml.ScalarNode, value: yaml.Node) -> None:
        setting = find_setting(name)
        if is_section(name):
            self._section(name, value)
        elif setting is None:
            self._fault(key, f"{name} is not a setting: {suggest_setting(name)}")
        elif setting.many and _is_list(value):
            self.settings[name] = GivenSetting(
                f"[{','.join(item.value for item in value.value)}]",
                self._position(value.start_mark),
            )
        elif not _is_scalar(value):
            count = "a list of plain values" if setting.many else "one plain value"
            self._fault(value, f"{name} takes {count}: write {setting.form}")
        elif not value.value:
            self._fault(key, f"{name} has no value: write {setting.form}, or remove the line")
        else:
            self.settings[name] = GivenSetting(value.value, self._position(value.start_mark))

    def _fault(self, node: yaml.Node, text: str) -> None:
        self.faults.append(Detail(self._position(node.start_mark), text))

    def _position(self, mark: yaml.Mark | None) -> str:
        return self.name if mark is None else f"{self.name}:{mark.line + 1}:{mark.column + 1}"


def _is_scalar(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == _TEXT


def _is_list(node: yaml.Node) -> bool:
    return (
        isinstance(node, yaml.SequenceNode)
        and node.tag == _LIST
        and all(map(_is_scalar, node.value))
    )


# Environment variables → settings: ``DOMICILE__LISTEN__PROXY`` is ``listen.proxy``.

#: Every variable with this prefix is a setting, known or not. Two underscores, because an
#: orchestrator defines variables for a service of that name (``DOMICILE_SERVICE_HOST``).
VARIABLE_PREFIX: Final = "DOMICILE__"


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return VARIABLE_PREFIX + name.upper().replace(".", "__")


#: What looks like a setting and is none -> the variable that is meant. ``keys: env:DOMICILE_KEYS``
#: is a fair name for a key.
_NEARLY: Final = {
    variable(name).replace("__", "_"): variable(name)
    for name in SETTINGS
    if not name.startswith("keys")
}


def read_environment(environ: Mapping[str, str]) -> tuple[dict[str, GivenSetting], list[Detail]]:
    """The settings in an environment, by dotted name, and the faults in it, sorted by name."""
    settings: dict[str, GivenSetting] = {}
    faults: list[Detail] = []
    for written in sorted(environ):
        if not written.startswith(VARIABLE_PREFIX):
            if meant := _NEARLY.get(written):
                faults.append(
                    Detail(
                        written, f"this sets nothing, for one underscore is missing: write {meant}"
                    )
                )
            continue
        name = written.removeprefix(VARIABLE_PREFIX).lower().replace("__", ".")
        text = environ[written]
        if fault := _fault(written, name, text):
            faults.append(Detail(written, fault))
        else:
            settings[name] = GivenSetting(text, written)
    return settings, faults


def _fault(written: str, name: str, text: str) -> str | None:
    setting = find_setting(name)
    if is_section(name):
        first = next(
            (setting for setting in SETTINGS if setting.startswith(f"{name}.")),
            f"{APPLICATIONS}.name.connect",
        )
        return f"{name} has members: set each, such as {variable(first)}"
    if setting is None:
        return f"{name} is not a setting: {suggest_setting(name)}"
    if written != variable(name):
        return f"write it in capital letters: {variable(name)}"
    if not text:
        return f"the variable is empty: write {setting.form}, or unset it"
    return None
