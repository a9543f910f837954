"""The rule language as tables: every key, its form, its default and one sentence about it.

The loader reads by these tables, the JSON Schema and the reference manual are printed from them.
What a key *means* together with others is checked in ``entities``, ``operations`` and ``checks``.
"""

from collections.abc import Iterator

from proxy.redactor.load.forms import (
    Anything,
    Block,
    Either,
    Flag,
    Form,
    Key,
    KeywordForm,
    ListOf,
    MapOf,
    Text,
    Whole,
)
from proxy.redactor.load.parsers import (
    Duration,
    Size,
    Status,
    parse_host,
    parse_id,
    parse_location,
    parse_match,
    parse_prefix,
    parse_selector,
    parse_upstream,
)
from proxy.tokenization import FIELD_KINDS, PERSISTENT, SHAPES, SYNONYMS
from proxy.tokenization.fallback import TOTAL

#: What ``version: 1`` means is this file.
LANGUAGE_VERSION = 1
#: Records that an entity is planned for where it does not say: what a shape must have room for,
#: twice.
POPULATION = 1_000_000

RULE_NAME = r"[A-Za-z][A-Za-z0-9_]{0,62}"
_NAME_HINT = "letters, digits and '_', a letter first, at most 63 characters"
_ENDPOINT = r"[a-z0-9][a-z0-9_-]{0,62}"

_SELECTOR = Text("selector", "a JSONPath such as $.email or $.items[*]", r"(?s).+", parse_selector)
_ID = Text(
    "place of an id",
    "path NAME, query NAME, form NAME, header NAME TEMPLATE or $.NAME",
    r"(?s).+",
    parse_id,
)
_FIELD = Text("field name", "the name of a field of the entity", RULE_NAME)
_ENTITY = Text("entity name", "the name of an entity of this file", RULE_NAME)
_ERROR = Status(400, 599)

LIMITS_BLOCK = Block(
    "limits",
    "Bounds on the bodies of requests and answers that an operation names. More than that is "
    "refused.",
    (
        Key("body", Size(), "longest body as it is sent", "2MiB"),
        Key("inflated", Size(), "longest body after its content coding is undone", "16MiB"),
        Key("json_depth", Whole(1, 1000), "most levels of JSON", "64"),
        Key("form_fields", Whole(1, 100_000), "most members of a form", "1000"),
    ),
)

ENDPOINT = Block(
    "endpoint",
    "The web application behind the proxy that this file is about.",
    (
        Key("name", Text("name", "small letters, digits, '-' and '_'", _ENDPOINT), "unique name, shown in metrics and answers", required=True),
        Key(
            "upstream",
            Text("address", "http://host:port or https://host:port", parse=parse_upstream, reference=True),
            "where the application listens: http://host:port or https://host:port",
            required=True,
        ),
        Key(
            "host",
            ListOf(Text("host name", "a name such as crm.example.com", parse=parse_host, reference=True), single=True),
            "the `Host` names of requests that belong to this application, without port",
            "any",
        ),
        Key("prefix", Text("path", "a path such as /crm", parse=parse_prefix, reference=True), "the path that all its requests begin with; it is forwarded as it came, and every "
            "`match` begins with it", "none"),
        Key("unmatched", KeywordForm(("report", "pass", "deny")), "what happens to a request that no operation names: it passes and each shape of a "
            "path is told once, it passes unsaid, or it is refused", "report"),
        Key("limits", LIMITS_BLOCK, "bounds on bodies"),
    ),
    later=("caller", "tls", "ca", "certificate", "key"),
)  # fmt: skip

_SHAPE = KeywordForm((*SHAPES, *SYNONYMS, *PERSISTENT), title="[shape](#token-shapes)")


def _takers(option: str) -> str:
    return ", ".join(name for name, parser in SHAPES.items() if option in parser.options)


_OPTIONS = dict.fromkeys(option for parser in SHAPES.values() for option in parser.options)

TOKEN = Block(
    "token",
    "A token shape with its options.",
    (
        Key(
            "shape",
            _SHAPE,
            "name of the shape",
            "`template` where a template is given, else the shape of the field's kind",
        ),
        Key(
            "else",
            KeywordForm(TOTAL),
            "the shape of values that do not fit this one, such as `n/a` in a field of numbers; "
            "without it such a request is refused with 422",
        ),
        *(Key(option, Anything(), f"option of {_takers(option)}") for option in _OPTIONS),
    ),
)

