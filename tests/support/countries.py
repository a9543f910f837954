"""Databases of countries for tests: tiny files of the MaxMind format, of the shapes that there are."""

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmdb_writer import MMDBWriter
from netaddr import IPSet

#: What ``write`` takes unless told otherwise. The addresses are real ones of nobody in particular.
PLACES = {"81.224.0.0/12": "SE", "2a00:800::/32": "SE", "8.8.8.0/24": "US", "2001:4860::/32": "US"}

#: One address in each country of ``PLACES``.
SWEDISH, AMERICAN = "81.225.1.2", "8.8.8.8"
SWEDISH6, AMERICAN6 = "2a00:800::1", "2001:4860::1"


def nested(code: str) -> dict[str, Any]:
    """A record as MaxMind and DB-IP write it."""
    return {
        "continent": {"code": "XX"},
        "country": {"iso_code": code, "names": {"en": "Somewhere"}},
    }


def flat(code: str) -> dict[str, Any]:
    """A record as IPinfo writes it."""
    return {"country": "Somewhere", "country_code": code, "asn": "AS64500"}


def write(
    path: Path, records: Mapping[str, dict[str, Any]] | None = None, kind: str = "Test-Country"
) -> Path:
    """A database at ``path``, complete before anybody sees it; ``records`` by network, else those
    of ``PLACES``.
    """
    found = (
        {network: nested(code) for network, code in PLACES.items()} if records is None else records
    )
    wide = any(ipaddress.ip_network(network).version == 6 for network in found)
    database = MMDBWriter(ip_version=6 if wide else 4, ipv4_compatible=wide, database_type=kind)
    for network, record in found.items():
        database.insert_network(IPSet([network]), record)
    fresh = path.with_suffix(".fresh")
    database.to_db_file(str(fresh))
    return fresh.replace(path)
