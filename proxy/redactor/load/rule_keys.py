"""The rule language as tables: every key, its form, its default and one sentence about it.

The loader parses by these tables; the JSON Schema and the reference manual are printed from them.
The keys of an operation stand in ``operation_keys``. The meaning of combined keys is checked in
``entities``, ``operations`` and ``checks``.

``domicile rules schema --markdown`` prints every key, token shape and kind as the tables that stand
between two marks of the manual; a test proves that it is in step with the code.
"""

from collections.abc import Iterator
from typing import Any

from proxy.errors import Code
from proxy.redactor.load.operation_keys import OPERATION_BLOCK
from proxy.redactor.load.parsers import (
    DURATION,
    NAME_HINT,
    RULE_NAME,
    SELECTOR,
    SIZE_IN_BYTES,
    parse_host,
    parse_prefix,
    parse_upstream,
    status,
)
from proxy.redactor.load.value_checks import CHECK_BLOCK, CheckWord, RefusalForm
from proxy.redactor.load.value_forms import (
    Anything,
    Block,
    Either,
    Form,
    Key,
    KeywordForm,
    ListOf,
    MapOf,
    Text,
    number_within,
)
from proxy.redactor.load.views import CALLER_BLOCK, MASK_BLOCK, ROLE, VIEW_BLOCK
from proxy.tokenization import DEFAULT_SHAPE, FIELD_KINDS, PERSISTENT, SHAPES, SYNONYMS
from proxy.tokenization.fallback import TOTAL
from proxy.tokenization.mask import DEFAULT_MASK, Visible

#: What ``version: 1`` means is this file.
LANGUAGE_VERSION = 1
#: Default number of records to plan for: a shape must have room for twice as many.
POPULATION = 1_000_000

_ENDPOINT = r"[a-z0-9][a-z0-9_-]{0,62}"

_ERROR = status(400, 599)

LIMITS_BLOCK = Block(
    "limits",
    "Bounds on the bodies of requests and answers that an operation names. More than that is "
    "refused.",
    (
        Key("body", SIZE_IN_BYTES, "longest body as it is sent", "2MiB"),
        Key("inflated", SIZE_IN_BYTES, "longest body after its content coding is undone", "16MiB"),
        Key("json_depth", number_within(1, 1000), "most levels of JSON", "64"),
        Key("form_fields", number_within(1, 100_000), "most members of a form", "1000"),
    ),
)

ENDPOINT = Block(
    "endpoint",
    "The web application behind the proxy that this file is about.",
    (
        Key("name", Text("name", "small letters, digits, '-' and '_'", _ENDPOINT), "unique name, shown in metrics and answers", required=True),
        Key("upstream", Text("address", "http://host:port or https://host:port", parse=parse_upstream, reference=True), "where the application listens: http://host:port or https://host:port", required=True),
        Key("host", ListOf(Text("host name", "a name such as crm.example.com", parse=parse_host, reference=True), single=True), "the `Host` names of requests that belong to this application, without port", "any"),
        Key("prefix", Text("path", "a path such as /crm", parse=parse_prefix, reference=True), "the path that all its requests begin with; it is forwarded as it came, and every `match` begins with it", "none"),
        Key("unmatched", KeywordForm(("report", "pass", "deny")), "what happens to a request that no operation names: it passes and each shape of a path is told once, it passes unsaid, or it is refused", "report"),
        Key("limits", LIMITS_BLOCK, "bounds on bodies"),
        Key("refusals", RefusalForm(), "the JSON of the proxy's own refusals, in the form in which the application tells its errors: [refusals](#refusals-in-the-applications-own-form)", "problem documents (RFC 9457)"),
        Key("caller", CALLER_BLOCK, "how callers prove the roles that `views` name", "nobody has a role"),
    ),
    elsewhere=dict.fromkeys(
        ("tls", "ca", "certificate", "key"),
        "stands in no rule file: TLS towards an application is a setting, such as "
        "applications.NAME.tls.ca with the name of this endpoint",
    ),
)  # fmt: skip

_SHAPE = KeywordForm((*SHAPES, *SYNONYMS, *PERSISTENT), title="[shape](#token-shapes)")


def _takers(option: str) -> str:
    return ", ".join(name for name, parser in SHAPES.items() if option in parser.options)


_OPTIONS = dict.fromkeys(option for parser in SHAPES.values() for option in parser.options)

TOKEN = Block(
    "token",
    "A token shape with its options.",
    (
        Key("shape", _SHAPE, "name of the shape", "`template` where a template is given, else the shape of the field's kind"),
        Key("else", KeywordForm(TOTAL), "the shape of values that do not fit this one, such as `n/a` in a field of numbers; without it such a request is refused with 422"),
        *(Key(option, Anything(), f"option of {_takers(option)}") for option in _OPTIONS),
    ),
)  # fmt: skip

