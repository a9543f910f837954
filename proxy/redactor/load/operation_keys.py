"""The keys of an entry of ``operations``, as tables: its request and its answer.

They belong to ``rule_keys``, which names every other block of the rule language.
"""

from typing import Any

from proxy.redactor.load.parsers import (
    NAME_HINT,
    PERIOD,
    RULE_NAME,
    SELECTOR,
    parse_carrier,
    parse_id,
    parse_location,
    parse_match,
    status,
)
from proxy.redactor.load.value_forms import (
    FLAG,
    Anything,
    Block,
    Context,
    Either,
    JsonSchema,
    Key,
    KeywordForm,
    ListOf,
    MapOf,
    Text,
    number_within,
)
from proxy.redactor.load.yaml_tree import YamlNode
from proxy.redactor.rules import Restore

_ENTITY = Text("entity name", "the name of an entity of this file", RULE_NAME)
_FIELD = Text("field name", "the name of a field of the entity", RULE_NAME)
_ID = Text(
    "place of an id",
    "path NAME, query NAME, form NAME, header NAME TEMPLATE, column NAME, link TEMPLATE, $.NAME or $.NAME TEMPLATE",
    r"(?s).+",
    parse_id,
)  # fmt: skip
_KEEP = Key("keep", PERIOD, "delete: the application only marks the record. Its values stay for so long, or `until_deleted`: until another delete removes it; an update takes the mark away", "they go at once")  # fmt: skip
_LIST = Block(
    "list",
    "How several values of one parameter are sent on.",
    (
        Key("param", Text("parameter name", "a name", r"[^*\s]+"), "the name that they are sent under", "the parameter's own"),
        Key("join", Text("text", "a sign or two, such as `,`", r".{1,3}"), "what stands between them in one parameter", "as `split`, else `,`"),
        Key("repeat", FLAG, "true: the parameter is repeated for each; in JSON they are an array"),
        Key("none", Text("text", "a text that finds nothing, such as -1"), "what is sent where there is no value, or the vault finds nobody", "nothing"),
        Key("most", number_within(1, 10_000), "`via: vault`: ids that are sent at most; a search that finds more is answered with 422", "500"),
    ),
)  # fmt: skip


class _Inner:
    """Content of a place in a text of JSON: a parameter, whose text may be JSON again."""

    @property
    def label(self) -> str:
        return "field name, or [parameter](#parameter)"

    def read(self, node: YamlNode, context: Context) -> Any:
        return _MEMBER.read(node, context)

    def schema(self) -> JsonSchema:
        return _MEMBER.schema()


