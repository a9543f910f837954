"""The contacts application: an ordinary web application with a JSON interface, forms and pages.

It stands for the customer's own application and knows nothing of Domicile.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any, NoReturn

from aiohttp import web

from proxy.demo.store import Contact, ContactFault, ContactStore, blank, read_contact

# How the contacts application answers: JSON, problems, refusals.

#: Pages and lists change with every edit: browsers may keep them, but ask before they show them
#: again.
FRESH = {"Cache-Control": "no-cache"}


def as_json(
    content: object,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    kind: str = "application/json",
) -> web.Response:
    """An answer whose body is that content as JSON (UTF-8, characters unescaped)."""
    text = json.dumps(content, ensure_ascii=False)
    return web.Response(
        text=text, status=status, content_type=kind, headers={**FRESH, **(headers or {})}
    )


def validation_failed(faults: Iterable[ContactFault], submitted: Mapping[str, Any]) -> web.Response:
    """422: which fields are wrong, with all that was submitted, as many applications answer."""
    content = {
        "title": "Some fields need attention.",
        "status": 422,
        "errors": [fault._asdict() for fault in faults],
        "input": submitted,
    }
    return as_json(content, 422, kind="application/problem+json")


def end_request(kind: type[web.HTTPException], title: str) -> NoReturn:
    """End the request here with that kind of answer, as problem details (RFC 9457)."""
    text = json.dumps({"title": title, "status": kind.status_code})
    raise kind(text=text, content_type="application/problem+json")


def contact_id(request: web.Request) -> int:
    """The id in the path."""
    return int(request.match_info["id"])


# The pages and HTML forms of the contacts application.
#
# The pages hold no contacts: their script reads them from the JSON interface, as single-page
# applications do. The forms are ordinary ones (``application/x-www-form-urlencoded``), answered by
# a redirect.

_STATIC = Path(__file__).parent / "static"
_FLAT = ("first_name", "last_name", "email", "phone", "birth_date", "card", "note")
_ADDRESS = ("street", "city")


class _Contacts:
    """Handlers of requests for contacts in a store."""

    def __init__(self, store: ContactStore) -> None:
        self._store = store

    def _contact(self, request: web.Request) -> Contact:
        contact = self._store.get(contact_id(request))
        if contact is None:
            end_request(web.HTTPNotFound, "There is no such contact.")
        return contact


class Pages(_Contacts):
    """The pages under ``/contacts`` and the forms on them."""

    def routes(self) -> Iterable[web.AbstractRouteDef]:
        one = "/contacts/{id:[0-9]{1,15}}"
        return [
            web.get("/", self.home),
            web.get("/contacts", self.overview),
            web.post("/contacts", self.create),
            web.get(one, self.show),
            web.post(one, self.update),
            web.post(one + "/delete", self.delete),
            web.static("/static", _STATIC / "contacts"),
        ]

    async def home(self, _request: web.Request) -> web.Response:
        """The way to the list."""
        return _redirect(302, "/contacts")

    async def overview(self, _request: web.Request) -> web.Response:
        """The list of contacts, with the form for a new one."""
        return _html("list.html", action="/contacts", save="Add contact")

    async def show(self, request: web.Request) -> web.Response:
        """Show a contact, ready to be edited."""
        contact = self._contact(request)
        return _html(
            "contact.html",
            id=str(contact["id"]),
            action=f"/contacts/{contact['id']}",
            save="Save changes",
        )

    async def create(self, request: web.Request) -> web.Response:
        """The form for a new contact: 302 to its page, or 422."""
        form = await _form(request)
        values, faults = read_contact(_members(form), blank())
        if faults:
            return _refused(request, faults, form)
        return _redirect(302, f"/contacts/{self._store.add(values)['id']}")

    async def update(self, request: web.Request) -> web.Response:
        """The form of an existing contact: 303 to its page, or 422.

        Tags have no place in the form and stay.
        """
        contact = self._contact(request)
        form = await _form(request)
        values, faults = read_contact(_members(form), contact)
        if faults:
            return _refused(request, faults, form)
        self._store.replace(contact["id"], values)
        return _redirect(303, f"/contacts/{contact['id']}")

    async def delete(self, request: web.Request) -> web.Response:
        """The delete button: 303 to the list."""
        self._store.remove(self._contact(request)["id"])
        return _redirect(303, "/contacts")


async def _form(request: web.Request) -> dict[str, str]:
    if request.content_type != "application/x-www-form-urlencoded":
        end_request(web.HTTPUnsupportedMediaType, "Send application/x-www-form-urlencoded.")
    try:
        return {name: str(value) for name, value in (await request.post()).items()}
    except (ValueError, LookupError):
        end_request(web.HTTPBadRequest, "The form cannot be read.")


def _members(form: Mapping[str, str]) -> dict[str, Any]:
    members: dict[str, Any] = {name: form[name].strip() for name in _FLAT if name in form}
    members["address"] = {name: form[name].strip() for name in _ADDRESS if name in form}
    members["vip"] = "vip" in form  # a browser sends nothing for a box that is not ticked
    return members


def _refused(
    request: web.Request, faults: list[ContactFault], form: Mapping[str, str]
) -> web.Response:
    if "json" in request.headers.get("Accept", ""):
        return validation_failed(faults, form)
    lines = "".join(
        f"<li><b>{_label(fault.field)}</b> {escape(fault.message)}</li>" for fault in faults
    )
    echo = "".join(
        f"<dt>{_label(name)}</dt><dd>{escape(value)}</dd>" for name, value in form.items() if value
    )
    return _html("refused.html", 422, faults=lines, echo=echo)


def _label(field: str) -> str:
    return escape(field.replace("_", " ").capitalize())


def _redirect(status: int, location: str) -> web.Response:
    return web.Response(status=status, headers={"Location": location, **FRESH})


def _html(name: str, status: int = 200, **parts: str) -> web.Response:
    form = Template(_page("form.html")).safe_substitute(parts)
    text = Template(_page(name)).substitute(parts, form=form)
    return web.Response(text=text, status=status, content_type="text/html", headers=FRESH)


def _page(name: str) -> str:
    return (_STATIC / "pages" / name).read_text("utf-8")


#: Key of the application's store: ``app[STORE]``.
STORE = web.AppKey("contacts_store", ContactStore)


def contacts_app(storage_path: Path | str) -> web.Application:
    """The application; its contacts live in the JSON file ``storage_path``, which is made when
    absent.

    Raises ``VaultError`` (``BAD_STORE``, ``NOT_WRITABLE``) when that file cannot be used.
    """
    store = ContactStore(Path(storage_path))
    app = web.Application()
    app[STORE] = store
    app.add_routes([*Api(store).routes(), *Pages(store).routes()])
    return app


def from_arguments(arguments: Sequence[str]) -> web.Application:
    """The application for ``python -m aiohttp.web``; its one argument is the path of the file."""
    return contacts_app(arguments[0])


class Api(_Contacts):
    """The JSON interface under ``/api/contacts``."""

    def routes(self) -> Iterable[web.AbstractRouteDef]:
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
        values, faults = read_contact(submitted, blank())
        if faults:
            return validation_failed(faults, submitted)
        contact = self._store.add(values)
        return as_json(contact, 201, {"Location": f"/api/contacts/{contact['id']}"})

    async def show(self, request: web.Request) -> web.Response:
        return as_json(self._contact(request))

    async def update(self, request: web.Request) -> web.Response:
        """PUT replaces the contact; PATCH merges into it."""
        contact = self._contact(request)
        submitted = await _object(request)
        values, faults = read_contact(submitted, blank() if request.method == "PUT" else contact)
        if faults:
            return validation_failed(faults, submitted)
        return as_json(self._store.replace(contact["id"], values))

    async def delete(self, request: web.Request) -> web.Response:
        """Forget one contact: 204."""
        self._store.remove(self._contact(request)["id"])
        return web.Response(status=204)


async def _object(request: web.Request) -> dict[str, Any]:
    if request.content_type != "application/json":
        end_request(web.HTTPUnsupportedMediaType, "Send application/json.")
    try:
        content = json.loads(await request.text())
        json.dumps(content, ensure_ascii=False).encode()  # a lone surrogate parses, but is no text
    except (ValueError, LookupError, RecursionError):
        end_request(web.HTTPBadRequest, "The body is not JSON.")
    if not isinstance(content, dict):
        end_request(web.HTTPBadRequest, "The body must be one JSON object.")
    return content
