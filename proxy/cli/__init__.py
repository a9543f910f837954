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
from typing import Final, NamedTuple

from proxy.cli.command import Command, execute


class CommandEntry(NamedTuple):
    """A subcommand: the object that is it, and its line in the list of commands."""

    target: str
    summary: str


#: Every subcommand by its name; a group of subcommands is a command with ``children``.
COMMANDS: Final[dict[str, CommandEntry]] = {
    "demo": CommandEntry("proxy.cli.demo:COMMAND", "See it work: a sample application, the proxy and the vault, and a page that shows both views."),
    "init": CommandEntry("proxy.cli.client:INIT_COMMAND", "Make the data folder, the key file, an empty vault and its first client, whose secret is printed once."),
    "serve": CommandEntry("proxy.cli.serve:COMMAND", "Serve: the redacting proxy, the vault's own interface and the admin listener, until SIGTERM or Ctrl-C."),
    "check": CommandEntry("proxy.cli.check:COMMAND", "Look at settings, rules, schemas, policies, keys, store, secrets, TLS files and resident functions and name every fault; listens nowhere. With --url: ask a running instance."),
    "client": CommandEntry("proxy.cli.client:CLIENT_COMMAND", "Make, list and end clients of the vault's own interface."),
    "approval": CommandEntry("proxy.cli.operate:APPROVAL_COMMAND", "List, approve and refuse what needs a second person (setting auth.four_eyes)."),
    "emergency": CommandEntry("proxy.cli.operate:EMERGENCY_COMMAND", "Take a role that this client was prepared for, with an alarm, or end it."),
    "environment": CommandEntry("proxy.cli.client:ENVIRONMENT_COMMAND", "Make, list and remove environments."),
    "health": CommandEntry("proxy.cli.health:COMMAND", "Ask a running instance whether it is well; the exit status tells."),
    "token": CommandEntry("proxy.cli.operate:TOKEN_COMMAND", "Print an access token of a running instance, for scripts."),
    "keys": CommandEntry("proxy.cli.keys:COMMAND", "List, rotate and verify the keys of a vault; no key is ever printed."),
    "policy": CommandEntry("proxy.cli.declare:POLICY_COMMAND", "Apply, list and show access policies."),
    "reload": CommandEntry("proxy.cli.operate:RELOAD_COMMAND", "Load rules, schemas, policies and certificates of a running instance again."),
    "rules": CommandEntry("proxy.cli.rules:COMMAND", "Check, test, explain, compare and propose rule files."),
    "coverage": CommandEntry("proxy.cli.rules:COVERAGE_COMMAND", "Show what rules protect, what passes on purpose, and the paths, parameters and members that no rule names: since when, how often, and the kinds of values suspected where."),
    "adopt": CommandEntry("proxy.cli.adopt:ADOPT_COMMAND", "Turn what an application holds already into tokens, while it is used; resumable."),
    "release": CommandEntry("proxy.cli.adopt:RELEASE_COMMAND", "Give an application its clear values back, record by record; resumable."),
    "schema": CommandEntry("proxy.cli.declare:SCHEMA_COMMAND", "Declare, list and show the schemas of records."),
    "store": CommandEntry("proxy.cli.store:COMMAND", "Look after the store of a stopped instance, or move it to another one."),
    "backup": CommandEntry("proxy.cli.backup:BACKUP_COMMAND", "Write everything that an instance keeps to one sealed file, also while it runs; without the master key."),
    "restore": CommandEntry("proxy.cli.backup:RESTORE_COMMAND", "Bring a vault back from a backup: verified first, and never over what is there."),
    "audit": CommandEntry("proxy.cli.audit:COMMAND", "Verify and read the audit log, also while an instance runs."),
    "import": CommandEntry("proxy.cli.import_:COMMAND", "Store records from a file; resumable."),
    "export": CommandEntry("proxy.cli.export:COMMAND", "Write all records of a schema to a file, sealed by default."),
    "person": CommandEntry("proxy.cli.person:COMMAND", "Export or erase everything that has a value of one person, over all schemas."),
    "rehash": CommandEntry("proxy.cli.operate:REHASH_COMMAND", "Give all records new tokens, online; without --rules and --forget, follow the rehash under way."),
    "completion": CommandEntry("proxy.cli.completion:COMMAND", "Print a script that completes commands and options in a shell."),
}  # fmt: skip

SUMMARIES: Final = {name: entry.summary for name, entry in COMMANDS.items()}


def commands(*names: str) -> dict[str, Command]:
    """The commands of these names; all of them where none is named."""
    return {name: resolve_name(COMMANDS[name].target) for name in names or COMMANDS}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line (by default that of the process); return the exit status."""
    words = sys.argv[1:] if argv is None else argv
    # none is run without its name, but options may stand before that, or a wrong name
    chosen = [word for word in words if word in COMMANDS][:1]
    gc.disable()  # what is imported stays, and to look through it takes a tenth of the time
    try:
        loaded = commands(*chosen) if chosen else {}
    finally:
        gc.enable()
    if not chosen or words[0] != chosen[0]:
        listed = {name: Command(text, example="") for name, text in SUMMARIES.items()}
        loaded = {**listed, **loaded}
    return execute(loaded, argv)
