"""Invented people for an application that has none yet.

The card numbers are the usual test numbers, the addresses use domains that exist for examples (RFC 2606).
"""

from typing import Any

import aiohttp

from proxy.errors import Code, VaultError

_PATIENCE = aiohttp.ClientTimeout(total=60)

PEOPLE: tuple[dict[str, Any], ...] = (
    {
        "first_name": "Ann",
        "last_name": "Lindqvist",
        "email": "ann.lindqvist@example.com",
        "phone": "+46 70 174 06 05",
        "birth_date": "1987-04-12",
        "card": "4242424242424242",
        "address": {"street": "Sveavägen 21", "city": "Stockholm"},
        "tags": ["newsletter", "customer since 2016"],
        "note": "Calls back on Tuesdays.",
        "vip": True,
    },
    {
        "first_name": "Tomás",
        "last_name": "O’Brien",
        "email": "tomas.obrien@example.org",
        "phone": "+353 20 915 0142",
        "birth_date": "1972-10-30",
        "card": "5555555555554444",
        "address": {"street": "4 Harbour Row", "city": "Cobh"},
        "tags": ["supplier"],
        "note": "",
        "vip": False,
    },
    {
        "first_name": "Ελένη",
        "last_name": "Παππά",
        "email": "eleni.pappa@example.net",
        "phone": "+30 21 5550 0177",
        "birth_date": "1995-01-08",
        "card": "4111111111111111",
        "address": {"street": "Οδός Ακακιών 3", "city": "Volos"},
        "tags": ["press"],
        "note": "Prefers e-mail.",
        "vip": False,
    },
)


async def plant(proxy: str) -> int:
    """Add the invented people through the proxy at that address, if the application has no contacts; how many.

    Raises ``VaultError`` (``BAD_RULES``) when one of them is refused: the rules do not fit this application.
    """
    async with aiohttp.ClientSession(proxy, timeout=_PATIENCE, raise_for_status=True) as client:
        try:
            return await _fill(client)
        except aiohttp.ClientResponseError as fault:
            raise VaultError(
                Code.BAD_RULES,
                f"The sample application cannot be filled through the proxy, which answered {fault.status}: "
                "look at what was changed in the rule file since it last worked; `domicile rules test` tries it.",
            ) from None


async def _fill(client: aiohttp.ClientSession) -> int:
    async with client.get("/api/contacts") as answer:
        if (await answer.json())["total"]:
            return 0
    for person in PEOPLE:
        async with client.post("/api/contacts", json=person):
            pass
    return len(PEOPLE)
