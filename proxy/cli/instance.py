"""How a command line names a running instance and what it is about, and what is said where one has the vault."""

import argparse
import contextlib
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from proxy.errors import Code, VaultError

_FORMATS: Final = ("jsonl", "csv")


def instance_arguments(
    parser: argparse.ArgumentParser, otherwise: str = "the store of the settings, while no instance runs"
) -> None:
    """What every command that talks to an instance takes; ``otherwise``: what it works on without a URL."""
    parser.add_argument("--url", type=_address, metavar="URL", help=f"a running instance (default: {otherwise})")
    parser.add_argument("--environment", default="default", metavar="ID", help="the environment (default: default)")


def _address(text: str) -> str:
    parts = urllib.parse.urlsplit(text)
    try:
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and min(text) > " "
    except ValueError:
        whole = False
    if not whole or parts.path not in ("", "/") or parts.query:
        raise argparse.ArgumentTypeError("write scheme, host and port alone, such as http://127.0.0.1:8081")
    return text


def records_arguments(parser: argparse.ArgumentParser, schema: str) -> None:
    """As ``instance_arguments``, with a schema and the kind of a file."""
    instance_arguments(parser, "the vault listener of the settings")
    parser.add_argument("--schema", required=True, metavar="NAME", help=schema)
    parser.add_argument("--format", choices=_FORMATS, help="kind of the content (default: by the ending of the name)")


def files_arguments(parser: argparse.ArgumentParser) -> None:
    """As ``instance_arguments``, with files of what is to be declared there."""
    instance_arguments(parser)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="YAML files, or folders of them")


@contextlib.contextmanager
def stopped_first(advice: str) -> Iterator[None]:
    """Around work on a stopped vault: where an instance runs on it (STORE_BUSY), say what to do then."""
    try:
        yield
    except VaultError as error:
        if error.code is not Code.STORE_BUSY:
            raise
        raise VaultError(Code.STORE_BUSY, f"An instance runs on this vault: {advice}") from None
