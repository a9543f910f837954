"""Calls of ``domicile adopt`` and ``release`` to an application, directly or by the proxy.

And how they find the next page of its list.
"""

import re
import sys
import threading
import time
import urllib.parse
from collections.abc import Mapping
from typing import Final

import msgspec

from proxy.cli.http_client import HttpAnswer, HttpClient, pause
from proxy.errors import Code, VaultError
from proxy.redactor.tools.adoption import JsonPlace
from proxy.redactor.tools.adoption_records import ReadRecord, WalkPlan

#: Seconds that one answer may take.
_ANSWER: Final = 60.0

IGNORES_CONDITIONS: Final = (
    "The application has entity tags and ignores If-Match: what somebody changes within the "
    "milliseconds of an update may be overwritten. Walk when nobody works, or with a low --rate."
)

#: Statuses of a deleted record, and of a condition that does not hold.
RECORD_GONE: Final = (404, 410)
PRECONDITION_FAILED: Final = 412

#: Statuses that ask for patience.
_LATER: Final = frozenset((429, 502, 503, 504))


class Site:
    """An address, with the header fields that its callers send."""

    def __init__(self, url: str, headers: Mapping[str, str], patience: float) -> None:
        """``patience``: seconds without a usable answer after which the walk stops."""
        self.url = url.rstrip("/")
        self._headers = {"Accept": "application/json", "Accept-Encoding": "identity", **headers}
        self._patience = patience
        self._http = HttpClient(url, _ANSWER)
        self._waiting = False  #: whether it was said that this side is waited for
        self._failing = threading.local()  #: ``since``: when writes of a thread got no answer

    def read(self, target: str) -> HttpAnswer:
        """The answer to GET, asked for again while the other side is not there.

        Raises ``VaultError(UPSTREAM_UNREACHABLE)`` when patience ends.
        """
        request = "GET", target, b"", self._headers
        answer = self._http.send_with_retries(request, _LATER, self._patience, self._tell_waiting)
        if answer is None or answer.status in _LATER:
            raise self._given_up(answer)
        self._waiting = False
        return answer

    def page(self, plan: WalkPlan, target: str) -> HttpAnswer:
        """The page of the list at this address."""
        answer = self.read(target)
        if answer.status != 200:
            raise failure_of(self, plan.listing.operation.label, answer, lists=True)
        return answer

    def record(self, plan: WalkPlan, ident: str) -> tuple[ReadRecord, str] | None:
        """A record at its own address, with its entity tag; ``None`` where it is gone."""
        answer = self.read(plan.read_target(ident))
        if answer.status in RECORD_GONE:
            return None
        if answer.status != 200:
            raise failure_of(self, plan.reading.operation.label, answer)
        return plan.reading.record(ident, answer.body), answer.tag

    def heeds_conditions(self, plan: WalkPlan, ident: str) -> bool | None:
        """Whether this side refuses an update on the condition of a tag that a record had.

        The update changes nothing. ``None``: the record has no strong tag.
        """
        read = self.record(plan, ident)
        if read is None or not read[1]:
            return None
        body = plan.unchanging_body(read[0])
        headers = {"Content-Type": plan.content_type, "If-Match": earlier_tag(read[1])}
        answer = self.write(plan.method, plan.update_target(ident), body, headers)
        heeds = answer is not None and answer.status == PRECONDITION_FAILED
        if not heeds:
            print(IGNORES_CONDITIONS, file=sys.stderr)
        return heeds

    def _tell_waiting(self, answer: HttpAnswer | None) -> None:
        """Say once that this side is waited for; of all threads one does."""
        if self._waiting:
            return
        self._waiting = True
        said = "no answer" if answer is None else reason_of(answer)
        print(f"{self.url} gives {said}: waiting up to {self._patience:.0f} s.", file=sys.stderr)

    def write(
        self, method: str, target: str, body: bytes, headers: Mapping[str, str]
    ) -> HttpAnswer | None:
        """The answer to an update; ``None`` after a wait if its outcome is unknown.

        Raises ``VaultError(UPSTREAM_UNREACHABLE)`` when patience ends.
        """
        answer = self._http.send_once(method, target, body, {**self._headers, **headers})
        if answer is not None and answer.status not in _LATER:
            self.written()
            return answer
        now = time.monotonic()
        since = getattr(self._failing, "since", None)
        self._failing.since = since = now if since is None else since
        if now - since > self._patience:
            raise self._given_up(answer)
        pause(answer, 1)
        return None

    def written(self) -> None:
        """Note that a write of this thread took effect, also one whose answer was lost: those that
        get none later begin anew to count.
        """
        self._failing.since = None

    def stop(self) -> None:
        """Let no thread wait any longer than its present attempt."""
        self._http.stop()

    def close(self) -> None:
        """Close all connections. Idempotent."""
        self._http.close()

    def _given_up(self, answer: HttpAnswer | None) -> VaultError:
        said = "no answer" if answer is None else f"{reason_of(answer)} and nothing else"
        return VaultError(
            Code.UPSTREAM_UNREACHABLE,
            f"{self.url} gives {said} for {self._patience:.0f} s: see that it runs, then run the "
            "same command again. It goes on where it stopped.",
        )


