"""``domicile init``: data folder, key file, an empty vault and its first client; says what to keep safe."""

import argparse
import dataclasses
import os
from typing import Final

from proxy.cli import output
from proxy.cli.client import as_text, told
from proxy.cli.command import OK, Arguments, Command
from proxy.config import load
from proxy.config.load import DEFAULT_FILE
from proxy.config.values import country
from proxy.model.environment import DEFAULT


def arguments(parser: argparse.ArgumentParser) -> None:
    """The country may be given here, for a first try without a settings file."""
    parser.add_argument("--country", metavar="CC", type=_country, help="the country of this instance, such as se")


def run(arguments: Arguments) -> int:
    """Make what is missing. Running it again changes nothing, and shows no secret."""
    import asyncio

    from proxy.bootstrap import first_client, prepare

    given = load(arguments.config, os.environ)
    settings = dataclasses.replace(given, country=arguments.country or given.country)
    made = asyncio.run(prepare(settings))
    client = asyncio.run(first_client(settings))
    place = settings.keys.place if settings.keys.source == "file" else f"the environment variable {settings.keys.place}"
    data = {
        "environment_id": DEFAULT,
        "country": settings.country,
        "store": str(settings.store.path),
        "keys": place,
        "made": made,
    }
    if client is not None:
        data |= told(settings, client)
    text = "\n".join(
        [
            "Made the vault." if made else f"The vault was there already{'.' if client else '; nothing was changed.'}",
            f"  country      {settings.country}",
            f"  store        {settings.store.path}",
            f"  keys         {place}",
            *(
                [as_text("Made the first client, an administrator.", told(settings, client))]
                if client is not None
                else []
            ),
            "Keep a copy of the keys in another place than the copies of the store: without them nothing can be read again.",
            _next(settings.country, arguments) if settings.country != given.country else "Next: domicile serve",
        ]
    )
    output.show(data, text, as_json=arguments.json)
    return OK


def _next(country: str, arguments: Arguments) -> str:
    """The vault does not keep the country: without this hint ``serve`` would quietly go by that of the settings."""
    file = arguments.config or DEFAULT_FILE
    return f"Next: write `country: {country}` into {file}, for the vault does not keep it. Then: domicile serve"


def _country(text: str) -> str:
    try:
        return country(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}; write two lower-case letters, such as se") from None


COMMAND: Final = Command(
    summary="Make the data folder, the key file, an empty vault and its first client, whose secret is printed once.",
    example="domicile init --country se",
    run=run,
    arguments=arguments,
    data=True,
)
