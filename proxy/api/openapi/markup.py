"""The little Markdown that the texts of the document use, as HTML: headings, paragraphs, lists,
tables, `code`, **strong**, *emphasis*.
"""

import re
from collections.abc import Iterator
from html import escape
from typing import Final

_INLINE: Final = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|\*([^*]+)\*")
_CELL: Final = re.compile(r"(?<!\\)\|")


def inline(text: str) -> str:
    """A line of text as HTML."""
    parts: list[str] = []
    end = 0
    for found in _INLINE.finditer(text):
        parts.append(escape(text[end : found.start()]))
        for tag, content in zip(("code", "strong", "em"), found.groups(), strict=True):
            if content is not None:
                parts.append(f"<{tag}>{escape(content)}</{tag}>")
        end = found.end()
    return "".join([*parts, escape(text[end:])])


def blocks(text: str) -> str:
    """Paragraphs, headings, lists and tables as HTML; they are told apart by empty lines."""
    return "\n".join(_block(block.strip()) for block in re.split(r"\n\s*\n", text) if block.strip())


def _block(block: str) -> str:
    if block.startswith("## "):
        title = block.removeprefix("## ")
        return f'<h2 id="{anchor(title)}">{inline(title)}</h2>'
    if block.startswith("|"):
        return "".join(_table(block.splitlines()))
    if block.startswith("- "):
        items = (" ".join(item.split()) for item in re.split(r"^- ", block, flags=re.MULTILINE)[1:])
        return f"<ul>{''.join(f'<li>{inline(item)}</li>' for item in items)}</ul>"
    return f"<p>{inline(' '.join(block.splitlines()))}</p>"


def anchor(title: str) -> str:
    """What a heading is linked by."""
    return "-".join(re.findall(r"[a-z0-9]+", title.lower()))


def _table(lines: list[str]) -> Iterator[str]:
    head, _, *rows = lines
    yield "<table><thead><tr>"
    yield from (f"<th>{inline(cell)}</th>" for cell in _cells(head))
    yield "</tr></thead><tbody>"
    for row in rows:
        yield "<tr>"
        yield from (f"<td>{inline(cell)}</td>" for cell in _cells(row))
        yield "</tr>"
    yield "</tbody></table>"


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in _CELL.split(line.strip().strip("|"))]
