"""Roles of requests by their paths: recycle bins, the way back from them, sign-ins.

A delete beside a bin only marks its record. Proposed without ``keep``, it would erase the values of
a record that somebody then takes out of the bin. Pure: looks at paths and counts alone.
"""

import re
from collections.abc import Mapping
from typing import Final

from proxy.redactor.tools.lessons import UNKNOWN_PART, Lessons, RequestTraffic

_BIN: Final = (
    r"/(?:bin|recycle[-_]?bin|trash(?:ed)?|deleted|removed|archived?)(?=/|\Z)|/\{part\d*\}(?=/\{)"
)
_BINS: Final = re.compile(_BIN, re.IGNORECASE)
_RESTORE: Final = re.compile(
    r"\}/(?:restore|undelete|unarchive|untrash|undo[-_]?delete|recover)/?\Z"
)
_PURGE: Final = re.compile(r"\}/(?:purge|erase|force[-_]?delete)/?\Z")
_REMOVE: Final = re.compile(r"\}/(?:delete|remove|destroy)/?\Z")
#: What stands behind the path of a collection: a record, and what forms and buttons do to it.
_WITHIN: Final = re.compile(
    r"(?:/\{[^{}]*\})?(?:/actions/[\w-]+|/(?:new|add|create|edit|update|change|delete|remove|destroy|restore"
    r"|undelete|unarchive|untrash|undo[-_]?delete|recover|purge|erase|force[-_]?delete))?/?\Z"
)
_SIGN_IN: Final = re.compile(
    r"/(?:login|log[-_]in|signin|sign[-_]in|authenticate|sessions?|tokens?|reset|forgot"
    r"|(?:forgot|reset)[-_]password|password[-_](?:reset|forgot))/?\Z"
)
#: In place of a collection where it may be one of several; no path.
UNCLEAR: Final = "?"
#: Below a sign-in that is proposed as a search by the address.
SIGNS_IN: Final = (
    "    # finds people by the token of their address. Accounts that are not written through the "
    "proxy, as of staff, are not found then: pass: true in place of all below"
)
#: Why no change by the id of a path is proposed of what stands in others below that record.
OF_OTHERS: Final = (
    "what is a person's stands below the record and has ids of its own, so the id of the path is "
    "another one's; write an entity for it, and take its ids where it stands, as in create: NAME, "
    "request: {object: $.member}, response: {object: $.member, id: $.id}"
)
#: At a form that updates a record by a path below it.
ADDS: Final = (
    "    # does each of these add something, such as a comment? An update replaces what was there: "
    "then create, of another entity"
)


def own_base(path: str) -> str:
    """The path of the collection that a path belongs to: ``/people`` of ``/people/{id}/edit``."""
    return _WITHIN.sub("", path)


def restores(method: str, path: str) -> bool:
    """Whether a request gives a record back from a bin or an archive."""
    return method in ("POST", "PUT", "PATCH") and bool(_RESTORE.search(path))


def removes_record(method: str, path: str) -> bool:
    """Whether a request removes a record, be it into a bin."""
    if method == "DELETE":
        return path != own_base(path)
    return method == "POST" and bool(_REMOVE.search(path) or _PURGE.search(path))


def note_removed(
    lessons: Lessons, request: tuple[str, str, str], traffic: RequestTraffic, status: int
) -> None:
    """Note a record that is shown after its delete. ``request``: method, path and its shape."""
    method, path, shape = request
    if removes_record(method, shape):
        record = path.rstrip("/").rpartition("/")[0] if method == "POST" else path
        lessons.removed[record.rstrip("/")] = traffic
    elif method == "GET" and status == 200 and (by := lessons.removed.get(path.rstrip("/"))):
        by.stays = True


