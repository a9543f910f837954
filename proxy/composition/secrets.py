"""Secrets that the settings name by their place."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from proxy.config import Settings
from proxy.config.settings import Secret
from proxy.errors import Code, Detail, VaultError

#: Characters of a secret.
_LONGEST: Final = 4096

_SCRAPER: Final = "admin.metrics_token"
_SHORTEST: Final = 16


def read_secret(place: Secret, setting: str) -> str:
    """The secret, without white space around it. ``VaultError`` (BAD_SETTINGS) when it cannot be read, or there is none."""
    if place.source == "env":
        text, what = os.environ.get(place.place, ""), f"the environment variable {place.place}"
    else:
        what = place.place
        try:
            text = Path(place.place).read_bytes()[: _LONGEST + 1].decode()
        except OSError as error:
            raise _unusable(setting, f"{what} cannot be read ({error.strerror})") from None
        except UnicodeDecodeError:
            raise _unusable(setting, f"{what} holds no text") from None
    secret = text.strip()
    if not secret or len(secret) > _LONGEST or not secret.isprintable():
        raise _unusable(setting, f"{what} holds no secret: one line of printable characters is needed")
    return secret


def scraper_secret(settings: Settings) -> Callable[[], str | None]:
    """What tells the secret of scrapers whenever it is asked for, so that its file may change.

    Raises ``VaultError`` (BAD_SETTINGS) as ``read_secret``, and for a secret that could be guessed.
    """
    place = settings.admin.metrics_token
    if place is None:
        return lambda: None
    if len(read_secret(place, _SCRAPER)) < _SHORTEST:
        raise _unusable(_SCRAPER, f"the secret is shorter than {_SHORTEST} characters, and could be guessed")

    def secret() -> str | None:
        try:
            found = read_secret(place, _SCRAPER)
        except VaultError:  # the file is gone or being replaced: nobody knows the secret meanwhile
            return None
        return found if len(found) >= _SHORTEST else None

    return secret


def _unusable(setting: str, text: str) -> VaultError:
    return VaultError(Code.BAD_SETTINGS, "A secret that the settings name cannot be used.", (Detail(setting, text),))