FIELD_BLOCK = Block(
    "field",
    "One personal value of an entity.",
    (
        Key("kind", KeywordForm(tuple(FIELD_KINDS)), "what the value is; decides how two spellings compare and the default token shape", required=True),
        Key("token", Either(_SHAPE, TOKEN), "what the application gets instead of the value", "the shape of the kind"),
        Key("at", SELECTOR, "where the value stands in the entity's object; with `[*]` several values are one field", "the member of the field's name"),
        Key("find", ListOf(KeywordForm(("exact", "partial", "range"))), "how the vault can be asked for the value", "not at all"),
        Key("keep_as", Text("record field", "a field of the record schema, such as key1 or range_key1", RULE_NAME), "where the entity's `schema` is `records`: the field of the record-based interface "
            "that the value is found in", "the field of the same name, if there is one; else it is found in none"),
        Key("stored", KeywordForm(("plain",)), "`plain` keeps the value readable in the vault's own table, which `range` needs", "sealed"),
        Key("check", Either(CheckWord(), CHECK_BLOCK), "what its values may be: `true` for the form of the kind, `iban` and its like, or more in words; others are refused with 422 `value_invalid`", "anything"),
        Key("mask", MASK_BLOCK, "what a view that masks the field leaves readable", "that of [its kind](#kinds)"),
    ),
    elsewhere={"views": "stands at the top of the file; there, except names fields"},
)  # fmt: skip

ENTITY = Block(
    "entity",
    "A kind of record about a person: its fields, declared once for all operations and both "
    "directions.",
    (
        Key("schema", Text("schema name", NAME_HINT, RULE_NAME), "the vault's record type that holds it; `records` is that of the record-based interface, whose fields `keep_as` names", "the entity's name"),
        Key("expires", DURATION, "how long after its last write a record is deleted", "never"),
        Key("versions", KeywordForm(("current", "keep")), "`keep`: the application has several versions of a record under one id ([drafts, locales, revisions](#several-versions-of-a-record)), and an "
            "update ends no value: each version is restored by its own tokens", "`current`: an update replaces the values"),
        Key("population", number_within(1, 10**15), "records planned for; a token shape without room for twice as many is refused", f"{POPULATION}"),
        Key("fields", MapOf(FIELD_BLOCK, "field name", RULE_NAME, NAME_HINT), "the personal values", required=True),
    ),
)  # fmt: skip

VAULT_DOWN = Block(
    "vault_down",
    "What happens while the vault cannot be reached, or its audit log not be written.",
    (
        Key("write", _ERROR, "answer to a create, update or delete", "503"),
        Key("read", status(400, 599, "tokens"), "`tokens`: answers pass with tokens in place; or the status to answer", "tokens; in pages, texts, exports and streams 503, for nobody can tell a token of a phone number from one"),
    ),
)  # fmt: skip

ON_ERROR = Block(
    "on_error",
    "What happens when something cannot be understood. Statuses are those of the proxy's own "
    "answer.",
    (
        Key("vault_down", VAULT_DOWN, "while the vault cannot be reached, or its audit log not be written"),
        Key("unreadable_body", _ERROR, "a body that is said to be neither JSON nor a form, or is of an unknown charset or coding", "415"),
        Key("ambiguous_json", _ERROR, "a member that stands twice, half a surrogate pair, data after the end", "400"),
        Key("too_large", _ERROR, "a body over a limit", "413"),
        Key("field_absent", KeywordForm(("count", "refuse")), "a field that the body lacks: counted in the metrics, or the request is refused", "count"),
        Key("unknown_token", KeywordForm(("leave",)), "a look-alike of a token that resolves to nothing stays as it is", "leave"),
        Key("untold_token", KeywordForm(("hide", "leave")), "a date, a number or a short code in an object without an id, by which alone it is told "
            "from a value: no value is shown (`null`, an empty cell), or it stays", "hide"),
        Key("unreadable_answer", status(400, 599, "tokens"), "an answer of success that is JSON, JSONP or a form, or says nothing of its kind, and "
            "cannot be read: another charset than UTF-8, a member that stands twice, no "
            "`Content-Type`. It passes with tokens in place, or the status is answered instead; "
            "the vault keeps what the application took", "tokens"),
        Key("guard", KeywordForm(("block", "report", "off")), "a value that was just swapped stands elsewhere in the same request, in the body, "
            "the address, a header field or a cookie: the request is refused, or it is counted and told", "block"),
        Key("upstream_not_2xx", KeywordForm(("scan", "pass")), "other answers than success: what the caller sent and what is stored of the record "
            "that the request names is restored anywhere in them (nothing stored with 401, 403, "
            "404, 407, 410), or they pass", "scan"),
    ),
)  # fmt: skip

