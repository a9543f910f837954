"""``domicile export``: all records of a schema of a running instance into a file, sealed unless the
operator wants them in the clear.

Sealed with a key that is derived from the master key of the settings, so that only who holds that
key reads the file, with ``domicile import``. The file is made under another name and takes its own
when it is complete.
"""

import contextlib
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from proxy.cli import SUMMARIES, command, remote
from proxy.cli.command import Arguments, Command, Progress, argument, argument_list, progress
from proxy.cli.import_ import key_of, types_of
from proxy.cli.options import records_arguments
from proxy.cli.record_files import FORMATS, seal
from proxy.errors import Code, VaultError
from proxy.model.query import VERSION_FIELD
from proxy.model.schema import RECORDS_SCHEMA

#: Records of one page.
_PAGE: Final = 500

#: Members that the service sets; no import takes them.
_OF_THE_SERVICE: Final = frozenset({"created_at", "updated_at", "attachments"})


def run(arguments: Arguments) -> int:
    """Export everything, or nothing at all."""
    target: Path = arguments.file
    command.refuse_existing(target)
    kind = arguments.format or _kind(target)
    count = [0]
    bar = progress(f"export {arguments.schema}", None, "records")
    with contextlib.closing(bar), contextlib.closing(remote.remote(arguments)) as instance:
        types = {**types_of(instance, arguments.schema), "expires_at": "datetime"}
        text = FORMATS[kind].write(_records(instance, arguments.schema, bar, count), types)
        size = (
            (piece.encode() for piece in text)
            if arguments.clear
            else seal(text, arguments.schema, kind, key_of(arguments))
        )
        command.write_file(target, size)
    data = {
        "file": str(target),
        "schema": arguments.schema,
        "records": count[0],
        "sealed": not arguments.clear,
    }
    answer = (
        "in the clear: keep it as you keep the people in it"
        if arguments.clear
        else "sealed with the keys of this vault"
    )
    return command.show(
        arguments, data, f"{count[0]} records of {arguments.schema} in {target}, {answer}"
    )


def _kind(target: Path) -> str:
    """The format that the ending of a name tells, ``.sealed`` after it or not."""
    ending = Path(target.name.removesuffix(".sealed")).suffix.removeprefix(".").lower()
    return ending if ending in FORMATS else "jsonl"


def _records(
    instance: remote.Remote, schema: str, bar: Progress, count: list[int]
) -> Iterator[Mapping[str, Any]]:
    """Every record in the order of its age.

    Raises ``VaultError`` where one cannot be read: no export is quietly incomplete.
    """
    unwanted = _OF_THE_SERVICE if schema == RECORDS_SCHEMA else _OF_THE_SERVICE | {VERSION_FIELD}
    path = f"/api/models/{urllib.parse.quote(schema)}/export?limit={_PAGE}"
    for page in instance.pages(path):
        if page["meta"].get("unreadable"):
            raise VaultError(
                Code.CANNOT_OPEN,
                "Records of this schema do not open, so the export would not be complete: see "
                "`domicile store verify`.",
            )
        for record in page["data"]:
            yield {name: value for name, value in record.items() if name not in unwanted}
        count[0] += len(page["data"])
        bar.update(len(page["data"]))


_arguments: Final = argument_list(
    records_arguments("the schema whose records are wanted"),
    argument("--clear", action="store_true",
        help="write the values in the clear, readable to anyone with the file"),
    argument("file", type=Path, metavar="FILE",
        help="the file to make, such as contacts.jsonl.sealed"),
)  # fmt: skip

COMMAND: Final = Command(SUMMARIES["export"],
    "domicile export --schema contact contacts.jsonl.sealed", run, _arguments)  # fmt: skip
