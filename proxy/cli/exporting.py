"""``domicile export``: write the records of a schema to a file."""

import argparse
from pathlib import Path
from typing import Final

from proxy.cli.command import Arguments, Command
from proxy.cli.instance import records_arguments


def run(arguments: Arguments) -> int:
    """Write records to a file; as with ``importing``."""
    from proxy.cli.exporter import run as carry_out

    return carry_out(arguments)


def _arguments(parser: argparse.ArgumentParser) -> None:
    records_arguments(parser, "the schema whose records are wanted")
    parser.add_argument(
        "--clear", action="store_true", help="write the values for whoever gets hold of the file, not sealed"
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="the file to make, such as contacts.jsonl.sealed")


COMMAND: Final = Command(
    summary="Write all records of a schema to a file, sealed by default.",
    example="domicile export --schema contact contacts.jsonl.sealed",
    run=run,
    arguments=_arguments,
    data=True,
)
