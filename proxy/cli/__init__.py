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

#: What each is for, as its object says it: the list of commands is printed without importing any.
SUMMARIES: Final[dict[str, str]] = {
    "demo": "See it work: a sample application, the proxy and the vault, and a page that shows both views.",
    "init": "Make the data folder, the key file, an empty vault and its first client, whose secret is printed once.",
    "serve": "Serve: the redacting proxy, the vault's own interface and the admin listener, until SIGTERM or Ctrl-C.",
    "check": "Look at settings, rules, schemas, policies, keys, store, secrets, TLS files and resident functions and name every fault; listens nowhere. With --url: ask a running instance.",
    "client": "Make, list and end clients of the vault's own interface.",
    "approval": "List, approve and refuse what needs a second person (setting auth.four_eyes).",
    "emergency": "Take a role that this client was prepared for, with an alarm, or end it.",
    "environment": "Make, list and remove environments.",
    "health": "Ask a running instance whether it is well; the exit status tells.",
    "token": "Print an access token of a running instance, for scripts.",
    "keys": "List, rotate and verify the keys of a vault; no key is ever printed.",
    "policy": "Apply, list and show access policies.",
    "reload": "Load rules, schemas, policies and certificates of a running instance again.",
    "rules": "Check, test, explain, compare and propose rule files.",
    "coverage": "Show what rules protect, what passes on purpose, and the paths, parameters and members that no rule names: since when, how often, and the kinds of values suspected where.",
    "adopt": "Turn what an application holds already into tokens, while it is used; resumable.",
    "release": "Give an application its clear values back, record by record; resumable.",
    "schema": "Declare, list and show the schemas of records.",
    "store": "Look after the store of a stopped instance, or move it to another one.",
    "backup": "Write everything that an instance keeps to one sealed file, also while it runs; without the master key.",
    "restore": "Bring a vault back from a backup: verified first, and never over what is there.",
    "audit": "Verify and read the audit log, also while an instance runs.",
    "import": "Store records from a file; resumable.",
    "export": "Write all records of a schema to a file, sealed by default.",
    "person": "Export or erase everything that has a value of one person, over all schemas.",
    "rehash": "Give all records new tokens, online; without --rules and --forget, follow the rehash under way.",
    "completion": "Print a script that completes commands and options in a shell.",
}  # fmt: skip


def commands(*names: str) -> dict[str, Command]:
    """The commands of these names; all of them where none is named."""
    return {name: resolve_name(COMMANDS[name]) for name in names or COMMANDS}


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