FIELD_BLOCK = Block(
    "field",
    "One personal value of an entity.",
    (
        Key("kind", KeywordForm(tuple(FIELD_KINDS)), "what the value is; decides how two spellings compare and the default token shape", required=True),
        Key("token", Either(_SHAPE, TOKEN), "what the application gets instead of the value", "the shape of the kind"),
        Key("at", _SELECTOR, "where the value stands in the entity's object; with `[*]` several values are one "
            "field", "the member of the field's name"),
        Key("find", ListOf(KeywordForm(("exact", "range"), later=("partial",))), "how the vault can be asked for the value", "not at all"),
        Key("keep_as", Text("record field", "a field of the record schema, such as key1 or range_key1", RULE_NAME), "where the entity's `schema` is `records`: the field of the record-based interface "
            "that the value is found in", "the field of the same name, if there is one; else it is found in none"),
        Key("stored", KeywordForm(("plain",)), "`plain` keeps the value readable in the vault's own table, which `range` needs", "sealed"),
    ),
    later=("mask", "views"),
)  # fmt: skip

ENTITY = Block(
    "entity",
    "A kind of record about a person: its fields, declared once for all operations and both "
    "directions.",
    (
        Key("schema", Text("schema name", _NAME_HINT, RULE_NAME), "the vault's record type that holds it; `records` is that of the record-based "
            "interface, whose fields `keep_as` names", "the entity's name"),
        Key("expires", Duration(), "how long after its last write a record is deleted", "never"),
        Key("population", Whole(1, 10**15), "records planned for; a token shape without room for twice as many is refused", f"{POPULATION}"),
        Key("fields", MapOf(FIELD_BLOCK, "field name", RULE_NAME, _NAME_HINT), "the personal values", required=True),
    ),
)  # fmt: skip

_SWAP_LATER = ("via", "send", "refuse", "split", "expression", "fields", "json")
_SWAP = Block(
    "parameter",
    "A query parameter or form member that carries a value of a field.",
    (Key("field", _FIELD, "the field; a name list needs `via`, which is not supported yet", required=True),),
    later=_SWAP_LATER,
)  # fmt: skip
_MEMBER = Either(_FIELD, _SWAP)
_FORM = MapOf(_MEMBER, "member name or pattern with `*`", r"(?s).+")
_PLACES = MapOf(_SELECTOR, "field name", RULE_NAME, _NAME_HINT)
_OBJECT = Key(
    "object",
    _SELECTOR,
    "where the entity's object stands; an array there means each of its elements",
    "`$`",
)
_EACH = Key("each", _SELECTOR, "where the objects stand when there are several, e.g. `$.items[*]`")
_MEMBERS = Key("form", _FORM, "members of an HTML form (`application/x-www-form-urlencoded`)")
_ELSEWHERE = Key(
    "fields",
    _PLACES,
    "fields that stand elsewhere in this operation, counted from the document's root",
)

REQUEST = Block(
    "request",
    "Where values stand in the request's body, and what an empty or missing one means.",
    (
        _OBJECT,
        _EACH,
        _MEMBERS,
        _ELSEWHERE,
        Key("absent", KeywordForm(("keep", "erase")), "update: a field that the body does not have", "keep"),
        Key("nulls", KeywordForm(("erase", "keep")), "a field that is null: erase the value, or keep it and send its token", "erase"),
        Key("empty", KeywordForm(("store", "keep")), "a field that is the empty text: store that, or keep the value and send its token", "store"),
        Key("own_token", KeywordForm(("keep", "refuse")), "a field that holds the record's own token: keep the value, or refuse the request", "keep"),
        Key("other_kinds", KeywordForm(("refuse", "pass")), "a body that is neither JSON, form nor text, such as a multipart upload: refuse the "
            "request, or pass the body as it came, whatever it holds", "refuse"),
    ),
    later=("patch", "own_mask", "values", "split", "json"),
)  # fmt: skip