class WriteRate:
    """Releases so many threads a second (``None``: all at once)."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._due = 0.0
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Wait for one's turn."""
        if self._rate is not None:
            with self._lock:
                now = time.monotonic()
                wait = max(0.0, self._due - now)
                self._due = max(now, self._due) + 1 / self._rate
            time.sleep(wait)


#: Codes of refusals that name fields.
_VALUES_REFUSED: Final = ("value_invalid", "value_unfit")
_ELSEWHERE: Final = "value_elsewhere"


def reason_of(answer: HttpAnswer) -> str:
    """Status and, of an answer of the proxy's own, its code, and the fields of values that it
    refuses with the reasons; never more of an answer, and never a value.
    """
    code, fields = "", ""
    if answer.headers.get("domicile-answer") == "proxy":
        try:
            document = msgspec.json.decode(answer.body)
            code = f" {document['code']}"
            if document["code"] == _ELSEWHERE:
                places = [
                    f"a value of {one['detail']} in {one['source']}" for one in document["errors"]
                ]
                fields = "; ".join(dict.fromkeys(places))
            if document["code"] in _VALUES_REFUSED:
                fields = "; ".join(dict.fromkeys(one["detail"] for one in document["errors"]))
        except (msgspec.MsgspecError, KeyError, TypeError):
            code = " of the proxy"
    return f"status {answer.status}{code}{fields and ': '}{fields}"


def failure_of(site: Site, label: str, answer: HttpAnswer, *, lists: bool = False) -> VaultError:
    """Return the error for an answer without success; ``lists``: to the request of the list."""
    # an application of pages redirects to its sign-in
    who = "say with --header who may" if answer.status in (301, 302, 303, 307, 401, 403) else ""
    host = (
        "it may not take requests under the name of its host: name the address that it is used by "
        "with --application"
    ) * (answer.status in (400, 421) and "domicile-answer" not in answer.headers)
    broken = answer.status >= 500
    other = "name another list with --list PATH" if lists and not broken else ""
    hint = ", or ".join(filter(None, (who, host, other, "see its log" * broken)))
    hint = hint and f": {hint}"
    return VaultError(
        Code.UPSTREAM_BROKEN, f"{site.url} does not answer {label} ({reason_of(answer)}){hint}."
    )


def earlier_tag(tag: str) -> str:
    """A tag that a record with this one had earlier, if ever: numbers count upwards."""
    number = _NUMBER.search(tag)
    if number is not None and int(number[0]):
        return f"{tag[: number.start()]}{int(number[0]) - 1}{tag[number.end() :]}"
    return f'{tag[:-1]}x"'


_NUMBER: Final = re.compile(r"(?<=\")\d+(?=\"$)")


# Paging of lists: from an answer to the next page.

#: The link of that relation in a ``Link`` field (RFC 8288).
_LINK: Final = re.compile(
    r'<([^<>]*)>\s*;[^<>]*?\brel\s*=\s*"?(?:[^"<>,;]*\s)?next\b', re.IGNORECASE
)
_NEXT: Final = JsonPlace("$.next")
_COUNTED: Final = re.compile(r"([^=+$\s]+)([=+])(\d+)")
_CURSOR: Final = re.compile(r"([^=+$\s]+)=(\$.+)")


class Paging:
    """Order of the pages of a list, as given by ``--pages``."""

    def __init__(self, text: str) -> None:
        """``ValueError`` for a way that ``PAGING_HELP`` does not list."""
        self.text = text
        self._header = ""
        self._pointer: JsonPlace | None = None
        self._parameter, self._number, self._by_record = "", 0, False
        kind, _, name = text.partition(" ")
        if text in ("", "whole"):
            return
        if kind == "header" and name:
            self._header = name.lower()
        elif text.startswith("$"):
            self._pointer = _single_place(text)
        elif match := _COUNTED.fullmatch(text):
            self._parameter, self._number = match[1], int(match[3])
            self._by_record = match[2] == "+"
        elif match := _CURSOR.fullmatch(text):
            self._parameter, self._pointer = match[1], _single_place(match[2])
        else:
            raise ValueError(f"{text!r} is no way from page to page: {PAGING_HELP}")

    @property
    def counted(self) -> bool:
        """Whether pages have numbers, so that one may begin in the middle."""
        return bool(self._parameter) and self._pointer is None

    def first(self, target: str, done: int = 0) -> str:
        """The address of the first page; of a counted list, of the one after ``done`` steps."""
        return self._numbered(target, done) if self.counted else target

    def following(self, target: str, answer: HttpAnswer, done: int, count: int) -> str | None:
        """The address of the next page; ``None`` behind the last one.

        ``done``: the steps made with this page, which has ``count`` records. Raises
        ``VaultError(BAD_RULES)`` where nothing tells whether there is another page.
        """
        if self.text == "whole" or (self.counted and not count):
            return None
        if self.counted:
            return self._numbered(target, done)
        if self._header:
            return _relative(target, _address_in(answer.headers.get(self._header, "")))
        if self._pointer is not None:
            value = self._pointer.value(answer.body)
            if value and self._parameter:
                return _with_parameter(target, self._parameter, value)
            return _relative(target, value or "")
        return self._obvious(target, answer)

    def step(self, count: int) -> int:
        """Return the step to the next page of a counted list."""
        return count if self._by_record else 1

    def _numbered(self, target: str, done: int) -> str:
        return _with_parameter(target, self._parameter, str(self._number + done))

    def _obvious(self, target: str, answer: HttpAnswer) -> str | None:
        """By what lists usually say of themselves."""
        for name in ("link", "next-page"):
            if address := _address_in(answer.headers.get(name, "")):
                return _relative(target, address)
        if (value := _NEXT.value(answer.body)) is not None:
            return _relative(target, value)
        return None

    def is_conclusive(self, answer: HttpAnswer) -> bool:
        """Whether one may know that this page is not followed by another one."""
        return bool(self.text) or _NEXT.value(answer.body) is not None