_UNWANTED = ListOf(
    Text(
        "field name",
        "`always`, or names of fields of the entity, and of another one with its name: "
        "`customer.last_name`",
        rf"({RULE_NAME}\.)?{RULE_NAME}",
    ),
    single=True,
)
_PARAMETER = Block(
    "parameter",
    "A parameter of a search. `field` says whose values it holds, or `refuse` that it cannot be "
    "answered.",
    (
        Key("field", ListOf(_FIELD, single=True), "the field; a value is swapped for its same-value token. With `via` also several: the value stands in one of them"),
        Key("else", Text("field name", "`pass`, or a field of the entity", RULE_NAME), "beside a field of the kind email, for a box that takes an address or a name: a value without `@` is one of this field, or it passes (`pass`)", "every value is one of `field`"),
        Key("via", KeywordForm(("vault",)), "the vault finds the records, and `send` sends their ids in place of the parameter; without `field` the parameter says an order, of fields with `stored: plain`"),
        Key("find", KeywordForm(("exact", "partial", "from", "to", "after", "before")), "with `via`: how the value is looked for; from, to, after and before need `find: [range]`", "`partial` in fields that have it, else `exact`"),
        Key("split", Text("text", "one to three signs, such as `,`", r"[,;:| !$*@~^.\-]{1,3}"), "what stands between several values in one text; each is swapped for itself", "one value"),
        Key("send", _LIST, "sends the values of the parameter as a list of another spelling", "as they came"),
        Key("mixed", FLAG, "with `split` or `send`: true while the application still holds some values in the clear; each value is sent beside its token, so it reaches the application and its logs", "tokens alone"),
        Key("pass", FLAG, "true: somebody looked, and the parameter, member or place holds nobody's data; it passes, is not reported, and the guard passes it over. In `query` of a create or update nothing else may stand"),
        Key("expression", KeywordForm(("scim",)), "the parameter is a filter of SCIM: `userName eq \"ann@example.com\" and active eq true`; values that protected attributes are compared with by `eq` and `ne` are swapped, other comparisons of them answered with 422"),
        Key("fields", MapOf(_FIELD, "name in the application"), "with `refuse`, `expression`, or in an order: further names that the application has for fields", "their own names, and those of their members"),
        Key("refuse", _UNWANTED, "`always`: a request with the parameter is answered with 422. Or fields that it may not name, with whatever sign, in lists", "not at all"),
        Key("drop", _UNWANTED, "in `query`: where `refuse` would refuse the request, the parameter is left out of it, and the list comes in the application's own order", "it is sent"),
        Key("json", MapOf(_Inner(), "selector"), "the text is a document of JSON: what stands where in it, from its root; of each place `field`, `split`, `refuse` or `json`"),
    ),
)  # fmt: skip
_CARRIER = Block(
    "member",
    "A form member, or a placeholder of the path, that carries a value of a field.",
    (Key("field", _FIELD, "the field", required=True),),
)
_MEMBER = Either(_FIELD, _PARAMETER)
_DOCUMENT = Block(
    "document",
    "A text that is a document of JSON.",
    (Key("json", MapOf(_Inner(), "selector"), "what stands where in it, from its root: the field of each place, or `json` of a text in it", required=True),),
)  # fmt: skip
_PASSED = "true: somebody looked, and it holds nobody's data; it passes, is not reported, and the guard passes it over"
_PART = Block(
    "upload part",
    "A part of an upload that is no field: a text, or a file.",
    (
        Key("filename", _FIELD, "it is a file: it passes, and its name is a value of this field, whose token shape is `filename`. A text under this name is refused; under a pattern with `*` it is a text like others"),
        Key("json", MapOf(_Inner(), "selector"), "it is a document of JSON: what stands where in it, from its root: the field of each place, or `json` of a text in it"),
        Key("pass", FLAG, _PASSED),
    ),
)  # fmt: skip
_COLUMN = Block(
    "column",
    "A column of an import that is no field.",
    (Key("pass", FLAG, _PASSED, required=True),),
)
_FORM = MapOf(_MEMBER, "member name or pattern with `*`", r"(?s).+")
_PLACES = MapOf(SELECTOR, "field name", RULE_NAME, NAME_HINT)
_OBJECT = Key("object", SELECTOR, "where the entity's object stands; an array there means each of its elements", "`$`")  # fmt: skip
_EACH = Key("each", SELECTOR, "where the objects stand when there are several, e.g. `$.items[*]`")
_XML = (
    Key("xml", SELECTOR, "in place of `object`: the body is [XML](#xml), and the object stands at this element, as in `$.people.person[*]`"),
    Key("xmlrpc", SELECTOR, "the same of a call of XML-RPC: the object is a value of it, as in `$.params[0]`"),
    Key("vobject", SELECTOR, "the same of a [card or calendar](#cards-and-calendars) (vCard, iCalendar): the object is a component of it, as in `$.VCARD` and `$.VCALENDAR.VEVENT[*]`"),
)  # fmt: skip
_MEMBERS = Key("form", _FORM, "members of an HTML form (`application/x-www-form-urlencoded`)")
_ELSEWHERE = Key("fields", _PLACES, "fields that stand elsewhere in this operation, counted from the document's root")  # fmt: skip

