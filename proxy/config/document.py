"""A settings file → the text and place of each setting in it, and its faults.

YAML is read without its traps: every scalar is a text (``no`` is not false, ``1:30`` is not ninety), a key that stands
twice is a fault, and so are tags and anchors, which settings do not need.
"""

from typing import Final, NamedTuple

import yaml

from proxy.config.naming import find, is_section, nearest
from proxy.errors import Detail

#: A settings file is a page of text; more is a mistake, such as a wrong file.
LARGEST: Final = 256 * 1024

_TEXT: Final = "tag:yaml.org,2002:str"
_MAP: Final = "tag:yaml.org,2002:map"
_LIST: Final = "tag:yaml.org,2002:seq"


def not_yaml(error: yaml.MarkedYAMLError) -> str:
    """What a file says that is not YAML, and what helps where a tab was found."""
    hint = "; indent with spaces, not with tabs" if "\\t" in (error.problem or "") else ""
    return f"not YAML: {error.problem or 'not readable'}{hint}"


class Given(NamedTuple):
    """One setting as somebody wrote it, and where: ``file:line:column`` or the name of a variable."""

    text: str
    place: str


class Document:
    """Reads one settings file: ``given`` by dotted name, ``faults`` in order of the file."""

    def __init__(self, name: str, content: bytes) -> None:
        self.name = name
        self.given: dict[str, Given] = {}
        self.faults: list[Detail] = []
        root = self._compose(content)
        if root is not None and not (isinstance(root, yaml.ScalarNode) and root.value == ""):
            self._section("", root)

    def _compose(self, content: bytes) -> yaml.Node | None:
        if len(content) > LARGEST:
            self.faults.append(Detail(self.name, f"larger than {LARGEST // 1024} KiB: is this the settings file?"))
            return None
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            self.faults.append(Detail(f"{self.name}:{line}", "not UTF-8: save the file in that encoding"))
            return None
        try:
            return yaml.compose(text, Loader=yaml.BaseLoader)
        except yaml.MarkedYAMLError as error:
            self.faults.append(Detail(self._place(error.problem_mark), not_yaml(error)))
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
        seen: set[str] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._fault(key, "a name is needed before the colon")
                continue
            name = f"{section}.{key.value}" if section else key.value
            if name in seen:
                self._fault(key, f"{name} stands twice: remove one")
            else:
                seen.add(name)
                self._member(name, key, value)

    def _member(self, name: str, key: yaml.ScalarNode, value: yaml.Node) -> None:
        setting = find(name)
        if is_section(name):
            self._section(name, value)
        elif setting is None:
            self._fault(key, f"{name} is not a setting: {nearest(name)}")
        elif setting.many and _is_list(value):
            self.given[name] = Given(f"[{','.join(item.value for item in value.value)}]", self._place(value.start_mark))
        elif not _plain(value):
            count = "a list of plain values" if setting.many else "one plain value"
            self._fault(value, f"{name} takes {count}: write {setting.form}")
        elif not value.value:
            self._fault(key, f"{name} has no value: write {setting.form}, or remove the line")
        else:
            self.given[name] = Given(value.value, self._place(value.start_mark))

    def _fault(self, node: yaml.Node, text: str) -> None:
        self.faults.append(Detail(self._place(node.start_mark), text))

    def _place(self, mark: yaml.Mark | None) -> str:
        return self.name if mark is None else f"{self.name}:{mark.line + 1}:{mark.column + 1}"


def _plain(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == _TEXT


def _is_list(node: yaml.Node) -> bool:
    return isinstance(node, yaml.SequenceNode) and node.tag == _LIST and all(map(_plain, node.value))
