"""What the operations of the point-of-presence interface mean."""

from typing import Any, Final

from proxy.api.openapi import files
from proxy.api.openapi.models import fault
from proxy.api.openapi.parts import Description, Example, Json, array, closed, header, ref, string
from proxy.api.openapi.recordparts import COMPONENTS, shown

TAG: Final = "Point of presence"

_ENVIRONMENT: Final = header(
    "x-env-id",
    "The id of the environment that the access token is for.",
    required=True,
    minLength=1,
)
_SEALING: Final = header(
    "X-Encrypted-Storage",
    "`true`: the values are as they are, and the server seals and hashes them. Otherwise the client has done so, and gets back what it sent.",
    enum=["true", "false"],
)
_HEADERS: Final = {"x-env-id": "default"}
_HERE: Final = {**_HEADERS, "X-Encrypted-Storage": "true"}
_SE: Final = {"country": "se"}
_R1: Final = {"country": "se", "record_key": "r-1"}
_ELSEWHERE: Final = ("country", "key", "range_key")
_ENCRYPTED: Final[Json] = {
    "type": ["boolean", "null"],
    "description": "Whether the client has sealed the record; `version` is then that of its key.",
}
_HASH: Final = "5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5"


def _without(properties: dict[str, Json]) -> dict[str, Json]:
    return {name: schema for name, schema in properties.items() if name not in _ELSEWHERE}


_SENT: Final = closed(
    {**_without(COMPONENTS["RecordToKeep"]["properties"]), "is_encrypted": _ENCRYPTED},
    "record_key",
    description="A record as it is sent.",
)
_KEPT: Final = COMPONENTS["KeptRecord"]["properties"]
_ANSWERED: Final[Json] = {
    "type": "object",
    "description": "A record as every answer has it: all members, `null` where there is no value.",
    "required": [*_without(_KEPT), "is_encrypted"],
    "properties": {
        **_without(_KEPT),
        "body": string("Empty where the record has none."),
        "is_encrypted": _ENCRYPTED,
    },
}
_FILTER: Final[Json] = {
    "type": "object",
    "description": "As for `/api/records/find`, and `$not` also of numbers and of instants.",
    "properties": {"$or": array({"type": "object"}, minItems=2)},
}
_NOTHING: Final = closed({})


def _record(**values: Any) -> dict[str, Any]:
    """A record of an example as this interface answers with it."""
    found = {name: value for name, value in shown(**values).items() if name not in _ELSEWHERE}
    return {**found, "body": found["body"] or "", "is_encrypted": values.get("is_encrypted")}


def _of_files(name: str, summary: str) -> Description:
    """The operation on attachments of the other families, told of a record of this one."""
    described = files.DESCRIBED[name]
    examples = tuple(
        example._replace(
            path={
                **_R1,
                **{name: value for name, value in example.path.items() if name == "file_id"},
            },
            headers={
                **_HEADERS,
                **{name: value for name, value in example.headers.items() if name != "x-filename"},
            },
            answer=None,
        )
        for example in described.examples
        if example.summary not in ("A name that is taken", "Without a name")
    )
    parameters = tuple(one for one in described.parameters if one["name"] != "x-filename")
    return described._replace(
        tag=TAG, summary=summary, examples=examples, parameters=(*parameters, _ENVIRONMENT)
    )


_R1_SHOWN: Final = _record(
    record_key="r-1",
    body='{"name":"Astrid"}',
    profile_key="p-1",
    key1="astrid@example.com",
    range_key1=41,
)

