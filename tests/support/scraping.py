"""A scraper of ``/metrics``: what instances of tests are told to take from it, and what it shows."""

from typing import TYPE_CHECKING, Final

from proxy.auth.clients import Grant

if TYPE_CHECKING:
    from proxy.bootstrap.instance import Running

_SECRET: Final = "the-scraper-of-the-tests"

#: The secret, and where an instance finds it.
SCRAPED: Final = {
    "DOMICILE__ADMIN__METRICS_TOKEN": "env:SECRET_OF_THE_SCRAPER",
    "SECRET_OF_THE_SCRAPER": _SECRET,
}

#: The field that a scraper sends, as a line, and as an entry of a table.
LINE: Final = f"Authorization: Bearer {_SECRET}"
FIELD: Final = {"Authorization": f"Bearer {_SECRET}"}


async def bearer(running: "Running") -> str:
    """An administrator's access token of an instance in this process, which shows it as well."""
    made = await running.auth.clients.create("scraper", "default", Grant(admin=True))
    return running.auth.tokens.issue(made.client, (running.auth.audiences.first,))