REQUEST = Block(
    "request",
    "Where values stand in the request's body, and what an empty or missing one means.",
    (
        _OBJECT,
        _EACH,
        *_XML,
        _MEMBERS,
        _ELSEWHERE,
        Key("values", MapOf(_MEMBER, "selector"), "read and delete: values that a JSON body looks for, each by its place from the document's root; create and update: texts that are documents of JSON, each `json`, and places that hold nobody's data, each `pass: true`; messages of a WebSocket: such places alone"),
        Key("websocket", SELECTOR, "where the object stands in a message of the caller; its values are searched for", "messages with a field of the entity close the connection, save where `values` lets them pass"),
        Key("multipart", MapOf(Either(_FIELD, _PART), "part name or pattern with `*`", r"(?s).+"), "the parts of a `multipart/form-data` form, such as an upload with a caption: texts, and files whose names are values"),
        Key("csv", MapOf(Either(_FIELD, _COLUMN), "column name or pattern with `*`", r"(?s).+"), "create: columns of a CSV file whose rows are records each, by the names in its first line"),
        Key("part", Text("part name", "the name of a part of the form"), "beside `csv`: the part of a `multipart/form-data` form that is the file", "the file is the body"),
        Key("files", KeywordForm(("refuse", "pass")), "beside `multipart` or `part`: parts that are files, or anything but a text, and no `filename`: refuse the request, or pass them byte for byte, whatever they hold, with their names", "refuse"),
        Key("absent", KeywordForm(("keep", "erase")), "update: a field that the body does not have", "keep"),
        Key("nulls", KeywordForm(("erase", "keep")), "a field that is null: erase the value, or keep it and send its token", "erase"),
        Key("empty", KeywordForm(("store", "keep")), "a field that is the empty text: store that, or keep the value and send its token", "store"),
        Key("own_token", KeywordForm(("keep", "refuse")), "a field that holds the record's own token: keep the value, or refuse the request", "keep"),
        Key("own_mask", KeywordForm(("keep", "refuse")), "a field that holds what the caller is shown masked of the stored value: keep the value, or refuse the request", "keep"),
        Key("other_kinds", KeywordForm(("refuse", "pass")), "a body that is neither JSON, form nor text, such as a picture: refuse the request, or pass the body as it came, whatever it holds", "refuse"),
        Key("patch", KeywordForm(("json", "merge", "scim", "dotted")), "update: the body tells changes: JSON Patch (RFC 6902), merge patch (RFC 7386), SCIM "
            "PATCH (RFC 7644), or members such as `address.street`, alone or under `$set` and `$unset`", "the body is the object"),
    ),
)  # fmt: skip

_SUCCESS = status(200, 399)
_LOCATION = Text("path", "a path such as /contacts/{id}", r"(?s).+", parse_location)
CONDITION = Block(
    "condition",
    "Statuses that mean the application took it, if the answer is as this says. A redirect that "
    "leads elsewhere leaves the request in doubt.",
    (
        Key("status", ListOf(_SUCCESS, single=True), "the statuses that the condition is about", required=True),
        Key("location", ListOf(_LOCATION, single=True), "the paths that a redirect may lead to: `/contacts/{id}`, `/contacts/`; `{rest*}` takes slashes; with parameters that it must have: `/index.php?r=contact/view`", "anywhere"),
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
        *_XML,
        Key("form", MapOf(Either(_FIELD, _CARRIER), "member name or pattern with `*`", r"(?s).+"), _MEMBERS.about),
        _ELSEWHERE,
        Key("values", MapOf(_DOCUMENT, "selector"), "texts that are documents of JSON, each by its place from the document's root"),
        Key("id", _ID, "where the answer carries the id: from the object, or `header Location /contacts/{id}`; in a page with `columns`, `column #` or `link /contacts/{id}`: a column, or a link, of each row", "`$.id` after a create, and after an update of several records"),
        Key("restore", KeywordForm(tuple(Restore)), "answers of success: tokens are restored where the rule names a place; "
            "`anywhere`, in a page or another text, every token wherever it stands, whoever it belongs to; "
            "`html` and `text`, in a page or a plain text, those of the record that `id` names, or where it names none "
            "those of the entity; in a page `columns` and `form` say where a small token stands; `csv`, in the `columns` of an export", "named"),
        Key("columns", MapOf(_FIELD, "column name"), "with `restore: csv`, the columns that hold a field, by their names in the first line; with `restore: html`, [tables and labels](#pages-and-errors) of a page: the heads of columns, and what stands before a value, such as `Born` for `<th>Born</th><td>`, `<dt>Born</dt><dd>` and `<strong>Born:</strong>`; letter case, and signs at the ends, do not count"),
        Key("formulas", KeywordForm(("leave", "escape")), "with `restore: csv`, values that a spreadsheet would compute: `escape` writes an apostrophe before those that begin with `=`, `+`, `-`, `@`, a tab or a line end, apart from plain numbers", "leave"),
        Key("only", ListOf(_FIELD), "with `restore: html` or `text`, the fields that are restored; name them where a page shows no small token, such as a date", "all"),
        Key("websocket", SELECTOR, "a read: the request opens a WebSocket, and each message of the application is a JSON document with the object there", "no WebSocket"),
        Key("stream", KeywordForm(("ndjson", "sse", "multipart")), "a read: the answer is a sequence of JSON documents, one a line (`ndjson`), a server-sent "
            "event (`sse`) or a part (`multipart`, of `multipart/mixed`), each passed on as it arrives; `object`, `each` and `id` count from the document", "one document"),
        Key("success", ListOf(Either(_SUCCESS, CONDITION), single=True), "statuses that mean the application took it, each alone or on a condition", "200 to 299, for forms also 302 and 303; JSON that [tells of a refusal](#refusals-with-200) leaves a change in doubt"),
        Key("carriers", ListOf(Text("header field, selector or cookie", "Location, Link, Refresh, Content-Disposition, href, cookie NAME FIELD or $.next", r"(?s).+", parse_carrier)), "addresses in header fields or JSON members that may show "
            "values of this exchange, in the parameters that a rule names; `Content-Disposition`, the name of a file; and `cookie NAME FIELD`, a cookie whose value is one of the field, swapped again in every request to the endpoint", "they keep their tokens"),
        Key("complete", FLAG, "true: the list shows every record, whoever asks, so a delete in doubt has happened where the record is absent; GET without query alone, see [lists of all records](#lists-of-all-records). Of several creates: the answer shows every record that was created, so the application has rejected the others, see [rejected rows](#rejected-rows). Of an update or delete: a success means that it was carried out, of [several records](#several-records-at-once) that of all, and of one also where the answer is [a redirect or a page](#redirects-and-pages)", "absence says nothing"),
        Key("scan", FLAG, "true: tokens of the record that the request names, or where it names none of the entity, are restored beside the named places as well, wherever they stand in an answer of success"),
    ),
    elsewhere={"objects": "stands beside match, in place of create, read, update or delete; each object has a response of its own: objects: [{read: ENTITY, response: {…}}]"},
)  # fmt: skip

