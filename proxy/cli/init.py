"""``domicile init``: data folder, key file and an empty vault; says what to keep safe."""

import argparse
import os
from typing import Final

from proxy.cli import output
from proxy.cli.command import OK, Arguments, Command
from proxy.config import load


def arguments(parser: argparse.ArgumentParser) -> None:
    """The country may be given here, for a first try without a settings file."""
    parser.add_argument("--country", metavar="CC", help="the country of this instance, such as se")


def run(arguments: Arguments) -> int:
    """Make what is missing. Running it again changes nothing."""
    import asyncio

    from proxy.bootstrap import ENVIRONMENT, prepare

    environ = dict(os.environ)
    if arguments.country:
        environ["DOMICILE__COUNTRY"] = arguments.country
    settings = load(arguments.config, environ)
    made = asyncio.run(prepare(settings))
    place = settings.keys.place if settings.keys.source == "file" else f"the environment variable {settings.keys.place}"
    data = {
        "environment_id": ENVIRONMENT,
        "country": settings.country,
        "store": str(settings.store.path),
        "keys": place,
        "made": made,
    }
    text = "\n".join(
        [
            "Made the vault." if made else "The vault was there already; nothing was changed.",
            f"  country      {settings.country}",
            f"  store        {settings.store.path}",
            f"  keys         {place}",
            "Keep a copy of the keys in another place than the copies of the store: without them nothing can be read again.",
            "Next: domicile serve",
        ]
    )
    output.show(data, text, as_json=arguments.json)
    return OK


COMMAND: Final = Command(
    summary="Make the data folder, the key file and an empty vault.",
    example="domicile init --country se",
    run=run,
    arguments=arguments,
    data=True,
)
