"""``domicile reload``: a running instance loads its files again, asked by an operator."""

import contextlib
import os
from typing import Final

from proxy.cli import command
from proxy.cli.backend import instance_arguments
from proxy.cli.command import FAULT, OK, Arguments, Command
from proxy.cli.remote import remote


def run(arguments: Arguments) -> int:
    """Exit status 0 if everything that was read is active."""
    headers = {"Idempotency-Key": os.urandom(16).hex()}
    with contextlib.closing(remote(arguments)) as instance:
        data = instance.content("POST", "/api/reload", headers=headers)
    lines = [f"{what}: {state}" for what, state in data["checks"].items()]
    command.show(arguments, data, lines)
    return OK if all(state == "ok" for state in data["checks"].values()) else FAULT


COMMAND: Final = Command(
    summary="Load rules, schemas, policies and certificates of a running instance again.",
    example="domicile reload --url https://vault.example.com",
    run=run,
    arguments=lambda parser: instance_arguments(parser, "the vault listener of the settings"),
)
