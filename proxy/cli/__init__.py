"""The command ``domicile``: one file per subcommand, all of them in ``COMMANDS``.

Why it exists: an operator's hands. A command reads its arguments, calls one thing below, prints what came of it, and
tells by its exit status how it went: 0 well, 1 a fault that it names, 2 wrong usage. No command prints a stored value.

What it may touch: everything below, and the terminal; it is the only room that prints. What is heavy (the
server, the vault) a command imports inside its ``run``, so that ``domicile health``, which probes call every few
seconds, starts fast.
"""

from collections.abc import Sequence
from typing import Final

from proxy.cli import (
    audit,
    check,
    client,
    demo,
    environment,
    export,
    health,
    import_,
    init,
    keys,
    policy,
    rehash,
    rules,
    schema,
    serve,
    store,
)
from proxy.cli.command import Command, execute

#: Every subcommand by its name; a group of subcommands is a command with ``children``.
COMMANDS: Final[dict[str, Command]] = {
    "demo": demo.COMMAND,
    "init": init.COMMAND,
    "serve": serve.COMMAND,
    "check": check.COMMAND,
    "client": client.COMMAND,
    "environment": environment.COMMAND,
    "health": health.COMMAND,
    "keys": keys.COMMAND,
    "policy": policy.COMMAND,
    "rules": rules.COMMAND,
    "schema": schema.COMMAND,
    "store": store.COMMAND,
    "audit": audit.COMMAND,
    "import": import_.COMMAND,
    "export": export.COMMAND,
    "rehash": rehash.COMMAND,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the arguments of the process where none are given. Answers the exit status."""
    return execute(COMMANDS, argv)
