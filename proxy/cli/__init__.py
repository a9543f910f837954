"""The command ``domicile``: one file per subcommand, all of them in ``COMMANDS``.

A command reads its arguments, calls one thing below, prints the result, and sets its exit status: 0
success, 1 a named fault, 2 wrong usage. No command prints a stored value. It may touch everything
below, and the terminal; it is the only room that prints. Only the requested command is imported, so
that ``domicile health``, which probes call every few seconds, starts fast. Face: what stands here.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from proxy.cli.command import Command, execute

#: Every subcommand by its name, with the module that holds it; a group of subcommands is a command
#: with ``children``.
COMMANDS: Final[dict[str, str]] = {
    "demo": "proxy.cli.demo",
    "init": "proxy.cli.init",
    "serve": "proxy.cli.serve",
    "check": "proxy.cli.check",
    "client": "proxy.cli.client",
    "approval": "proxy.cli.approval",
    "emergency": "proxy.cli.emergency",
    "environment": "proxy.cli.environment",
    "health": "proxy.cli.health",
    "token": "proxy.cli.token",
    "keys": "proxy.cli.keys",
    "policy": "proxy.cli.policy",
    "reload": "proxy.cli.reload",
    "rules": "proxy.cli.rules",
    "coverage": "proxy.cli.coverage",
    "adopt": "proxy.cli.adopt",
    "release": "proxy.cli.release",
    "schema": "proxy.cli.schema",
    "store": "proxy.cli.store",
    "backup": "proxy.cli.backup",
    "restore": "proxy.cli.restore",
    "audit": "proxy.cli.audit",
    "import": "proxy.cli.import_",
    "export": "proxy.cli.export",
    "person": "proxy.cli.person",
    "rehash": "proxy.cli.rehash",
    "completion": "proxy.cli.completion",
}


def commands(*names: str) -> dict[str, Command]:
    """The commands of these names; all of them where none is named."""
    return {name: import_module(COMMANDS[name]).COMMAND for name in names or COMMANDS}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the arguments of the process where none are given.

    Answers the exit status.
    """
    words = sys.argv[1:] if argv is None else argv
    chosen = words[:1] if words and words[0] in COMMANDS else ()
    return execute(commands(*chosen), argv)
