"""``domicile import``: store records from a file."""

import argparse
from pathlib import Path
from typing import Final

from proxy.cli.command import Arguments, Command
from proxy.cli.instance import records_arguments


def run(arguments: Arguments) -> int:
    """Store records; what does it loads the HTTP client and ciphers, so it is a file of its own."""
    from proxy.cli.importer import run as carry_out

    return carry_out(arguments)


def _arguments(parser: argparse.ArgumentParser) -> None:
    records_arguments(parser, "the schema that the records belong to")
    parser.add_argument(
        "--existing",
        choices=("refuse", "skip", "update"),
        default="refuse",
        help="what becomes of a record whose key is used: refuse (the default), skip, or update",
    )
    parser.add_argument(
        "--rejects",
        type=Path,
        metavar="FILE",
        help="add what cannot be taken to this file, as JSON Lines, and go on; a line that cannot be read stands there as text",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="JSON Lines or CSV, or what domicile export made")


COMMAND: Final = Command(
    summary="Store records from a file; resumable.",
    example="domicile import --schema contact contacts.csv",
    run=run,
    arguments=_arguments,
    data=True,
)