_SUCCESS = Status(200, 399)
_LOCATION = Text("path", "a path such as /contacts/{id}", r"(?s).+", parse_location)
CONDITION = Block(
    "condition",
    "Statuses that mean the application took it, if the answer is as this says. A redirect that "
    "leads elsewhere leaves the request in doubt.",
    (
        Key("status", ListOf(_SUCCESS, single=True), "the statuses that the condition is about", required=True),
        Key("location", ListOf(_LOCATION, single=True), "the paths that a redirect may lead to: `/contacts/{id}`, `/contacts/`; `{rest*}` "
            "takes slashes", "anywhere"),
        Key("text", Text("text", "a text that the body must hold", r".+"), "what the body must hold, letter for letter", "anything"),
    ),
)  # fmt: skip

RESPONSE = Block(
    "response",
    "Where tokens are turned back in the answer, where it carries the record's id, and what "
    "counts as success.",
    (
        _OBJECT,
        _EACH,
        _MEMBERS,
        _ELSEWHERE,
        Key("id", _ID, "where the answer carries the id: from the object, or `header Location "
            "/contacts/{id}`", "`$.id` after a create"),
        Key("restore", KeywordForm(("named", "anywhere"), later=("html", "csv", "text")), "answers of success: tokens are restored where the rule names a place, or, in a page "
            "of HTML or another text, every token wherever it stands, whoever it belongs to", "named"),
        Key("success", ListOf(Either(_SUCCESS, CONDITION), single=True), "statuses that mean the application took it, each alone or on a condition", "200 to 299, for forms also 302 and 303"),
    ),
    later=("carriers", "values", "split", "json"),
)  # fmt: skip

OPERATION_BLOCK = Block(
    "operation",
    "One request of the application. Exactly one of create, read, update, delete where it "
    "carries personal data, else pass.",
    (
        Key("match", Text("method and path", "METHOD and path, such as POST /contacts", r"(?s).+", parse_match), "methods and path template: `PUT|PATCH /contacts/{id}`; `{rest*}` takes slashes", required=True),
        Key("create", _ENTITY, "the request makes a new record of this entity"),
        Key("read", _ENTITY, "the answer shows records of this entity"),
        Key("update", _ENTITY, "the request changes a record; an id that the vault does not know is created"),
        Key("delete", _ENTITY, "the request removes records"),
        Key("pass", Flag(), "true: somebody looked, and neither the request nor its answer holds anybody's data; "
            "it passes unchanged and unreported, also under `unmatched: deny`"),
        Key("id", _ID, "where the request carries the id or, with `[*]`, the ids: from the object where "
            "that is the whole body or one of several, else from the root", "`path id` where the path has `{id}`"),
        Key("request", REQUEST, "the request's body", "create and update: the object at `$`"),
        Key("response", RESPONSE, "the answer", "the object at `$`"),
        Key("query", MapOf(_MEMBER, "parameter name or pattern with `*`"), "query parameters that carry a value; it is swapped for its same-value token"),
    ),
    later=("when", "envelope", "carriers", "views", "via", "mask", "guard", "caller"),
)  # fmt: skip

VAULT_DOWN = Block(
    "vault_down",
    "What happens while the vault cannot be reached, or its audit log not be written.",
    (
        Key("write", _ERROR, "answer to a create, update or delete", "503"),
        Key(
            "read",
            Status(400, 599, "tokens"),
            "`tokens`: answers pass with tokens in place; or the status to answer",
            "tokens",
        ),
    ),
)

ON_ERROR = Block(
    "on_error",
    "What happens when something cannot be understood. Statuses are those of the proxy's own "
    "answer.",
    (
        Key("vault_down", VAULT_DOWN, "while the vault cannot be reached, or its audit log not be written"),
        Key("unreadable_body", _ERROR, "a body that is said to be neither JSON nor a form, or is of an unknown charset or "
            "coding", "415"),
        Key("ambiguous_json", _ERROR, "a member that stands twice, half a surrogate pair, data after the end", "400"),
        Key("too_large", _ERROR, "a body over a limit", "413"),
        Key("field_absent", KeywordForm(("count", "refuse")), "a field that the body lacks: counted in the metrics, or the request is refused", "count"),
        Key("unknown_token", KeywordForm(("leave",)), "a look-alike of a token that resolves to nothing stays as it is", "leave"),
        Key("unreadable_answer", Status(400, 599, "tokens"), "an answer of success that is JSON or a form, or says nothing of its kind, and "
            "cannot be read: another charset than UTF-8, a member that stands twice, no "
            "`Content-Type`. It passes with tokens in place, or the status is answered instead; "
            "the vault keeps what the application took", "tokens"),
        Key("upstream_not_2xx", KeywordForm(("scan", "pass")), "other answers than success: what the caller sent and what is stored of the record "
            "that the request names is restored anywhere in them (nothing stored with 401, 403, "
            "404, 407, 410), or they pass", "scan"),
    ),
    later=("guard",),
)  # fmt: skip

