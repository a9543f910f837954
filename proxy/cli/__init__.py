"""The command ``domicile``: its subcommands with the file of each in ``COMMANDS``.

A command reads its arguments, calls one thing below, prints the result, and sets its exit status: 0
success, 1 a named fault, 2 wrong usage. No command prints a stored value. It may touch everything
below, and the terminal; it is the only room that prints. Only the requested command is imported, so
that ``domicile health``, which probes call every few seconds, starts fast. Face: what stands here.
"""

import gc
import sys
from collections.abc import Sequence
from pkgutil import resolve_name
from typing import Final

from proxy.cli.command import Command, execute

#: Every subcommand by its name, with the object that is it; a group of subcommands is a command
#: with ``children``.
COMMANDS: Final[dict[str, str]] = {
    "demo": "proxy.cli.demo:COMMAND",
    "init": "proxy.cli.client:INIT_COMMAND",
    "serve": "proxy.cli.serve:COMMAND",
    "check": "proxy.cli.check:COMMAND",
    "client": "proxy.cli.client:CLIENT_COMMAND",
    "approval": "proxy.cli.operate:APPROVAL_COMMAND",
    "emergency": "proxy.cli.operate:EMERGENCY_COMMAND",
    "environment": "proxy.cli.client:ENVIRONMENT_COMMAND",
    "health": "proxy.cli.health:COMMAND",
    "token": "proxy.cli.operate:TOKEN_COMMAND",
    "keys": "proxy.cli.keys:COMMAND",
    "policy": "proxy.cli.declare:POLICY_COMMAND",
    "reload": "proxy.cli.operate:RELOAD_COMMAND",
    "rules": "proxy.cli.rules:COMMAND",
    "coverage": "proxy.cli.rules:COVERAGE_COMMAND",
    "adopt": "proxy.cli.adopt:ADOPT_COMMAND",
    "release": "proxy.cli.adopt:RELEASE_COMMAND",
    "schema": "proxy.cli.declare:SCHEMA_COMMAND",
    "store": "proxy.cli.store:COMMAND",
    "backup": "proxy.cli.backup:BACKUP_COMMAND",
    "restore": "proxy.cli.backup:RESTORE_COMMAND",
    "audit": "proxy.cli.audit:COMMAND",
    "import": "proxy.cli.import_:COMMAND",
    "export": "proxy.cli.export:COMMAND",
    "person": "proxy.cli.person:COMMAND",
    "rehash": "proxy.cli.operate:REHASH_COMMAND",
    "completion": "proxy.cli.completion:COMMAND",
}


def commands(*names: str) -> dict[str, Command]:
    """The commands of these names; all of them where none is named."""
    return {name: resolve_name(COMMANDS[name]) for name in names or COMMANDS}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line (by default that of the process); return the exit status."""
    words = sys.argv[1:] if argv is None else argv
    chosen = words[:1] if words and words[0] in COMMANDS else ()
    gc.disable()  # what is imported stays, and to look through it takes a tenth of the time
    try:
        loaded = commands(*chosen)
    finally:
        gc.enable()
    return execute(loaded, argv)
