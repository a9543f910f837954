"""The pages and HTML forms of the contacts application.

The pages hold no contacts: their script reads them from the JSON interface, as single-page applications do.
The forms are ordinary ones (``application/x-www-form-urlencoded``), answered by a redirect.
"""

from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from aiohttp import web

from proxy.demo.answers import FRESH, number, refusal, stop
from proxy.demo.store import Contact, ContactStore
from proxy.demo.validation import Fault, blank, read

_STATIC = Path(__file__).parent / "static"
_FLAT = ("first_name", "last_name", "email", "phone", "birth_date", "card", "note")
_ADDRESS = ("street", "city")


class Pages:
    """The pages under ``/contacts`` and the forms on them."""

    def __init__(self, store: ContactStore) -> None:
        self._store = store

    def routes(self) -> Iterable[web.AbstractRouteDef]:
        """What the pages answer to."""
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
        """One contact, ready to be edited."""
        contact = self._known(request)
        return _html("contact.html", id=str(contact["id"]), action=f"/contacts/{contact['id']}", save="Save changes")

    async def create(self, request: web.Request) -> web.Response:
        """The form for a new contact: 302 to its page, or 422."""
        form = await _form(request)
        values, faults = read(_members(form), blank())
        if faults:
            return _refused(request, faults, form)
        return _redirect(302, f"/contacts/{self._store.add(values)['id']}")

    async def update(self, request: web.Request) -> web.Response:
        """The form of an existing contact: 303 to its page, or 422. Tags have no place in the form and stay."""
        known = self._known(request)
        form = await _form(request)
        values, faults = read(_members(form), known)
        if faults:
            return _refused(request, faults, form)
        self._store.replace(known["id"], values)
        return _redirect(303, f"/contacts/{known['id']}")

    async def delete(self, request: web.Request) -> web.Response:
        """The delete button: 303 to the list."""
        self._store.remove(self._known(request)["id"])
        return _redirect(303, "/contacts")

    def _known(self, request: web.Request) -> Contact:
        contact = self._store.get(number(request))
        if contact is None:
            stop(web.HTTPNotFound, "There is no such contact.")
        return contact


async def _form(request: web.Request) -> dict[str, str]:
    if request.content_type != "application/x-www-form-urlencoded":
        stop(web.HTTPUnsupportedMediaType, "Send application/x-www-form-urlencoded.")
    try:
        return {name: str(value) for name, value in (await request.post()).items()}
    except (ValueError, LookupError):
        stop(web.HTTPBadRequest, "The form cannot be read.")


def _members(form: Mapping[str, str]) -> dict[str, Any]:
    members: dict[str, Any] = {name: form[name].strip() for name in _FLAT if name in form}
    members["address"] = {name: form[name].strip() for name in _ADDRESS if name in form}
    members["vip"] = "vip" in form  # a browser sends nothing for a box that is not ticked
    return members


def _refused(request: web.Request, faults: list[Fault], form: Mapping[str, str]) -> web.Response:
    if "json" in request.headers.get("Accept", ""):
        return refusal(faults, form)
    lines = "".join(f"<li><b>{_label(fault.field)}</b> {escape(fault.message)}</li>" for fault in faults)
    echo = "".join(f"<dt>{_label(name)}</dt><dd>{escape(value)}</dd>" for name, value in form.items() if value)
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
