"""Options that several commands have: an instance, an environment, files."""

import argparse
import urllib.parse
from pathlib import Path
from typing import Final

from proxy.cli import remote
from proxy.cli.command import AddArguments, argument, argument_list
from proxy.cli.health import is_address

_FORMATS: Final = ("jsonl", "csv")


def optional_url(otherwise: str, *, stopped: bool = False) -> AddArguments:
    """Return what adds ``--url``; ``otherwise``: the data without one. ``stopped``: the command
    works on a stopped vault, too.
    """
    return argument_list(
        argument("--url", type=_instance, metavar="URL",
            help=f"a running instance (default: {otherwise})"),
        lambda parser: parser.set_defaults(prepare=remote.use_socket, stopped=stopped),
    )  # fmt: skip


def _instance(text: str) -> str:
    """The address of an instance, or the path of its local socket."""
    parts = urllib.parse.urlsplit(text)
    if parts.scheme == "unix" and parts.path.startswith("/") and not parts.netloc:
        return text
    return site_address(text)


def site_address(text: str) -> str:
    """An address of scheme, host and port alone."""
    parts = urllib.parse.urlsplit(text)
    if not is_address(text, "http", "https") or parts.path not in ("", "/") or parts.query:
        raise argparse.ArgumentTypeError(
            "write scheme, host and port alone, such as http://127.0.0.1:8081"
        )
    return text


environment_argument: Final = argument("--environment", default="default", metavar="ID",
    help="the environment (default: default)")  # fmt: skip

#: ``--url`` alone, for commands that work in the environment of their client.
url_argument: Final = optional_url(
    "the store of the settings, while no instance runs", stopped=True
)
#: The arguments of commands that talk to an instance.
instance_arguments: Final = argument_list(url_argument, environment_argument)
#: The same of commands that need an instance that runs.
running_arguments: Final = argument_list(
    optional_url("the vault listener of the settings"), environment_argument
)


def records_arguments(schema: str) -> AddArguments:
    """As ``running_arguments``, with a schema and the kind of a file."""
    return argument_list(
        running_arguments,
        argument("--schema", required=True, metavar="NAME", help=schema),
        argument("--format", choices=_FORMATS,
            help="kind of the content (default: by the ending of the name)"),
    )  # fmt: skip


#: As ``instance_arguments``, with files that declare items.
files_arguments: Final = argument_list(
    instance_arguments,
    argument("files", nargs="+", type=Path, metavar="FILE", help="YAML files, or folders of them"),
)  # fmt: skip
