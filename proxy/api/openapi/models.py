"""What the operations on records mean."""

from typing import Any, Final

from proxy.api.openapi.families import GROUP, NEXT, VERSIONS, aggregation, some_keys
from proxy.api.openapi.parts import Description, Example, Json, array, closed, ref, string

TAG: Final = "Records"
SEARCH: Final = "Search"

_AT: Final = "2026-05-04T10:15:00.000Z"
_TIMES: Final[dict[str, Any]] = {"created_at": _AT, "updated_at": _AT}
_NEW: Final[dict[str, Any]] = {
    "id": "c-9",
    "email": "dag@example.com",
    "city": "Lund",
    "age": 52,
    "balance": 10.25,
}
_C1: Final[dict[str, Any]] = {
    "id": "c-1", "email": "astrid@example.com", "name": "Astrid Lind", "city": "Uppsala", "age": 41, "balance": 120.5,
}  # fmt: skip
_C2: Final[dict[str, Any]] = {
    "id": "c-2", "email": "bjorn@example.com", "name": "Björn Ek", "city": "Uppsala", "age": 29, "manager": "c-1",
}  # fmt: skip
_CONTACT: Final = {"schema": "contact"}
_RECORD: Final = {"schema": "contact", "record_key": "c-1"}
_COUNTRY: Final = string(
    "The country of this instance, where somebody wants it checked: another one is 409."
)


def fault(
    status: int, title: str, code: str, detail: str, *errors: tuple[str, str]
) -> dict[str, Any]:
    """The problem document of an example."""
    listed = [{"title": code, "source": source, "detail": text} for source, text in errors]
    return {
        "type": "about:blank",
        "title": title,
        "status": status,
        "code": code,
        "detail": detail,
        "errors": listed,
    }


def _wrapped(record: Json, *more: tuple[str, Json]) -> Json:
    """A batch: a bare array of records, or an object around it."""
    records = array(record, minItems=1, description="At most `limits.batch` (100).")
    return {
        "anyOf": [
            records,
            closed({"records": records, "country": _COUNTRY, **dict(more)}, "records"),
        ]
    }


_ALL_OR_NONE: Final = "All or none: every fault of the batch is told at once, its pointer begins with the number of the record."

#: A record that was just made can be asked for, changed and deleted.
_LINKS: Final[dict[str, Json]] = {
    name: {
        "operationId": name,
        "parameters": {
            "schema": "$request.path.schema",
            "record_key": "$response.body#/record_key",
        },
        "description": text,
    }
    for name, text in (("record_history", "Its versions."), ("delete_record", "End it."))
}