class PathRoles:
    """The collection of each path, also of bins and sign-ins, whose paths do not name it."""

    def __init__(self, lessons: Lessons) -> None:
        self._operations = lessons.operations
        own = {
            path: own_base(path) for _, path in self._operations if not self.is_sign_in_path(path)
        }
        deleted = {
            own[path]
            for method, path in self._operations
            if path in own and removes_record(method, path) and not _BINS.search(path)
        }
        #: what leads to a bin, or out of it, with the path that is left without it
        self._bins = {
            (method, path): own_base(_BINS.sub("", path))
            for method, path in self._operations
            if restores(method, path) or (_BINS.search(path) and UNKNOWN_PART not in path)
        }
        self._moved = {path: _owner(rest, deleted) for (_, path), rest in self._bins.items()}
        addressed = {
            own[path]
            for (method, path), traffic in self._operations.items()
            if path in own and method != "GET" and "email" in kinds_sent(traffic)
        }
        for _, path in self._operations:
            if path not in own:
                parent = path.rpartition("/")[0]
                names = {one.rpartition("/")[2] for one in addressed}
                near = _owner(parent, addressed)
                elsewhere = min(addressed) if len(names) == 1 else UNCLEAR
                self._moved[path] = near if near in addressed else elsewhere

        self._place_first_page(own)

    def _place_first_page(self, own: Mapping[str, str]) -> None:
        """A page at ``/`` shows the records of the forms that lead back to it, or where none does
        of all forms, if they are of one collection; unless forms are sent to ``/`` itself.
        """
        forms = {
            (path, own[path]): traffic
            for (_, path), traffic in self._operations.items()
            if path in own and (traffic.form or traffic.objects("request"))
        }
        leading = {base for (_, base), one in forms.items() if "/" in one.redirects.values()}
        bases = leading or {base for _, base in forms}
        if len(bases) == 1 and ("GET", "/") in self._operations:
            self._moved.setdefault("/", min(bases))

    def is_sign_in_path(self, path: str) -> bool:
        """Whether a path is that of a sign-in, or of a reset, by nothing but an e-mail address."""
        sent = kinds_sent(self._operations.get(("POST", path), RequestTraffic()))
        return bool(_SIGN_IN.search(path)) and sent == {"email"}

    def base(self, path: str) -> str:
        """The collection that a path belongs to; ``UNCLEAR`` where it may be of several."""
        return self._moved.get(path, own_base(path))

    def holds_others(self, base: str) -> bool:
        """Whether people stand in records of a collection as objects with ids of their own."""
        for (_, path), traffic in self._operations.items():
            first = traffic.objects("response")[:1] if self.base(path) == base != path else ()
            for at, objects in first:
                outer = (traffic.places.get(("response", at[:end])) for end in range(len(at)))
                if objects.has_id and any(one is not None and one.has_id for one in outer):
                    return True
        return False

    def keep(self, method: str, path: str) -> str:
        """The lines about ``keep`` below a proposed delete."""
        base = self.base(path)
        if self._for_good(method, path):
            return ""
        stays = self._operations[method, path].stays
        nearby = next(
            (name for name, rest in self._bins.items() if f"{base}/".startswith(f"{rest}/")), None
        )
        if nearby is None and not stays:
            return (
                "    # only marks the record, as for a bin or an archive? Then say keep: "
                "until_deleted (or 30d), and the way back as update"
            )
        reason = f"{' '.join(nearby)} was met" if nearby else "the record was shown after it"
        ends = any(self.base(one[1]) == base and self._for_good(*one) for one in self._operations)
        if ends:
            return f"    keep: until_deleted      # {reason}: it only marks the record"
        return (
            f"    keep: 7y      # {reason}: it only marks the record. Name the delete that is for "
            "good, then say until_deleted"
        )

    def _for_good(self, method: str, path: str) -> bool:
        """Whether a delete is that of a record which is in the bin."""
        return removes_record(method, path) and bool(_PURGE.search(path) or _BINS.search(path))

    def unclear(self, method: str, path: str) -> str:
        """The reason why a request is not proposed whose path does not tell whose it is."""
        if method != "GET" and self.is_sign_in_path(path):
            return (
                "it signs in or resets by an e-mail address and makes no record: say read and "
                "request of the entity that holds the address, or pass: true for staff of its own"
            )
        if restores(method, path):
            return "it gives a record back: say update of its entity, and keep at its delete"
        if _PURGE.search(path):
            return "it removes a record for good: say delete of its entity"
        return ""


def _owner(rest: str, collections: set[str]) -> str:
    """The collection of that path, or the one below it; ``UNCLEAR`` where there are several."""
    below = [one for one in collections if one.rpartition("/")[0] == rest]
    if rest in collections or not below:
        return rest
    return below[0] if len(below) == 1 else UNCLEAR


def kinds_sent(traffic: RequestTraffic) -> set[str]:
    """The kinds suspected in what a request carries."""
    noted = [*traffic.form.values()]
    noted += [kinds for _, one in traffic.objects("request") for kinds in one.fields.values()]
    return {kind for kinds in noted for kind in kinds}
