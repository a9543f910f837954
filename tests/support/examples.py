"""The vault to which the examples of the interface document are sent: its schema, records and file."""

from typing import Any, Final

#: The definition of the schema that the examples use.
CONTACT: Final[dict[str, Any]] = {
    "fields": {
        "id": {"type": "primary_key"},
        "email": {"type": "string", "storage": "indexed_hashed", "partial_match": True},
        "name": {"type": "string", "storage": "encrypted"},
        "city": {"type": "string", "storage": "indexed"},
        "manager": {"type": "string", "storage": "indexed_hashed"},
        "age": {"type": "integer", "storage": "indexed"},
        "balance": {"type": "decimal", "storage": "indexed"},
        "active": {"type": "boolean", "storage": "indexed"},
        "born": {"type": "date", "storage": "indexed_hashed"},
        "profile": {"type": "json", "storage": "indexed_hashed"},
    }
}

#: The records that are there, in the order in which they were made.
RECORDS: Final[tuple[dict[str, Any], ...]] = (
    {
        "id": "c-1", "email": "astrid@example.com", "name": "Astrid Lind", "city": "Uppsala",
        "age": 41, "balance": 120.5,
    },
    {
        "id": "c-2", "email": "bjorn@example.com", "name": "Björn Ek", "city": "Uppsala", "age": 29,
        "manager": "c-1",
    },
    {
        "id": "c-3", "email": "carin@example.com", "name": "Carin Falk", "city": "Lund",
        "profile": {"tags": ["new", "vip"]},
    },
)  # fmt: skip

#: The records of the record-based family that are there.
KEPT: Final[tuple[dict[str, Any], ...]] = (
    {
        "country": "se", "record_key": "r-1", "body": '{"name":"Astrid"}', "profile_key": "p-1",
        "key1": "astrid@example.com", "range_key1": 41,
    },
    {
        "country": "se", "record_key": "r-2", "body": '{"name":"Bo"}', "profile_key": "p-2",
        "key1": "bo@example.com", "range_key1": 29, "version": 3,
    },
)  # fmt: skip

#: The file that hangs on the first record.
FILE: Final = ("passport.txt", b"A page of a passport.\n")
