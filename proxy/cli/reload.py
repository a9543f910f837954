"""``domicile reload``: a running instance loads its files again, asked by an operator."""

from typing import Final

from proxy.cli import command
from proxy.cli.backend import running_arguments
from proxy.cli.command import FAULT, OK, Arguments, Command
from proxy.cli.remote import ask_once, remote


def run(arguments: Arguments) -> int:
    """Exit status 0 if everything that was read is active."""
    data = ask_once(remote(arguments), "POST", "/api/reload")
    lines = [f"{what}: {state}" for what, state in data["checks"].items()]
    command.show(arguments, data, lines)
    return OK if all(state == "ok" for state in data["checks"].values()) else FAULT


COMMAND: Final = Command(
    "Load rules, schemas, policies and certificates of a running instance again.",
    "domicile reload --url https://vault.example.com", run, running_arguments)  # fmt: skip