DESCRIBED: Final[dict[str, Description]] = {
    "pop_write": Description(
        TAG,
        "Write a record",
        "New, or in place of the one that has its key: members that are not sent are cleared. See *Clients for hosted services*.",
        _SENT,
        _ANSWERED,
        (
            Example("Sealed by the server", 201, _SE, headers=_HERE, body={"record_key": "r-9", "key1": "Lund"}, answer=_record(
                record_key="r-9", key1="Lund",
            )),
            Example(
                "Sealed by the client", 201, _SE, headers=_HEADERS,
                body={"record_key": _HASH, "body": "2:b3Bhc3NlZA==", "version": 4, "is_encrypted": True},
                answer=_record(record_key=_HASH, body="2:b3Bhc3NlZA==", version=4, is_encrypted=True),
            ),
            Example("Another environment", 401, _SE, headers={"x-env-id": "elsewhere"}, body={"record_key": "r-9"}, answer=fault(
                401, "Unauthorized", "unauthorized", "The access token is for another environment than x-env-id names.",
            )),
            Example("Another country", 409, {"country": "de"}, headers=_HEADERS, body={"record_key": "r-9"}),
            Example("No environment", 400, _SE, body={"record_key": "r-9"}),
        ),
        "The record as it was stored.",
        parameters=(_ENVIRONMENT, _SEALING),
    ),
    "pop_batch_write": Description(
        TAG,
        "Write a batch of records",
        "Each as if it came alone; all or none.",
        closed({"records": array(_SENT, minItems=1, description="At most `limits.batch` (100).")}, "records"),
        closed({"records": array(_ANSWERED)}, "records"),
        (
            Example("One record", 201, _SE, headers=_HERE, body={"records": [{"record_key": "r-9"}]}, answer={
                "records": [_record(record_key="r-9")],
            }),
            Example("Without a key", 400, _SE, headers=_HERE, body={"records": [{"key1": "x"}]}, answer=fault(
                400, "Bad Request", "invalid_record", "Records of the batch do not fit their schema; nothing of it was stored.",
                ("/records/0/record_key", "Is missing: the field is required."),
            )),
        ),
        "The records as they were stored, in the order in which they were sent.",
        parameters=(_ENVIRONMENT, _SEALING),
    ),
    "pop_find": Description(
        TAG,
        "Find records",
        "The body as for `/api/records/find`, without the country.",
        closed({"filter": _FILTER, "options": ref("Options")}),
        closed({"data": array(_ANSWERED), "meta": ref("Meta")}, "data", "meta"),
        (
            Example("By a range", 200, _SE, headers=_HEADERS, body={
                "filter": {"range_key1": {"$gt": 30}, "profile_key": {"$not": None}}, "options": {"limit": 10, "offset": 0},
            }, answer={"data": [_R1_SHOWN], "meta": {"count": 1, "limit": 10, "offset": 0, "total": 1}}),
            Example("No such member", 400, _SE, headers=_HEADERS, body={"filter": {"colour": "red"}}),
        ),
        "A page of records.",
        parameters=(_ENVIRONMENT,),
    ),
    "pop_batch_delete": Description(
        TAG,
        "Delete records by their keys",
        "Those that exist, with their attachments; 404 when none does.",
        closed({"filter": closed({"record_key": array({"type": "string"}, minItems=1)}, "record_key")}, "filter"),
        _NOTHING,
        (
            Example("Two", 200, _SE, headers=_HEADERS, body={"filter": {"record_key": ["r-1", "r-2"]}}, answer={}),
            Example("None of them", 404, _SE, headers=_HEADERS, body={"filter": {"record_key": ["none"]}}),
        ),
        parameters=(_ENVIRONMENT,),
    ),
    "pop_read": Description(
        TAG,
        "Read a record",
        "The one with that key.",
        answer=_ANSWERED,
        examples=(
            Example("It is there", 200, _R1, headers=_HEADERS, answer=_R1_SHOWN),
            Example("It is not", 404, {"country": "se", "record_key": "none"}, headers=_HEADERS),
        ),
        answered="The record.",
        parameters=(_ENVIRONMENT,),
    ),
    "pop_delete": Description(
        TAG,
        "Delete a record",
        "With its attachments.",
        answer=_NOTHING,
        examples=(Example("One", 200, _R1, headers=_HEADERS, answer={}),),
        parameters=(_ENVIRONMENT,),
    ),
    "pop_upload": _of_files("upload_attachment", "Add an attachment"),
    "pop_replace_file": _of_files("replace_attachment", "Add or replace an attachment"),
    "pop_download": _of_files("download_attachment", "Download an attachment"),
    "pop_delete_file": _of_files("delete_attachment", "Delete an attachment"),
    "pop_show_file": Description(
        TAG,
        "What is known of an attachment",
        "Its name, type, size and hash.",
        answer=ref("Attachment"),
        examples=(Example("Of a text", 200, {**_R1, "file_id": "{file_id}"}, headers=_HEADERS),),
        answered="The attachment.",
        parameters=(_ENVIRONMENT,),
    ),
    "pop_change_file": _of_files("change_attachment", "Rename an attachment or change its type"),
    "pop_health": Description(
        TAG,
        "Whether records can be read",
        "503 where the store cannot be used at the moment.",
        answer=closed({"status": {"const": "ok"}}, "status"),
        examples=(Example("They can", 200, headers=_HEADERS, answer={"status": "ok"}),),
        answered="They can.",
        parameters=(_ENVIRONMENT,),
    ),
}  # fmt: skip
