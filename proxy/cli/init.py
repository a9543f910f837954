"""``domicile init``: data folder, key file, an empty vault and its first client; what to keep."""

import argparse
import dataclasses
import os
import sys
from typing import Final

from proxy.cli import command
from proxy.cli.client import client_text, credentials_text
from proxy.cli.command import Arguments, Command, argument
from proxy.config import Settings, load_settings
from proxy.config.load import DEFAULT_FILE
from proxy.config.parsers import country
from proxy.model.record import DEFAULT


def run(arguments: Arguments) -> int:
    """Make missing parts. Running it again changes nothing, and shows no secret."""
    import asyncio

    from proxy.bootstrap.first_client import first_client
    from proxy.bootstrap.instance import prepare_instance

    loaded = load_settings(arguments.config, os.environ)
    settings = dataclasses.replace(
        loaded, country=arguments.country or loaded.country or _ask_country(loaded)
    )
    created = asyncio.run(prepare_instance(settings))
    client = asyncio.run(first_client(settings))
    data = {
        "environment_id": DEFAULT,
        "country": settings.country,
        "store": settings.store.label,
        "keys": settings.keys.described,
        "made": created,
    }
    if client is not None:
        data |= credentials_text(settings, client)
    text = "\n".join(
        [
            "Made the vault."
            if created
            else f"The vault was there already{'.' if client else '; nothing was changed.'}",
            f"  country      {settings.country}",
            f"  store        {settings.store.label}",
            f"  keys         {settings.keys.described}",
            *(
                [
                    client_text(
                        "Made the first client, an administrator.",
                        credentials_text(settings, client),
                    )
                ]
                if client is not None
                else []
            ),
            (
                "Keep a copy of the keys in another place than the copies of the store: without "
                "them nothing can be read again."
            ),
            _next(settings.country, loaded.country, arguments),
        ]
    )
    return command.show(arguments, data, text)


def _ask_country(settings: Settings) -> str:
    """Return the country of an existing vault, else the one typed on a terminal.

    Raises ``VaultError`` (BAD_SETTINGS).
    """
    from proxy.bootstrap.open_vault import country_of, has_vault

    if has_vault(settings) or not sys.stdin.isatty():
        return country_of(settings)
    while True:
        print(
            "Whose personal data does this vault keep? Country code of two letters, such as se: ",
            end="",
            file=sys.stderr,
            flush=True,
        )
        line = sys.stdin.readline()
        if not line:
            return country_of(settings)
        try:
            return country(line.strip())
        except ValueError as error:
            print(f"  {error}", file=sys.stderr)


def _next(country: str, written: str, arguments: Arguments) -> str:
    """Describe the next step; settings that name another country would be refused."""
    if written in ("", country):
        return "Next: domicile serve"
    return (
        f"Next: write `country: {country}` into {arguments.config or DEFAULT_FILE}, which says "
        f"{written}. Then: domicile serve"
    )


def _country(text: str) -> str:
    try:
        return country(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}; write two letters, such as se") from None


#: For a first try without a settings file.
_arguments: Final = argument("--country", metavar="CC", type=_country,
    help="the country of this instance, such as se")  # fmt: skip

COMMAND: Final = Command("Make the data folder, the key file, an empty vault and its first client, "
    "whose secret is printed once.", "domicile init --country se", run, _arguments)  # fmt: skip
