"""Locates what is refused in a document of JSON, for messages and log lines."""

import json
import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Final

from proxy.errors import Code, Detail, VaultError
from proxy.redactor.coverage import parameter_word
from proxy.redactor.json.text import JOINTS, lone_surrogate
from proxy.redactor.json.tree import Selectors
from proxy.redactor.json.walk import DocumentWalk, WalkFrame, WalkSpan

_TEXT = "is ambiguous"
#: Longest document that is looked through: the walk takes ten times as long as the reading that met
#: the fault.
_LONGEST = 16 * 1024


class _Traced(DocumentWalk):
    """A walk that remembers where it met what makes the document ambiguous."""

    member: tuple[str | int, ...] | None = None

    def __init__(self, selectors: Selectors, document: tuple[bytes, int], *, nested: bool) -> None:
        super().__init__(selectors, *document, nested=nested)
        self._suspected: list[tuple[str | int, ...]] = []

    def _judge(self, frame: WalkFrame, name: str, chosen: bool) -> None:
        before, self._doubt = self._doubt, ""
        super()._judge(frame, name, chosen)
        if self._doubt:
            self.member = self._way()
        self._doubt = self._doubt or before

    def _suspect(self, frame: WalkFrame, name: str, at: int) -> None:
        before = len(self._suspects)
        super()._suspect(frame, name, at)
        if len(self._suspects) > before:
            self._suspected.append(self._way())

    def _misled(self) -> bool:
        for member, (at, name, nested) in zip(self._suspected, self._suspects, strict=True):
            if self.member is None and nested.reaches(name, self.body[at : self._behind(at)]):
                self.member = member
        return super()._misled()

    def _close(self, opened: Iterable[WalkSpan], end: int) -> None:
        selected = [span for span in opened if span.sink is not None]
        if any(lone_surrogate(self.body, span.start, end) for span in selected):
            self.member = self._way()
        super()._close(opened, end)


def located(
    error: VaultError, selectors: Selectors, document: tuple[bytes, int], *, nested: bool
) -> VaultError:
    """The refusal of an ambiguous document with the member of the member that makes it so (a JSON
    Pointer); any other error as it is.

    ``document``: with the most levels. Names that are neither those of the selectors, or nearly,
    nor public are shown as ``{word}``.
    """
    if error.code is not Code.AMBIGUOUS_JSON or len(document[0]) > _LONGEST:
        return error
    objects, leaves, anchored, _ = selectors
    run = _Traced(selectors, document, nested=nested)
    with suppress(VaultError):  # it is told already
        run.read()
    if run.member is None:
        return error
    paths = (objects or (), *leaves, *anchored)
    names = {step.lower() for path in paths for step in path if isinstance(step, str)}
    words = names | {name.translate(JOINTS) for name in names}
    steps = [
        str(step)
        if isinstance(step, int) or step.lower().translate(JOINTS) in words
        else parameter_word(step, words)
        for step in run.member
    ]
    pointer = "".join(f"/{step.replace('~', '~0').replace('/', '~1')}" for step in steps)
    return VaultError(error.code, error.message, (Detail(pointer, _TEXT),))


#: The parts of a JSON document that tell where one is.
_PART: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\],:]', re.DOTALL)


def selector_of(document: bytes, start: int, words: Collection[str]) -> str:
    """The selector of the value at this byte; only ``words`` and public names are told."""
    steps = (
        f".{parameter_word(one, words)}" if isinstance(one, str) else "[*]"
        for one in steps_to(document, start)
    )
    return "$" + "".join(steps)


def steps_to(document: bytes, start: int) -> list[str | int]:
    """The way to the value that begins at this byte of a JSON document."""
    way: list[str | int] = []
    name = b""
    for part in _PART.finditer(document):
        if part.start() >= start:
            break
        text = part[0]
        if text == b"{":
            way.append("")
        elif text == b"[":
            way.append(0)
        elif text in (b"}", b"]"):
            way.pop()
        elif text == b",":
            last = way[-1]
            way[-1] = last + 1 if isinstance(last, int) else ""
        elif text == b":":
            way[-1] = json.loads(name)
        else:
            name = text
    return way