_HEADERS = MapOf(
    Text("header value", "a text"),
    "header name",
    r"[A-Za-z0-9!#$%&'*+.^_`|~-]+",
    "letters, digits and '-'",
)
_STATUS = Key("status", Status(100, 599), "status of the answer", "200")
_TEXTS = MapOf(Text("text", "a text"), "member name")
_EXPECTED = MapOf(Anything(), "member name")

CALL = Block(
    "call",
    "The request that the caller sends.",
    (
        Key("match", Text("method and path", "METHOD and path, such as GET /contacts/17"), "method and path of the request, without placeholders: GET /contacts/17"),
        Key("method", Text("method", "a method such as GET", r"[A-Z-]+"), "the method, beside `path`"),
        Key("path", Text("path", "a path such as /contacts/17", r"/.*"), "the path, beside `method`"),
        Key("json", Anything(), "the body as JSON"),
        Key("form", _TEXTS, "the body as a form"),
        Key("query", _TEXTS, "query parameters"),
        Key("headers", _HEADERS, "header fields"),
    ),
)  # fmt: skip
APP_SEES = Block(
    "app_sees",
    "What must arrive at the application.",
    (
        Key(
            "without",
            ListOf(Text("text", "a text that must not arrive")),
            "texts that may stand nowhere in what arrives",
        ),
        Key(
            "json",
            Anything(),
            "members of the body; `{shape: email}` stands for any token of that shape",
        ),
        Key("form", _EXPECTED, "members of a form; `{shape: email}` as above"),
        Key("query", _EXPECTED, "query parameters; `{shape: email}` as above"),
    ),
)
APP_ANSWERS = Block(
    "app_answers",
    'What the application answers; `"{sent $.email}"` repeats what it was sent.',
    (
        _STATUS,
        Key("json", Anything(), "the body as JSON"),
        Key("headers", _HEADERS, "header fields"),
    ),
)
CALLER_SEES = Block(
    "caller_sees",
    "What must arrive at the caller.",
    (
        Key("status", Status(100, 599), "status of the answer"),
        Key("json", Anything(), "the body as JSON"),
    ),
)
TEST = Block(
    "test",
    "One exchange with its expected outcome, run by `domicile rules test`.",
    (
        Key("name", Text("text", "a sentence that says what the test shows"), "what the test shows", required=True),
        Key("call", CALL, "the caller's request", required=True),
        Key("app_sees", APP_SEES, "what must arrive at the application"),
        Key("app_answers", APP_ANSWERS, "what the application answers", "status 200 without a body"),
        Key("caller_sees", CALLER_SEES, "what must arrive at the caller"),
    ),
    later=("as",),
)  # fmt: skip

RULE_FILE = Block(
    "rule file",
    "One web application: its endpoint, its entities and its operations.",
    (
        Key(
            "version",
            Whole(LANGUAGE_VERSION, LANGUAGE_VERSION),
            f"version of the rule language: {LANGUAGE_VERSION}",
            required=True,
        ),
        Key("endpoint", ENDPOINT, "the application behind the proxy", required=True),
        Key("entities", MapOf(ENTITY, "entity name", RULE_NAME, _NAME_HINT), "kinds of records"),
        Key(
            "operations",
            ListOf(OPERATION_BLOCK),
            "requests that carry personal data, and those that are known to carry none",
        ),
        Key("on_error", ON_ERROR, "what happens when something cannot be understood"),
        Key("tests", ListOf(TEST), "exchanges with their expected outcome"),
    ),
    later=("views",),
)


def blocks(form: Form = RULE_FILE) -> Iterator[Block]:
    """Every block of the language once, outermost first."""
    names: set[str] = set()
    waiting = [form]
    while waiting:
        form = waiting.pop(0)
        if isinstance(form, Block):
            if form.name not in names:
                names.add(form.name)
                yield form
                waiting[:0] = [key.form for key in form.keys]
        elif isinstance(form, ListOf | MapOf):
            waiting.insert(0, form.form)
        elif isinstance(form, Either):
            waiting[:0] = [form.scalar, form.mapping]
