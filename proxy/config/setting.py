"""What a setting is; the table of all of them is ``config.table``."""

from typing import NamedTuple

from proxy.config import values


class Setting(NamedTuple):
    """One setting: its default as an operator would write it, its reader, what to write, and what it means."""

    default: str
    read: values.Reader
    form: str  #: completes the sentence "write …"
    meaning: str
    many: bool = False  #: a list may be written; the reader gets its items with commas between them
