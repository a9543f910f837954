"""``domicile token``: an access token of a running instance, for scripts."""

import contextlib
from typing import Final

from proxy.cli import command
from proxy.cli.backend import optional_url
from proxy.cli.command import Arguments, Command, argument_list
from proxy.cli.remote import administered


def run(arguments: Arguments) -> int:
    """Print a token of the client that the environment names, and nothing else."""
    with contextlib.closing(administered(arguments)) as instance:
        token = instance.new_token()
        data = {"access_token": token, "token_type": "Bearer", "vault_url": instance.url}
    return command.show(arguments, data, token)


_arguments: Final = argument_list(
    optional_url("the vault listener of the settings"),
    # a token is a client's, and over the socket there is none
    lambda parser: parser.set_defaults(prepare=None),
)

COMMAND: Final = Command("Print an access token of a running instance, for scripts.",
    "domicile token --url https://se-vault.example.com", run, _arguments)  # fmt: skip
