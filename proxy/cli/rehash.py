"""``domicile rehash``: give all records of the record-based family new tokens, and follow how far that is."""

import argparse
from pathlib import Path
from typing import Final

from proxy.cli.command import Arguments, Command
from proxy.cli.instance import instance_arguments


def run(arguments: Arguments) -> int:
    """Begin or follow a rehash; what does it loads the HTTP client, so it is a file of its own."""
    from proxy.cli.rehasher import run as carry_out

    return carry_out(arguments)


def _arguments(parser: argparse.ArgumentParser) -> None:
    instance_arguments(parser, "the vault listener of the settings")
    parser.add_argument(
        "--rules",
        type=Path,
        metavar="RULES",
        help="begin: a JSON file with the rules by field; your key (dtk) stands in the variable DOMICILE_DTK",
    )
    parser.add_argument("--forget", action="store_true", help="let old tokens be found no longer")
    parser.add_argument("--stop", action="store_true", help="stop the one under way; what it has done stays")
    parser.add_argument(
        "--tokens", type=Path, metavar="FILE", help="at the end, write the newest tokens of all records as JSON Lines"
    )


COMMAND: Final = Command(
    summary="Give all records new tokens, online; without --rules and --forget, follow the run under way.",
    example="domicile rehash --rules rules.json --tokens tokens.jsonl",
    run=run,
    arguments=_arguments,
    data=True,
)