class PageTrail:
    """The pages of one pass so far, which tell a list that goes round for ever."""

    def __init__(self, paging: Paging, label: str) -> None:
        """``label``: the operation that lists."""
        self._paging, self._label = paging, label
        self._targets = set[str]()
        self._ids: list[str] = []

    def enter(self, target: str) -> None:
        """Raises ``VaultError(BAD_RULES)`` for a page that was read before."""
        if target in self._targets:
            raise self.fault(f"{target} leads to itself, or back to itself, by its next pages")
        self._targets.add(target)

    def is_end(self, ids: list[str], done: int) -> bool:
        """Whether a counted page has the records of the one before, as beyond the end of a list.

        ``done``: the steps made before it. Raises ``VaultError(BAD_RULES)`` where the second page
        has those of the first one.
        """
        repeats = self._paging.counted and bool(ids) and ids == self._ids
        self._ids = ids
        if repeats and done <= self._paging.step(len(ids)):
            raise self.fault(
                "the second page has the records of the first one, so the list does not heed "
                f"--pages {self._paging.text}; if one answer has all, write --pages whole"
            )
        return repeats

    def refuse_endless(self, target: str, answer: HttpAnswer, count: int) -> None:
        """A list that does not say how it continues may continue all the same."""
        paging = self._paging
        if not paging.is_conclusive(answer) and paging.following(target, answer, 1, count) is None:
            raise self.fault(
                f"nothing in the answer to {target} leads to another page, and nothing says that "
                f"it has all records; say how its pages follow with --pages: {PAGING_HELP}"
                f"{_likely_pages(answer.body)}"
            )

    def fault(self, text: str) -> VaultError:
        """The fault of a list, under the name of its operation."""
        return VaultError(Code.BAD_RULES, f"{self._label}: {text}.")


_TELLS_NEXT: Final = re.compile(r"next|cursor|continu", re.IGNORECASE)
PAGING_HELP: Final = (
    "'header Next-Page' or '$.next' (where the next address stands), 'after=$.cursor' (a parameter "
    "and where its next value stands), 'page=1' (pages are counted), 'offset+0' (records are "
    "counted), or 'whole' (one answer has all)"
)


def _likely_pages(body: bytes) -> str:
    """A hint at the member of a list that seems to tell its next page; empty for none."""
    try:
        content = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return ""
    outer = content if isinstance(content, dict) else {}
    inner = [(f"{name}.", one) for name, one in outer.items() if isinstance(one, dict)]
    for way, members in [("", outer), *inner]:
        for name, value in members.items():
            if isinstance(value, str) and value and _TELLS_NEXT.search(name):
                pages = f"$.{way}{name}" if "/" in value else f"PARAMETER=$.{way}{name}"
                return f". It may be --pages '{pages}'"
    return ""


def _single_place(text: str) -> JsonPlace:
    pointer = JsonPlace(text)
    if not pointer.single:
        raise ValueError(f"{text!r} may lead to several places: {PAGING_HELP}")
    return pointer


def _address_in(field: str) -> str:
    """The address in a header field, as a link or bare."""
    if match := _LINK.search(field):
        return match[1]
    return "" if "<" in field else field.strip()


def _relative(target: str, address: str) -> str | None:
    """Path and query of an address that stands in the answer to ``target``."""
    if not address:
        return None
    parts = urllib.parse.urlsplit(urllib.parse.urljoin(target, address))
    return urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))


def _with_parameter(target: str, name: str, value: str) -> str:
    path, _, query = target.partition("?")
    pairs = urllib.parse.parse_qsl(query, keep_blank_values=True)
    pairs = [pair for pair in pairs if pair[0] != name]
    return f"{path}?{urllib.parse.urlencode([*pairs, (name, value)])}"
