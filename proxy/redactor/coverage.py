"""Loggable description of a request that no rule names: the shape of its path.

It goes to logs and metrics, so it contains no value. A segment of a path is shown if it is a
word of a rule file's paths, or of a list of common words. Any other word could be a name: it is
shown as ``{word}``, and anything else (digits, an address, a long token, an escape) as ``{id}``.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final
from urllib.parse import parse_qsl

import msgspec

from proxy.redactor.path import split_target
from proxy.redactor.path_template import SegmentKind, parse_template
from proxy.redactor.rules import Rule

#: Segments that are shown; the rest of a longer path is one placeholder.
_SEGMENTS: Final = 8
#: Spellings of segments whose meaning is remembered.
_REMEMBERED: Final = 4096

#: Words of many interfaces, without those that are names of people as well (``hook``, ``keys``,
#: ``post``).
_ROUTES: Final = frozenset(
    (
        ".well-known about access account active activities activity add address addresses admin "
        "ajax all analytics answer answers api app apps archive archives article articles asset "
        "assets attachment attachments audit auth authorize autocomplete avatar avatars backup "
        "badge basket batch billing blog board boards bookings browse build bulk cache calendar "
        "callback campaign campaigns cancel captcha card cards cart cases catalog categories "
        "category certificates change channel channels chat check checkout choose chunk clear "
        "client clients close cms collections comment comments common companies company complete "
        "component components config confirm contact contacts content contents convert copy count "
        "countries country create css csv current customer customers dashboard data deals debug "
        "delete demo department departments detail details device devices dist docs document "
        "documents done download downloads draft drafts duplicate edit email emails employee "
        "employees entries entry error errors event events excel execute export exports external "
        "family favicon.ico feed feedback feeds file files filter filters find folder folders font "
        "fonts forgot form forms forum generate get graphql group groups guests health healthcheck "
        "healthz help helpdesk history home hooks html icon icons id image images img import "
        "imports inactive inbox index index.html info init internal invitations invite invites "
        "invoice invoices issue issues item items job jobs js json kpi label labels languages lead "
        "leads legal lib library license licenses like likes link links list lists live livez "
        "local locale locales locations log login logout logs lookup mail mails manage "
        "manifest.json map maps media meeting meetings member members memberships menu merge "
        "message messages meta metadata metrics migrate mobile model models modules move my net "
        "new news newsletter next note notes notification notifications oauth oauth2 object "
        "objects offers oidc open openapi openapi.json opportunities option options order orders "
        "organization organizations overview owner owners package packages partial partials "
        "partner partners password path patient patients payment payments pdf people permission "
        "permissions persons phone photo photos picture pictures ping pipeline plan plans plugin "
        "plugins policies policy poll popup portal posts preferences preview print privacy private "
        "product products profile profiles project projects public publish query question "
        "questions queue quick quote quotes rate ready readyz recent record records redirect "
        "refresh register registration remove rename reply report reports request requests reset "
        "resource resources rest restore results resume reviews revoke robots.txt role roles route "
        "rpc rss rules run save schedule schema schemas scim script scripts search section "
        "sections security select send service services session sessions set settings setup share "
        "shared shipments shop signin signout signup sitemap.xml sites sms social socket.io sort "
        "sources spa src sso staff state static stats status steps stop storage store stores "
        "stream streams student students style styles submit subscribe subscription subscriptions "
        "suggest suggestions summary support survey surveys swagger sync system table tables tag "
        "tags task tasks team teams template templates tenant tenants terms test tests theme "
        "themes thumbnail thumbnails ticket tickets timeline timezones toggle token tokens tool "
        "tools top track tracking transactions transfer translations tree type types unread "
        "unsubscribe update updates upgrade upload uploads url user users util utils validate "
        "validation values vendor vendors verify version versions video videos view views vote "
        "watch web webhook webhooks website well-known widget widgets wiki wizard workflow "
        "workflows workspaces ws www xlsx xml zip applicant applicants appointment appointments "
        "beneficiaries beneficiary candidate candidates claim claims clinic courier couriers "
        "course courses crm donor donors driver drivers enrollment enrollments erp hospital "
        "household households hr insurance loan loans medical parents passenger passengers "
        "policyholder policyholders prescription prescriptions prospect prospects pupils recipient "
        "recipients reservation reservations residents rooms sales school sellers subscribers "
        "supplier suppliers teachers treatments trips visitors volunteers trash trashed deleted "
        "archived undelete unarchive untrash purge accounts catalogue catalogues shipping username "
        "voucher vouchers wishlists manager collection types relations actions publish unpublish "
        "discard me wp xmlrpc wp-comments-post"
    ).split()
)

#: Name of a kind of record that Strapi gives: ``api::customer.customer``.
_IDENTIFIER: Final = re.compile(r"(?:api|plugin|admin)::[a-z][a-z-]{1,40}\.[a-z][a-z-]{1,40}")
_VERSION: Final = re.compile(r"v\d{1,2}(?:\.\d{1,2})?", re.IGNORECASE)
#: Form of a word, perhaps a person's name.
_WORD: Final = re.compile(r"[A-Za-z]{1,16}(?:[-_]?[A-Za-z]{1,16}){0,4}", re.ASCII)
#: Endings of files that everybody gets: their names tell nothing, their number is large.
_FILE: Final = re.compile(
    r"(.+)(\.(?:css|js|mjs|map|png|jpe?g|gif|svg|webp|avif|ico|woff2?|ttf|otf|eot|html?|json|xml|csv|pdf|txt|zip|mp[34]|webm|wasm|php|aspx?|jsp))",
    re.DOTALL | re.IGNORECASE,
)
#: Endings of programs, whose names are words of the application as those of paths are.
_PROGRAMS: Final = frozenset({".php", ".asp", ".aspx", ".jsp"})


#: Paths of programs and folders, whose requests often say by a parameter what they are for.
_PROGRAM: Final = re.compile(rb"(?i)/\Z|\.(?:php\d?|do|action|aspx?|ashx|jspx?|cgi|pl|cfm|dll)\Z")
#: Such parameters: of Yii and OpenCart, MVC frameworks, Joomla, WordPress, Struts, MediaWiki,
#: Drupal.
_ROUTING: Final = (
    "r", "route", "controller", "c", "module", "m", "option", "view", "task", "action", "a", "act",
    "cmd", "do", "op", "method", "func", "event", "page", "q",
)  # fmt: skip
_ROUTES_SHOWN: Final = 3
_ROUTE: Final = re.compile(r"[\w./:\\-]{1,100}", re.ASCII)
_ROUTE_PIECE: Final = re.compile(r"[A-Za-z]+|\d+")


def routes_of(rules: Iterable[Rule]) -> list[tuple[str, str]]:
    """The parameters by which rules of one path are told apart, with each of their values."""
    conditions = (one for rule in rules for one in rule.when if one.source == "query")
    return [(one.name, value.text) for one in conditions for value in one.values]


def written_path(rule: Rule) -> str:
    """The path of a rule, with the parameters that tell it apart."""
    routes = "&".join(sorted(f"{name}={text}" for name, text in routes_of((rule,))))
    return f"{rule.template}?{routes}" if routes else rule.template


class PathShapes:
    """Computes shapes of paths. ``templates``: those of the rules, whose words are public, and
    ``routes`` the parameters with values that tell requests of one path apart.
    """

    def __init__(
        self, templates: Iterable[str] = (), routes: Iterable[tuple[str, str]] = ()
    ) -> None:
        routes = tuple(routes)
        self._words = _ROUTES | _words_of(templates)
        self._segments: dict[bytes, tuple[str, str]] = {}
        self._routing = tuple(dict.fromkeys([*(name for name, _ in routes), *_ROUTING]))
        pieces = (piece for _, text in routes for piece in _ROUTE_PIECE.findall(text))
        self._route_words = {part.lower() for one in pieces for part in (one, *_PIECE.findall(one))}

    def route(self, target: bytes) -> str:
        """The part of a query by which a program is told what it is asked for, such as
        ``?r=contact/create``; empty where a path has no program, or the query no such part.
        """
        path, _, query = target.partition(b"?")
        if not query or not _PROGRAM.search(path):
            return ""
        said = dict(parse_qsl(query.decode("latin-1")))
        values = ((name, said.get(name, "")) for name in self._routing)
        parts = [
            f"{name}={self._routed(text)}"
            for name, text in values
            if text and not text.isdigit() and (name != "q" or "/" in text)
        ]
        return "?" + "&".join(parts[:_ROUTES_SHOWN]) if parts else ""

    def _routed(self, text: str) -> str:
        if not _ROUTE.fullmatch(text):
            return "{word}"
        return _ROUTE_PIECE.sub(lambda piece: self._route_word(piece[0]), text)

    def _route_word(self, piece: str) -> str:
        if piece.isdigit():
            return "{id}"
        parts = [part.lower() for part in _PIECE.findall(piece)]
        words = self._route_words | _NOBODYS
        return piece if piece.lower() in words or all(one in words for one in parts) else "{word}"

    def shape(self, target: bytes) -> str:
        """The shape of a request target's path, such as ``/api/people/{id}/photo``; no query."""
        path = target.partition(b"?")[0] if target[:1] == b"/" else split_target(target).path
        template, counts = "", dict[str, int]()
        for number, part in enumerate(filter(None, path.split(b"/"))):
            if number == _SEGMENTS:
                return f"{template}/{{rest*}}"
            kind, text = self._segment(part)
            if kind:
                counts[kind] = count = counts.get(kind, 0) + 1
                text = f"{{{kind}{count if count > 1 else ''}}}{text}"
            template = f"{template}/{text}"
        return template or "/"

    def _segment(self, part: bytes) -> tuple[str, str]:
        """Return the placeholder of a segment, and its visible part: a known word or an ending."""
        if part.isdigit():
            return "id", ""
        shape = self._segments.get(part)
        if shape is None:
            shape = self._look(part.decode("ascii", "replace"))
            if len(self._segments) >= _REMEMBERED:
                self._segments.clear()
            self._segments[part] = shape
        return shape

    def _look(self, text: str) -> tuple[str, str]:
        if self._public(text) or _VERSION.fullmatch(text) or _IDENTIFIER.fullmatch(text):
            return "", text
        file = _FILE.fullmatch(text)
        name, ending = (file[1], file[2].lower()) if file else (text, "")
        if ending in _PROGRAMS and self._public(name):  # such as users.php
            return "", f"{name}{ending}"
        return ("word" if _WORD.fullmatch(name) else "id"), ending

    def _public(self, text: str) -> bool:
        pieces = text.lower().split("-")  # such as content-manager
        return text.lower() in self._words or all(one in self._words for one in pieces)