_WAY = Text(
    "argument",
    "an argument, or a way into one: input, input.contact",
    r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*",
)
_ARGUMENT = Block(
    "graphql argument",
    "An argument that the server could only answer wrongly, since it keeps tokens.",
    (
        Key("refuse", _UNWANTED, "`always`: an operation with the argument is answered with 422. Or fields that it may not name, with whatever sign or direction, in lists and in objects", required=True),
    ),
)  # fmt: skip
GRAPHQL_FIELD = Block(
    "graphql field",
    "A field of a GraphQL schema that shows or changes records of an entity. One of entity, create, read, "
    "update, delete; else pass.",
    (
        Key("entity", _ENTITY, "the field shows records of this entity; the same as `read`"),
        Key("create", _ENTITY, "the field makes a record"),
        Key("read", _ENTITY, "the field shows records"),
        Key("update", _ENTITY, "the field changes a record"),
        Key("delete", _ENTITY, "the field removes a record"),
        Key("pass", FLAG, "true: somebody looked, and the field's own arguments hold nobody's data, though some are called like protected fields"),
        _KEEP,
        Key("object", _WAY, "create and update: the argument that holds the values"),
        Key("key", _WAY, "update and delete: the argument that is the record's id"),
        Key("id", Text("field name", "a name", r"[A-Za-z_]\w*"), "the member of the answer's object that is the record's id", "id"),
        Key("arguments", MapOf(Either(_FIELD, _ARGUMENT), "argument", r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", "an argument, or a way into one"), "read and delete: arguments that are searched by, with the field of each; and those that are refused. Create and update, in place of `object`: those that are the values, with the field of each"),
    ),
)  # fmt: skip

_ANSWERS = Block(
    "answers",
    "Where the answers stand in the answer to an envelope, and their parts, counted from each.",
    (
        Key("each", SELECTOR, "where they stand; an array there means each of its elements", required=True),
        Key("status", SELECTOR, "the status of an answer; without one it was taken where its body is there, else refused", "`$.status`"),
        Key("headers", SELECTOR, "an object of its header fields", "`$.headers`"),
        Key("body", SELECTOR, "its body", "`$.body`"),
    ),
)  # fmt: skip
_ENVELOPE = Block(
    "envelope",
    "A JSON body that carries several requests, each matched as if it came alone.",
    (
        Key("each", SELECTOR, "where the requests stand; an array there means each of its elements", required=True),
        Key("method", SELECTOR, "the method, counted from a request, as are path, headers and body", "`$.method`"),
        Key("path", SELECTOR, "the path, with its query", "`$.path`"),
        Key("headers", SELECTOR, "an object of header fields", "`$.headers`"),
        Key("body", SELECTOR, "the body, a JSON value", "`$.body`"),
        Key("id", SELECTOR, "the member, of requests and answers, that tells which belong together", "their order"),
        Key("base", Text("path", "a path such as /api/", r"/[^?#\s]*"), "what stands before a path that does not begin with a slash"),
        Key("defaults", MapOf(Text("text", "a method or a path"), "part"), "`method` and `path` of requests that name none", "such a request is refused"),
        Key("answers", Either(SELECTOR, _ANSWERS), "where the answers stand", required=True),
    ),
)  # fmt: skip

_VERBS = (
    Key("create", _ENTITY, "the request makes a new record of this entity"),
    Key("read", _ENTITY, "the answer shows records of this entity"),
    Key("update", _ENTITY, "the request changes a record; an id that the vault does not know is created"),
    Key("delete", _ENTITY, "the request removes records"),
    _KEEP,
)  # fmt: skip
_PLACED = (
    Key("id", _ID, "where the request carries the id or, with `[*]`, the ids: from the object where that is the whole body or one of several, else from the root", "`path id` where the path has `{id}`"),
    Key("request", REQUEST, "the request's body", "create and update: the object at `$`"),
    Key("response", RESPONSE, "the answer", "the object at `$`"),
    Key("query", MapOf(_MEMBER, "parameter name or pattern with `*`"), "query parameters that carry a value; it is swapped for its same-value token. In a create or update those that hold nobody's data, each `pass: true`"),
    Key("path", MapOf(Either(_FIELD, _CARRIER), "placeholder"), "placeholders of the path that stand for a value of a field; it is swapped for its same-value token"),
)  # fmt: skip
_OBJECTS = Block(
    "object",
    "One of several objects, or kinds of objects, in a message and its answer. Exactly one of create, read, update, delete.",
    (*_VERBS, *_PLACED),
)  # fmt: skip

OPERATION_BLOCK = Block(
    "operation",
    "One request of the application. Exactly one of create, read, update, delete where it "
    "carries personal data, else pass.",
    (
        Key("match", Text("method and path", "METHOD and path, such as POST /contacts", r"(?s).+", parse_match), "methods and path template: `PUT|PATCH /contacts/{id}`; `{rest*}` takes slashes; a query says parameters that tell requests of one path apart: `GET /index.php?r=contact/view`", required=True),
        *_VERBS,
        Key("pass", FLAG, "true: somebody looked, and neither the request nor its answer holds anybody's data; it passes unchanged and unreported, also under `unmatched: deny`"),
        Key("unmatched", FLAG, "true: what no other operation of this path takes by its `when` is as a request that no rule names: reported, denied or passed as the endpoint's `unmatched` says, instead of refused"),
        Key("when", MapOf(Anything(), "place"), "what a request says for this operation to be meant, where several share a path: `$.member`, `header NAME`, "
            "`query NAME`, `form NAME` or `type`, each with a value or a list; all of them hold", "whatever no other operation of the path takes"),
        Key("graphql", MapOf(GRAPHQL_FIELD, "field of the schema", r"(Query\.|Mutation\.|Subscription\.)?[A-Za-z_]\w*", "name, or that behind Query., Mutation. or Subscription."), "what fields of a GraphQL schema do, in place of one of create, read, update, delete"),
        Key("persisted", MapOf(Text("document", "a GraphQL document"), "hash", r"[0-9A-Fa-f]{64}", "a SHA-256 in hexadecimal digits"), "documents of GraphQL that callers name by their hash alone", "none: a hash alone is refused"),
        Key("envelope", _ENVELOPE, "the request carries others, in place of one of create, read, update, delete"),
        Key("objects", ListOf(_OBJECTS), "several objects in one message, each with an entity and a place of its own, in place of one of create, read, update, delete"),
        *_PLACED,
    ),
    elsewhere={
        "views": "stands at the top of the file, for all operations",
        "mask": "stands at a field of an entity",
        "caller": "stands at the endpoint",
    },
)  # fmt: skip
