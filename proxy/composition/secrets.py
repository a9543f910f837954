"""Secrets that the settings name by their place."""

import os
from pathlib import Path
from typing import Final

from proxy.config.settings import Secret
from proxy.errors import Code, Detail, VaultError

#: Characters of a secret.
_LONGEST: Final = 4096


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


def _unusable(setting: str, text: str) -> VaultError:
    return VaultError(Code.BAD_SETTINGS, "A secret that the settings name cannot be used.", (Detail(setting, text),))
