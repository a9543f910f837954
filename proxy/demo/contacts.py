"""The contacts application: an ordinary web application with a JSON interface, forms and pages.

It stands for the customer's own application and knows nothing of Domicile.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from aiohttp import web

from proxy.demo.answers import as_json, number, refusal, stop
from proxy.demo.pages import Pages
from proxy.demo.store import Contact, ContactStore
from proxy.demo.validation import blank, read

#: Where ``contacts_app`` keeps its store, for whoever runs the application: ``app[STORE]``.
STORE = web.AppKey("contacts_store", ContactStore)


def contacts_app(storage_path: Path | str) -> web.Application:
    """The application; its contacts live in the JSON file ``storage_path``, which is made when absent.

    Raises ``VaultError`` (``BAD_STORE``, ``NOT_WRITABLE``) when that file cannot be used.
    """
    store = ContactStore(Path(storage_path))
    app = web.Application()
    app[STORE] = store
    app.add_routes([*Api(store).routes(), *Pages(store).routes()])
    return app


class Api:
    """The JSON interface under ``/api/contacts``."""

    def __init__(self, store: ContactStore) -> None:
        self._store = store

    def routes(self) -> Iterable[web.AbstractRouteDef]:
        """What the interface answers to."""
        one = "/api/contacts/{id:[0-9]{1,15}}"
        return [
            web.get("/api/contacts", self.find),
            web.post("/api/contacts", self.create),
            web.get(one, self.show),
            web.put(one, self.update),
            web.patch(one, self.update),
            web.delete(one, self.delete),
        ]

    async def find(self, request: web.Request) -> web.Response:
        """All contacts, oldest first, or those whose e-mail address is that of ``?email=``."""
        email = request.query.get("email")
        items = [
            contact
            for contact in self._store
            if email is None or str(contact["email"] or "").casefold() == email.strip().casefold()
        ]
        return as_json({"items": items, "total": len(items)})

    async def create(self, request: web.Request) -> web.Response:
        """Store a new contact: 201 with the contact and its address."""
        submitted = await _object(request)
        values, faults = read(submitted, blank())
        if faults:
            return refusal(faults, submitted)
        contact = self._store.add(values)
        return as_json(contact, 201, {"Location": f"/api/contacts/{contact['id']}"})

    async def show(self, request: web.Request) -> web.Response:
        """One contact."""
        return as_json(self._known(request))

    async def update(self, request: web.Request) -> web.Response:
        """PUT stores exactly what came; PATCH lays it over what is there."""
        known = self._known(request)
        submitted = await _object(request)
        values, faults = read(submitted, blank() if request.method == "PUT" else known)
        if faults:
            return refusal(faults, submitted)
        return as_json(self._store.replace(known["id"], values))

    async def delete(self, request: web.Request) -> web.Response:
        """Forget one contact: 204."""
        self._store.remove(self._known(request)["id"])
        return web.Response(status=204)

    def _known(self, request: web.Request) -> Contact:
        contact = self._store.get(number(request))
        if contact is None:
            stop(web.HTTPNotFound, "There is no such contact.")
        return contact


async def _object(request: web.Request) -> dict[str, Any]:
    if request.content_type != "application/json":
        stop(web.HTTPUnsupportedMediaType, "Send application/json.")
    try:
        content = json.loads(await request.text())
        json.dumps(content, ensure_ascii=False).encode()  # a lone surrogate parses, but is no text
    except (ValueError, LookupError, RecursionError):
        stop(web.HTTPBadRequest, "The body is not JSON.")
    if not isinstance(content, dict):
        stop(web.HTTPBadRequest, "The body must be one JSON object.")
    return content