def _words_of(templates: Iterable[str]) -> set[str]:
    """The literal segments of path templates in lower case."""
    segments = (one for template in templates for one in parse_template(template).segments)
    return {one.text.lower() for one in segments if one.kind is SegmentKind.LITERAL}


_NUMBERED: Final = re.compile(r"(\{[a-z]+)\d+\}")
_COMMON: Final = PathShapes()


def may_name(template: str, shape: str) -> bool:
    """Whether a rule's path may be that of a shape that hides a word the rule made public."""
    template, _, said = template.partition("?")
    shape, _, route = shape.partition("?")
    mine, others = template.strip("/").split("/"), shape.strip("/").split("/")
    revealed = bool(said) and "{word}" in route
    for number, part in enumerate(mine):
        if part.endswith("*}") or (len(others) > number and others[number] == "{rest*}"):
            return revealed
        if len(others) <= number:
            return False
        other = _NUMBERED.sub(r"\1}", others[number])
        if "{" in part or part.lower() == other.lower():
            continue
        if _COMMON.shape(f"/{part}".encode()) != f"/{other}":
            return False
        revealed = True
    return revealed and len(mine) == len(others)


_PIECE: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_NAME: Final = re.compile(r"[A-Za-z][\w.\[\]-]{0,63}", re.ASCII)