_HEADERS = MapOf(
    Text("header value", "a text"),
    "header name",
    r"[A-Za-z0-9!#$%&'*+.^_`|~-]+",
    "letters, digits and '-'",
)
_STATUS = Key("status", status(100, 599), "status of the answer", "200")
_TEXTS = MapOf(Text("text", "a text"), "member name")
_BODY = Text("text", "a text")
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
        Key("text", _BODY, "the body as it is; `headers` name its Content-Type"),
        Key("query", _TEXTS, "query parameters"),
        Key("headers", _HEADERS, "header fields"),
    ),
)  # fmt: skip
APP_SEES = Block(
    "app_sees",
    "What must arrive at the application.",
    (
        Key("without", ListOf(Text("text", "a text that must not arrive")), "texts that may stand nowhere in what arrives"),
        Key("json", Anything(), "members of the body; `{shape: email}` stands for any token of that shape"),
        Key("form", _EXPECTED, "members of a form; `{shape: email}` as above"),
        Key("query", _EXPECTED, "query parameters; `{shape: email}` as above"),
    ),
)  # fmt: skip
APP_ANSWERS = Block(
    "app_answers",
    'What the application answers; `"{sent $.email}"` repeats what it was sent.',
    (
        _STATUS,
        Key("json", Anything(), "the body as JSON"),
        Key("text", Text("text", "a text"), "the body as a text, of the type in `headers`"),
        Key("headers", _HEADERS, "header fields"),
    ),
)
CALLER_SEES = Block(
    "caller_sees",
    "What must arrive at the caller.",
    (
        Key("status", status(100, 599), "status of the answer"),
        Key("json", Anything(), "the body as JSON"),
        Key("text", Text("text", "a text"), "the body as a text"),
        Key("headers", _HEADERS, "header fields, each as a whole"),
        Key("code", KeywordForm(tuple(Code), title="error code"), "the proxy refuses the request with this code, such as `search_refused`"),
    ),
)  # fmt: skip
TEST = Block(
    "test",
    "One exchange with its expected outcome, run by `domicile rules test`.",
    (
        Key("name", Text("text", "a sentence that says what the test shows"), "what the test shows", required=True),
        Key("as", ListOf(ROLE, single=True), "the roles of the caller", "none: where there are views, the caller sees tokens"),
        Key("call", CALL, "the caller's request", required=True),
        Key("app_sees", APP_SEES, "what must arrive at the application"),
        Key("app_answers", APP_ANSWERS, "what the application answers", "status 200 without a body"),
        Key("caller_sees", CALLER_SEES, "what must arrive at the caller"),
    ),
)  # fmt: skip

RULE_FILE = Block(
    "rule file",
    "One web application: its endpoint, its entities and its operations.",
    (
        Key("version", number_within(LANGUAGE_VERSION, LANGUAGE_VERSION), f"version of the rule language: {LANGUAGE_VERSION}", required=True),
        Key("endpoint", ENDPOINT, "the application behind the proxy", required=True),
        Key("entities", MapOf(ENTITY, "entity name", RULE_NAME, NAME_HINT), "kinds of records"),
        Key("operations", ListOf(OPERATION_BLOCK), "requests that carry personal data, and those that are known to carry none"),
        Key("views", ListOf(VIEW_BLOCK), "what callers see by their roles: the first view that names one counts; a caller whom none fits sees tokens", "every caller sees clear values"),
        Key("on_error", ON_ERROR, "what happens when something cannot be understood"),
        Key("tests", ListOf(TEST), "exchanges with their expected outcome"),
    ),
)  # fmt: skip


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


def reference() -> str:
    """The tables as Markdown."""
    parts = [*(_block(block) for block in blocks()), _shapes(), _kinds()]
    return "\n\n".join(parts) + "\n"


def _block(block: Block) -> str:
    rows = [
        _row(
            f"`{key.name}`{' (required)' if key.required else ''}",
            key.form.label,
            key.about,
            key.default,
        )
        for key in (*block.keys, *([block.named] if block.named is not None else []))
    ]
    return "\n".join(
        [
            f"### {block.name}",
            "",
            block.about,
            "",
            "| key | value | meaning | default |",
            "|---|---|---|---|",
            *rows,
        ]
    )


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _shapes() -> str:
    rows, others = [], [*SYNONYMS.items(), *PERSISTENT.items()]
    for name, parser in SHAPES.items():
        options = "; ".join(f"`{option}`: {about}" for option, about in parser.options.items())
        rows.append(
            _row(
                f"`{name}`",
                ", ".join(f"`{other}`" for other, ours in others if ours == name),
                options or "none",
            )
        )
    head = [
        "### token shapes",
        "",
        (
            "Names of the service specification work as well; those that end in Persistent mean "
            "`same: true`."
        ),
        "",
    ]
    return "\n".join([*head, "| shape | other names | options |", "|---|---|---|", *rows])


def _kinds() -> str:
    rows = [
        f"| `{kind}` | `{shape}` | {_readable(DEFAULT_MASK[kind])} |"
        for kind, shape in DEFAULT_SHAPE.items()
    ]
    head = "| kind | default token shape | default mask leaves readable |"
    return "\n".join(["### kinds", "", head, "|---|---|---|", *rows])


def _readable(visible: Visible) -> str:
    said = {name: getattr(visible, name) for name in visible.__slots__}
    words = [f"`{name}: {str(one).lower()}`" for name, one in said.items() if one]
    return ", ".join(words) or "nothing"


def rule_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of the rule language, with which editors complete and check a file.

    It accepts more than the loader where JSON Schema cannot express a rule (combined keys, options
    of token shapes); it never refuses what the loader accepts.
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Domicile rule file",
        **RULE_FILE.define(),
        "$defs": {block.definition: block.define() for block in blocks() if block is not RULE_FILE},
    }
