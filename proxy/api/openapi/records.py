"""What the operations of the record-based family mean."""

from typing import Any, Final

from proxy.api.openapi import files
from proxy.api.openapi.families import GROUP, NEXT, VERSIONS, aggregation, some_keys
from proxy.api.openapi.models import fault
from proxy.api.openapi.parts import Description, Example, Json, array, closed, ref, string
from proxy.api.openapi.recordparts import kept, shown
from proxy.model.schema import DECIMAL_KEYS, RANGE_KEYS

TAG: Final = "Record-based family"

_AT: Final = {"country": "se", "record_key": "r-1"}
_COUNTRY: Final = string("The country of this instance.", pattern="^[a-z]{2}$")
_ELSEWHERE: Final = ("country", "Is another country than the instance's.")
_NEW: Final[dict[str, Any]] = {
    "record_key": "r-9", "country": "se", "body": '{"name":"Dag"}', "profile_key": "p-4", "key1": "dag@example.com", "range_key1": 52,
}  # fmt: skip
_R1: Final = shown(
    record_key="r-1",
    body='{"name":"Astrid"}',
    profile_key="p-1",
    key1="astrid@example.com",
    range_key1=41,
)
_R2: Final = shown(
    record_key="r-2",
    body='{"name":"Bo"}',
    profile_key="p-2",
    key1="bo@example.com",
    range_key1=29,
    version=3,
)
_META: Final = {"count": 1, "limit": 100, "offset": 0, "total": 1}
_ALL_OR_NONE: Final = "All or none: every fault of the batch is told at once, its pointer begins with `/records/` and the number of the record."
_PAGE: Final = closed({"data": array(ref("KeptRecord")), "meta": ref("Meta")}, "data", "meta")
_SUMS: Final = (*RANGE_KEYS, "range_key", *DECIMAL_KEYS)


def _wrong_country(status: int, title: str) -> dict[str, Any]:
    return fault(
        status,
        title,
        "wrong_country",
        "This instance keeps the records of se alone.",
        ("/country", _ELSEWHERE[1]),
    )


def _batch(record: Json, **more: Json) -> Json:
    records = array(record, minItems=1, description="At most `limits.batch` (100).")
    return closed({"country": _COUNTRY, "records": records, **more}, "country", "records")


def _of_files(name: str, summary: str) -> Description:
    """The operation on attachments of the other family, told of a record of this one."""
    described = files.DESCRIBED[name]
    examples = [
        example._replace(
            path={
                **_AT,
                **{name: value for name, value in example.path.items() if name == "file_id"},
            },
            answer=None,
        )
        if "destination" not in example.path
        else example._replace(path={"country": "se", "source": "r-1", "destination": "r-2"})
        for example in described.examples
    ]
    return described._replace(tag=TAG, summary=summary, examples=tuple(examples))