DESCRIBED: Final[dict[str, Description]] = {
    "create_record": Description(
        TAG,
        "Create a record",
        "A key that is used is refused with 409 `record_exists`, unless the operator lets creates update (`models.on_existing`). "
        "What is acknowledged is on disk.",
        ref("Record"),
        ref("Written"),
        (
            Example("A contact", 201, _CONTACT, body=_NEW, answer={**_NEW, **_TIMES}),
            Example("A key that is used", 409, _CONTACT, body={"id": "c-1"}, answer=fault(
                409, "Conflict", "record_exists",
                "A primary key that is used cannot be given to another record; nothing was stored.",
                ("/id", "There is a record with this key."),
            )),
            Example("Every fault at once", 400, _CONTACT, body={"id": "c-9", "age": "old", "born": "1980"}, answer=fault(
                400, "Bad Request", "invalid_record", "The record does not fit its schema.",
                ("/age", "Has to be an integer."),
                ("/born", "Has to be a date, YYYY-MM-DD."),
            )),
        ),
        "The record as it was stored.",
    ),
    "create_record_v2": Description(
        TAG,
        "Create records, short answer",
        "One record, or an array of them as a batch. As durable as the other creates; the answer has no more than keys and times.",
        {"anyOf": [ref("Record"), array(ref("Record"), minItems=1)]},
        {"anyOf": [ref("Receipt"), array(ref("Receipt"))]},
        (
            Example("One", 201, _CONTACT, body=_NEW, answer={"record_key": "c-9", "created_at": _AT}),
            Example("Several", 201, _CONTACT, body=[_NEW], answer=[{"record_key": "c-9", "created_at": _AT}]),
        ),
        "What was made.",
        links=_LINKS,
    ),
    "create_records": Description(
        TAG,
        "Create a batch of records",
        _ALL_OR_NONE,
        _wrapped(ref("Record")),
        array(ref("Written")),
        (
            Example("A bare array", 201, _CONTACT, body=[_NEW], answer=[{**_NEW, **_TIMES}]),
            Example("With the country", 201, _CONTACT, body={"country": "se", "records": [_NEW]}, answer=[{**_NEW, **_TIMES}]),
            Example("Another country", 409, _CONTACT, body={"country": "de", "records": [_NEW]}, answer=fault(
                409, "Conflict", "wrong_country", "This instance keeps the records of se alone.",
                ("/country", "Is another country than the instance's."),
            )),
        ),
        "The records as they were stored, in the order in which they were sent.",
    ),
    "update_records": Description(
        TAG,
        "Update a batch of records",
        "Records whose keys exist are updated; those whose keys do not are left out of the answer. Members that are not sent stay as "
        "they are. With `search_key` every record whose field of that name has the sent value is updated. " + _ALL_OR_NONE,
        _wrapped(
            ref("Changes"),
            ("search_key", string("The field by which records are matched, in place of the primary key.")),
            ("return_keys", array({"type": "string"}, minItems=1, description="The only fields to answer with.")),
        ),
        array({"type": "object"}),
        (
            Example("By key", 201, _CONTACT, body=[{"id": "c-1", "age": 42}], answer=[{**_C1, "age": 42, **_TIMES}]),
            Example(
                "By another field, some fields back", 201, _CONTACT,
                body={"search_key": "city", "return_keys": ["id", "city"], "records": [{"city": "Lund", "active": True}]},
                answer=[{"id": "c-3", "city": "Lund"}],
            ),
        ),
        "The records as they are now.",
    ),
    "read_record": Description(
        TAG,
        "Read a record",
        "By its primary key, as a search shows it. The `ETag` is for `If-Match` of a change, and for `If-None-Match` of the next read. "
        "A record whose key is `export` is found by a search.",
        answer=ref("Found"),
        examples=(
            Example("One", 200, {**_RECORD, "record_key": "c-2"}, answer={**_C2, **_TIMES, "version": 1, "attachments": []}),
            Example("Nobody", 404, {"schema": "contact", "record_key": "x"}, answer=fault(
                404, "Not Found", "not_found", "There is no record with this key.",
            )),
        ),
        answered="The record.",
    ),
    "replace_record": Description(
        TAG,
        "Replace a record",
        "What is sent takes the place of the record; fields that are not sent are cleared, but for those that the client is not shown. "
        "`created_at`, `updated_at`, `version`, `attachments` and redacted or masked texts may be sent back as they were shown.",
        ref("Record"),
        ref("Written"),
        (
            Example("Fewer fields", 200, _RECORD, body={"id": "c-1", "city": "Lund", "age": 42},
                    answer={"id": "c-1", "city": "Lund", "age": 42, **_TIMES}),
            Example("Another key", 400, _RECORD, body={"id": "c-2"}, answer=fault(
                400, "Bad Request", "invalid_record", "The record is not the one in the address.",
                ("/id", "Is another key than that in the address: the key of a record cannot be changed."),
            )),
        ),
        "The record as it is now.",
    ),
    "change_record": Description(
        TAG,
        "Change a record",
        "Members that are sent take the place of what is stored (`null` clears one), all others stay (RFC 7396, at the first level).",
        ref("Changes"),
        ref("Written"),
        (Example("One field", 200, _RECORD, body={"age": 42}, answer={**_C1, "age": 42, **_TIMES}),),
        "The record as it is now.",
    ),
    "clone_record": Description(
        TAG,
        "Duplicate a record",
        "The filter has to match one record; the copy needs a key of its own in `update_with`. History and attachments stay behind.",
        closed({"filter": ref("Filter"), "update_with": {"type": "object"}}, "filter", "update_with"),
        array(ref("Written")),
        (
            Example(
                "A copy", 201, _CONTACT, body={"filter": {"id": "c-1"}, "update_with": {"id": "c-9", "age": 1}},
                answer=[{**_C1, "id": "c-9", "age": 1, **_TIMES}],
            ),
            Example("Nothing to copy", 403, _CONTACT, body={"filter": {"id": "x"}, "update_with": {"id": "y"}}, answer=fault(
                403, "Forbidden", "no_match", "No record of 'contact' matches the filter.",
            )),
        ),
        "The copy, alone in its array.",
    ),
    "delete_record": Description(
        TAG,
        "Delete a record",
        "With its attachments and, unless the operator keeps it, its history. `cascadeBy` names a field: records that hold a deleted key "
        "there are deleted as well, and so on, in one transaction.",
        examples=(
            Example("One", 204, _RECORD),
            Example("With those that hang on it", 204, _RECORD, {"cascadeBy": "manager"}),
            Example("Nobody", 404, {"schema": "contact", "record_key": "x"}, answer=fault(
                404, "Not Found", "not_found", "There is no such record of 'contact'.",
            )),
        ),
        answered="It is gone.",
    ),
    "delete_records": Description(
        TAG,
        "Delete a batch of records",
        "Those that exist are deleted, in one transaction; 404 when none of them does.",
        some_keys("`record_key`, or the primary key by its own name, with an array of keys; nothing else."),
        examples=(
            Example("Two", 204, _CONTACT, body={"filter": {"record_key": ["c-1", "c-2"]}}),
            Example("None of them exists", 404, _CONTACT, body={"filter": {"id": ["x"]}}, answer=fault(
                404, "Not Found", "no_match", "None of these records of 'contact' exists.",
            )),
        ),
        answered="They are gone.",
    ),
    "migrate_record": Description(
        TAG,
        "Move everything of one record to another",
        "Fields, attachments and history of the source go to the destination, whose key stays; the source ends.",
        examples=(Example("Two entries of one person", 204, {"schema": "contact", "source": "c-2", "destination": "c-1"}),),
        answered="The destination has it all.",
    ),
    "record_history": Description(
        TAG,
        "The versions of a record",
        "Newest first, the present one included. Kept for `history.keep` (30 days).",
        answer=VERSIONS,
        examples=(
            Example("A record that never changed", 200, _RECORD, answer={
                "data": [{"version": 1, "action": "create", "at": _AT, "by": "4f0c1a2b", "record": _C1}],
                "meta": {"count": 1, "limit": 100, "offset": 0, "total": 1},
            }),
        ),
        answered="The versions.",
    ),
    "find_records": Description(
        SEARCH,
        "Find records",
        "See *Filters*. Nothing found is 200 with an empty `data`.",
        ref("Search"),
        ref("Page"),
        (
            Example(
                "By city, the youngest first", 200, _CONTACT,
                body={"filter": {"city": "Uppsala", "age": {"$gte": 18}}, "options": {"limit": 1, "sort": [{"age": "asc"}]}},
                answer={
                    "data": [{**_C2, **_TIMES, "version": 1, "attachments": []}],
                    "meta": {"count": 1, "limit": 1, "offset": 0, "total": 2, "next": "AWYzMjY0ZmQ4YjE"},
                },
            ),
            Example("A part of an address", 200, _CONTACT, body={"filter": {"email": {"$like": "BJORN"}}}, answer={
                "data": [{**_C2, **_TIMES, "version": 1, "attachments": []}],
                "meta": {"count": 1, "limit": 100, "offset": 0, "total": 1},
            }),
            Example("Inside a JSON field", 200, _CONTACT, body={"filter": {"profile": {"$.tags": "gone"}}}, answer={
                "data": [], "meta": {"count": 0, "limit": 100, "offset": 0, "total": 0},
            }),
        ),
        "A page of records.",
    ),
    "aggregate_records": Description(
        SEARCH,
        "Add records up",
        "`count`, `sum`, `min`, `max`, `avg` over the records that match, as a whole or by group. Sums are exact. Further pages of groups "
        "are asked for with the cursor of `meta.next` and nothing else; it is bound to the client that got it.",
        aggregation(string("An Integer or Decimal field; not for `count`."), ref("Filter")),
        closed({"data": array(GROUP), "meta": NEXT}, "data", "meta"),
        (
            Example(
                "By city", 200, _CONTACT,
                body={
                    "metrics": {"people": {"func": "count"}, "owed": {"func": "sum", "key": "balance"}},
                    "group_by": {"keys": ["city"], "limit": 10},
                },
                answer={
                    "data": [
                        {"group": {"keys": {"city": "Lund"}}, "metrics": {"people": 1, "owed": 0}},
                        {"group": {"keys": {"city": "Uppsala"}}, "metrics": {"people": 2, "owed": 120.5}},
                    ],
                    "meta": {"next": None},
                },
            ),
        ),
        "Figures by group.",
    ),
    "find_direct": Description(
        SEARCH,
        "Find records, schema in the body",
        "As *Find records*.",
        ref("SearchIn"),
        ref("Page"),
        (
            Example("By key", 200, body={"schema": "contact", "filter": {"record_key": "c-2"}}, answer={
                "data": [{**_C2, **_TIMES, "version": 1, "attachments": []}],
                "meta": {"count": 1, "limit": 100, "offset": 0, "total": 1},
            }),
            Example("An unknown schema", 400, body={"schema": "nobody"}, answer=fault(
                400, "Bad Request", "unknown_schema", "There is no schema of this name.", ("schema", "No schema has this name."),
            )),
        ),
        "A page of records.",
    ),
    "sf_find": Description(
        SEARCH,
        "Find records, schema in the body (other address)",
        "As *Find records*.",
        ref("SearchIn"),
        ref("Page"),
        (
            Example("Nobody", 200, body={"schema": "contact", "filter": {"age": {"$gt": 90}}}, answer={
                "data": [], "meta": {"count": 0, "limit": 100, "offset": 0, "total": 0},
            }),
        ),
        "A page of records.",
    ),
    "sf_find_ids": Description(
        SEARCH,
        "Find the keys of records",
        "As *Find records*, with the primary keys alone.",
        ref("SearchIn"),
        closed({"data": array({"type": ["string", "null"]}), "meta": ref("Meta")}, "data", "meta"),
        (
            Example(
                "Who is in Uppsala", 200,
                body={"schema": "contact", "filter": {"city": "Uppsala"}, "options": {"sort": [{"age": "desc"}]}},
                answer={"data": ["c-1", "c-2"], "meta": {"count": 2, "limit": 100, "offset": 0, "total": 2}},
            ),
        ),
        "A page of keys.",
    ),
}  # fmt: skip