#: Names of members and parameters, or their words, that are nobody's; as a part of a path each of
#: them may be somebody's.
_MEMBERS: Final = frozenset(
    "first last given family middle full sur nick name firstname lastname fullname surname mobile "
    "cell tel telephone fax birth birthday birthdate born dob date day of number no nr iban bank "
    "street zip postal postcode city town region state province ssn national identity personal "
    "passport nin e bsn pesel personnummer mailaddress emailaddress phonenumber contact primary "
    "secondary work private home emergency gender sex nationality language locale timezone company "
    "employer job line occupation q role plan text note notes remark remarks comment message "
    "description title subject body results value values nodes edges node rows hits display login "
    "screen holder guardian landlord spouse parent child children".split()
)
_NOBODYS: Final = _ROUTES | _MEMBERS


def parameter_word(name: str, words: Collection[str] = ()) -> str:
    """Return a parameter's name if all its words are public; else ``{word}``.

    ``words``: further public ones, in lower case.
    """
    if name.lower() in words:
        return name
    pieces = [piece.lower() for piece in _PIECE.findall(name)]
    plain_name = _NAME.fullmatch(name) and not any(char.isdigit() for char in name)
    if plain_name and all(piece in _NOBODYS or piece in words for piece in pieces):
        return name
    return "{word}"


#: Members of one request and its answers that are kept.
MOST_MEMBERS: Final = 200


class WatchedMember(msgspec.Struct, frozen=True, order=True):
    """A member that was suspected to be of a kind, and how often.

    ``part``: ``request``, ``response``, ``form`` or ``query``. Of the whole message tell ``files``;
    ``answer``, whose kind is ``html`` or ``csv``; ``column`` of such a file; ``head`` of a page;
    ``sentences``, where texts of several words are in it of which nothing is known; ``codes``,
    where codes in capitals stand in place of values; and ``redirect``, with the shape of the path
    that it leads to as member, and the status as kind.
    """

    part: str
    owner: tuple[str, ...]  #: way to the object; ``[*]`` is each element of an array
    member: tuple[str, ...]  #: way from there; empty with the kind ``id``: the object has one
    kind: str
    count: int


def joined_members(
    one: Iterable[WatchedMember], other: Iterable[WatchedMember]
) -> list[WatchedMember]:
    """Add up the members that several exchanges, or processes, have told of one shape."""
    counts = Counter[tuple[str, tuple[str, ...], tuple[str, ...], str]]()
    for each in (*one, *other):
        counts[each.part, each.owner, each.member, each.kind] += each.count
    return [WatchedMember(*key, count) for key, count in sorted(counts.items())][:MOST_MEMBERS]
