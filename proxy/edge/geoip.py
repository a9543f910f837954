"""The country of an address, by a database file of the MaxMind format, which is followed while the
program runs.

The file is read into memory whole: one that is overwritten in place while it is in use cannot be
misread, and a new one takes effect between two look-ups or not at all. What counts is the country
where an address is used (``country.iso_code``, or ``country_code`` in databases without nesting).
``registered_country`` does not: it says where the holder of a block is registered, not where its
users are.
"""

import asyncio
import itertools
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import maxminddb

from proxy.errors import Code, VaultError, bad_setting
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.reloads import FileWatcher, Reload, files_state

_log = logs.logger("firewall")

#: Seconds between two looks at the file.
_LOOK: Final = 1.0

#: A database of the countries of the world has some ten megabytes, one of cities less than a
#: hundred.
_LARGEST: Final = 1024 * 1024 * 1024

#: Entries of a database among which a country must be found. Databases of cities have some without.
_TRIED: Final = 2_000

_SETTING: Final = "firewall.country_database"

#: What reading a file may raise whose bytes are not as they were written.
_DAMAGED: Final = (
    maxminddb.InvalidDatabaseError, ValueError, LookupError, TypeError, ArithmeticError,
    RecursionError, MemoryError,
)  # fmt: skip


class Database:
    """An edition of the database."""

    def __init__(self, reader: maxminddb.Reader) -> None:
        self._reader = reader
        self._versions = (4,) if reader.metadata().ip_version == 4 else (4, 6)
        self.built: int = reader.metadata().build_epoch  #: seconds since the epoch

    def country(self, host: str) -> str | None:
        """The code of the country in lower case; ``None`` where the database does not tell.

        Raises ``VaultError`` (BAD_SETTINGS) where the database is damaged at that place.
        """
        if (6 if ":" in host else 4) not in self._versions:
            return None
        try:
            return _country(self._reader.get(host))
        except _DAMAGED as error:
            raise VaultError(Code.BAD_SETTINGS, "The database of countries is damaged.") from error


def _country(record: Any) -> str | None:
    if not isinstance(record, dict):
        return None
    country = record.get("country")
    code = country.get("iso_code") if isinstance(country, dict) else record.get("country_code")
    return code.lower() if isinstance(code, str) and len(code) == 2 else None


def read_database(path: Path) -> Database:
    """The database of a file.

    Raises ``VaultError`` (BAD_SETTINGS) with one sentence that says what to do.
    """
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise _unfit(path, "is not a file: name the file itself")
        if size > _LARGEST:
            raise _unfit(path, "is larger than 1 GiB: is this a database of countries?")
        with path.open("rb") as file:
            reader = maxminddb.open_database(file, maxminddb.MODE_FD)
        database = Database(reader)
        has_countries = any(_country(record) for _, record in itertools.islice(reader, _TRIED))
    except FileNotFoundError:
        raise _unfit(
            path, "is not there: download a database of countries, and name its file"
        ) from None
    except OSError as error:
        raise _unfit(path, f"cannot be read ({error.strerror}): let this user read it") from None
    except _DAMAGED:
        raise _unfit(
            path, "is no whole database of the MaxMind format (.mmdb): download it again"
        ) from None
    if not has_countries:
        raise _unfit(
            path,
            "tells no countries: take a database of countries or cities, not one of networks (ASN)",
        )
    return database


def _unfit(path: Path, what: str) -> VaultError:
    return bad_setting(f"The database of countries cannot be used: {path} {what}.", _SETTING, what)


class Countries:
    """The active database.

    ``state`` and ``failed`` learn of each unusable new file; the edition before stays.
    """

    def __init__(
        self, path: Path, failed: Callable[[], None] = lambda: None, state: Reload | None = None
    ) -> None:
        self._path = path
        self.state = state or Reload(Metrics(), "countries")
        self._failed = failed
        self._watcher = FileWatcher(partial(files_state, (path,)))
        self.database = read_database(path)

    @property
    def age(self) -> float:
        """Age of the active database in seconds."""
        return max(0.0, time.time() - self.database.built)

    async def watch(self, every: float = _LOOK) -> None:
        """Follow the file for ever; it is looked at every so many seconds."""
        await self._watcher.run(every, self.reload)

    async def reload(self) -> bool:
        """Read the file again; whether it took effect.

        A fault is logged and counted, and changes nothing else.
        """
        self._watcher.mark_read()
        try:
            database = await asyncio.to_thread(read_database, self._path)
        except VaultError as error:
            self.state.failed(VaultError(error.code, error.message))
            self._failed()
            _log.error(
                "country database rejected; the previous one stays active", text=error.message
            )
            return False
        self.database = database
        self.state.succeeded()
        _log.info("a database of countries was read", file=str(self._path))
        return True