DESCRIBED: Final[dict[str, Description]] = {
    "records_create": Description(
        TAG,
        "Create a record, or overwrite it",
        "A record whose key is there already becomes what is sent, whole: fields that are not sent are cleared. It keeps the time of its "
        "creation, its history and its attachments. See *Records without a schema of their own*.",
        ref("RecordToKeep"),
        ref("KeptRecord"),
        (
            Example("A record", 201, body=_NEW, answer=shown(**_NEW)),
            Example("In place of another one", 201, body={"country": "se", "key": "r-1", "range_key": 42}, answer=shown(
                record_key="r-1", range_key1=42, version=2,
            )),
            Example("Another country", 409, body={**_NEW, "country": "de"}, answer=_wrong_country(409, "Conflict")),
            Example("Every fault at once", 400, body={"country": "se", "key": "r-9", "range_key": "old", "key1": 1}, answer=fault(
                400, "Bad Request", "invalid_record", "The record does not fit its schema.",
                ("/range_key", "Has to be an integer."),
                ("/key1", "Has to be a string."),
            )),
        ),
        "The record as it was stored.",
    ),
    "records_create_many": Description(
        TAG,
        "Create or overwrite a batch of records",
        "Each as if it came alone. " + _ALL_OR_NONE,
        _batch(ref("RecordInBatch")),
        array(ref("KeptRecord")),
        (
            Example("One record", 201, body={"country": "se", "records": [_NEW]}, answer=[shown(**_NEW)]),
            Example("Another country", 400, body={"country": "de", "records": [_NEW]}, answer=_wrong_country(400, "Bad Request")),
        ),
        "The records as they were stored, in the order in which they were sent.",
    ),
    "records_update_many": Description(
        TAG,
        "Update a batch of records",
        "Members that are not sent stay as they are. `search_key` is the field by which records are found, `record_key` where nothing is "
        "said; every record that has the sent value is updated, and a value that none has changes nothing. " + _ALL_OR_NONE,
        _batch(ref("RecordChanges"), search_key=string("A field that is kept in the clear or hashed.")),
        array(ref("KeptRecord")),
        (
            Example(
                "By key", 200, body={"country": "se", "search_key": "record_key", "records": [{"record_key": "r-1", "range_key2": 7}]},
                answer=[{**_R1, "range_key2": 7, "version": 2}],
            ),
            Example(
                "By another field", 200, body={"country": "se", "search_key": "profile_key", "records": [{"profile_key": "p-2", "key2": "x"}]},
                answer=[{**_R2, "key2": "x"}],
            ),
        ),
        "The records as they are now.",
    ),
    "records_clone": Description(
        TAG,
        "Duplicate a record",
        "The filter has to match one record; the copy needs a key of its own in `update_with`. History and attachments stay behind.",
        closed({"filter": ref("RecordFilter"), "update_with": ref("RecordChanges"), "country": _COUNTRY}, "filter", "update_with"),
        array(ref("KeptRecord")),
        (
            Example("A copy", 201, body={"filter": {"key": "r-1"}, "update_with": {"key": "r-9"}}, answer=[
                {**_R1, "record_key": "r-9", "key": "r-9"},
            ]),
            Example("Nothing to copy", 403, body={"filter": {"key": "x"}, "update_with": {"key": "y"}}, answer=fault(
                403, "Forbidden", "no_match", "No record of 'records' matches the filter.",
            )),
        ),
        "The copy, alone in its array.",
    ),
    "records_find": Description(
        TAG,
        "Find records",
        "See *Filters*. Nothing found is 200 with an empty `data`.",
        closed({"country": _COUNTRY, "filter": ref("RecordFilter"), "options": ref("Options")}, "country"),
        _PAGE,
        (
            Example(
                "By range", 200,
                body={"country": "se", "filter": {"range_key1": {"$gte": 30}}, "options": {"sort": [{"range_key1": "desc"}]}},
                answer={"data": [_R1], "meta": _META},
            ),
            Example("By a hashed key", 200, body={"country": "se", "filter": {"key1": ["bo@example.com", "x"]}}, answer={
                "data": [_R2], "meta": _META,
            }),
            Example("Partial match that is off", 401, body={"country": "se", "filter": {"search_keys": "astrid"}}, answer=fault(
                401, "Unauthorized", "partial_match_disabled",
                "Partial match is off for what was searched; its schema has to turn it on (for records: records.partial_match).",
                ("/filter/search_keys", "No string field of this schema has partial match on."),
            )),
        ),
        "A page of records.",
    ),
    "records_aggregate": Description(
        TAG,
        "Add records up",
        "`count`, and `sum`, `min`, `max`, `avg` of a `range_keyN` or a `decimal_keyN`, over the records that match, as a whole or by group. "
        "The name of a group is the values of its keys with `|` between them (`null`: no value; `\\` stands before a `|`, a `\\` and the text "
        "`null` that are values); without `group_by` it is `all`. Further pages are asked for with the cursor of `meta.next` and nothing else.",
        aggregation({"enum": list(_SUMS), "description": "Not for `count`."}, ref("RecordFilter"), country=_COUNTRY),
        closed({
            "data": {"type": "object", "description": "Groups by their names.", "additionalProperties": GROUP},
            "meta": NEXT,
            "errors": array({"type": "string"}, description="Groups of which no record opens, so that their values are not known."),
        }, "data", "meta", "errors"),
        (
            Example(
                "By key", 200,
                body={"metrics": {"n": {"func": "count"}, "sum": {"func": "sum", "key": "range_key1"}}, "group_by": {"keys": ["key1"]}},
                answer={
                    "data": {
                        "astrid@example.com": {"group": {"keys": {"key1": "astrid@example.com"}}, "metrics": {"n": 1, "sum": 41}},
                        "bo@example.com": {"group": {"keys": {"key1": "bo@example.com"}}, "metrics": {"n": 1, "sum": 29}},
                    },
                    "meta": {"next": None},
                    "errors": [],
                },
            ),
            Example("Texts have no sum", 422, body={"metrics": {"sum": {"func": "sum", "key": "key1"}}}, answer=fault(
                422, "Unprocessable Entity", "invalid_input", "The request cannot be read.",
                ("/metrics/sum/key", "Has to be an integer or decimal field for sum."),
            )),
        ),
        "Figures by group.",
    ),
    "records_delete_many": Description(
        TAG,
        "Delete a batch of records",
        "Those that exist are deleted, in one transaction; 400 `no_match` when none of them does. Records are deleted by their keys alone.",
        some_keys("`record_key`, or `key`, with an array of keys; nothing else.", country=_COUNTRY),
        examples=(
            Example("Two", 204, body={"filter": {"record_key": ["r-1", "r-2"]}}),
            Example("None of them exists", 400, body={"filter": {"record_key": ["x"]}}, answer=fault(
                400, "Bad Request", "no_match", "None of these records of 'records' exists.",
            )),
        ),
        answered="They are gone.",
    ),
    "records_delete": Description(
        TAG,
        "Delete a record",
        "With its attachments and, unless the operator keeps it, its history. `cascadeBy` names a field, such as `parent_key`: records that "
        "hold a deleted key there are deleted as well, and so on, in one transaction.",
        examples=(
            Example("One", 204, _AT),
            Example("With its children", 204, _AT, {"cascadeBy": "parent_key"}),
            Example("Nobody", 404, {"country": "se", "record_key": "x"}, answer=fault(
                404, "Not Found", "not_found", "There is no such record of 'records'.",
            )),
        ),
        answered="It is gone.",
    ),
    "records_read": Description(
        TAG,
        "Read a record",
        "By its key, as a search shows it, with the `ETag` for `If-Match` of a change.",
        answer=ref("KeptRecord"),
        examples=(Example("One", 200, _AT, answer=_R1),),
        answered="The record.",
    ),
    "records_history": Description(
        TAG,
        "The versions of a record",
        "Newest first, the present one included. Kept for `history.keep` (30 days).",
        answer=VERSIONS,
        examples=(
            Example("A record that never changed", 200, _AT, answer={
                "data": [{"version": 1, "action": "create", "at": _R1["created_at"], "by": "4f0c1a2b", "record": kept(_R1)}],
                "meta": _META,
            }),
        ),
        answered="The versions.",
    ),
    "records_upload": _of_files("upload_attachment", "Upload an attachment of a record"),
    "records_replace_file": _of_files("replace_attachment", "Replace an attachment of a record"),
    "records_change_file": _of_files("change_attachment", "Rename an attachment of a record or change its type"),
    "records_download": _of_files("download_attachment", "Download an attachment of a record"),
    "records_move_files": _of_files("move_attachments", "Move attachments of a record to another one"),
    "records_delete_file": _of_files("delete_attachment", "Delete an attachment of a record"),
}  # fmt: skip
