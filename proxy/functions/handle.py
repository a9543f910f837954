"""What a resident function gets of the vault: the operations of its caller, and nothing else.

::

    def oldest(handle, arguments):
        found = handle.find("contact", {"city": arguments["city"]}, {"sort": [{"age": "desc"}],
        "limit": 1}) return found["data"][0]["age"] if found["data"] else None

Each method is one request of the vault's interface, made in the caller's name; what it takes and
answers is described there. A request that is refused raises ``RefusedError``, which the function
may catch.
"""

from collections.abc import Callable, Sequence
from typing import Any

Json = Any


class RefusedError(Exception):
    """The service refused a request of the handle: ``status`` as over HTTP, ``code`` the stable
    name of the reason.
    """

    def __init__(self, status: int, code: str) -> None:
        super().__init__(f"{status} {code}")
        self.status = status
        self.code = code


class Handle:
    """Asks the service and waits for its answer.

    ``ask``: (operation, what it takes) → the answer.
    """

    def __init__(self, ask: Callable[[str, dict[str, Json]], Json]) -> None:
        self._ask = ask

    def find(self, schema: str, filter: Json = None, options: Json = None) -> Json:  # noqa: A002 - the name in the interface
        """A page of records: ``{"data": [...], "meta": {...}}``."""
        return self._ask(
            "find", {"schema": schema, "filter": filter or {}, "options": options or {}}
        )

    def get(self, schema: str, key: str) -> Json:
        """The record of that key, or ``None``."""
        data = self.find(schema, {"record_key": key}, {"limit": 1})["data"]
        return data[0] if data else None

    def aggregate(self, schema: str, request: Json) -> Json:
        """Groups and metrics: ``{"data": [...], "meta": {...}}``."""
        return self._ask("aggregate", {"schema": schema, "request": request})

    def create(self, schema: str, records: Sequence[Json]) -> Json:
        """Create records, all of them or none; as many as a batch may have."""
        return self._ask("create", {"schema": schema, "records": list(records)})

    def update(self, schema: str, records: Sequence[Json]) -> Json:
        """Update records by their primary key, all of them or none."""
        return self._ask("update", {"schema": schema, "records": list(records)})

    def delete(self, schema: str, key: str) -> None:
        """Delete one record."""
        self._ask("delete", {"schema": schema, "key": key})
