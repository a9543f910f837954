"""What the operations on attachments mean."""

from typing import Any, Final

from proxy.api.openapi.parts import Description, Example, Json, array, closed, header, ref, string
from proxy.api.openapi.world import FILE

FILES: Final = "Attachments"

_NAME, _CONTENT = FILE
_MULTIPART: Final = "multipart/form-data"
_AT: Final = {"schema": "contact", "record_key": "c-1"}
_THIS: Final = {**_AT, "file_id": "{file_id}"}
_TIME: Final = "2026-05-04T10:15:00.000Z"
_BODY: Final = b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\nContent-Type: text/plain\r\n\r\n%b\r\n--b--\r\n'
_FORM: Final = {"Content-Type": f"{_MULTIPART}; boundary=b"}
_SHOWN: Final[dict[str, Any]] = {
    "file_id": "0f8b2b1e-8f1c-4e0e-9c57-3a5a4f0d7c11",
    "filename": _NAME,
    "hash": "840d92e482f0cb2fa2f26fa73275e64326fbe0f335f8d3b05dfbeaf21322a4cd",
    "mime_type": "text/plain",
    "size": len(_CONTENT),
    "created_at": _TIME,
    "updated_at": _TIME,
    "download_link": "/api/models/contact/c-1/files/0f8b2b1e-8f1c-4e0e-9c57-3a5a4f0d7c11",
}

_UPLOAD: Final[Json] = {
    "type": "object",
    "required": ["file"],
    "properties": {
        "file": {"description": "The content.", "contentMediaType": "application/octet-stream"}
    },
}
_FILENAME: Final = header(
    "x-filename",
    "The file name: 1 to 255 characters, without control and format characters and slashes; beyond ASCII percent-encoded UTF-8. "
    "Absent: the name of the part.",
    minLength=1,
)
_HOW: Final = (
    "The body has one part, `file`; its own `Content-Type` becomes the type of the attachment. At most `limits.upload` bytes; "
    "nothing of a larger file, or of one that does not arrive whole, stays."
)

DESCRIBED: Final[dict[str, Description]] = {
    "upload_attachment": Description(
        FILES,
        "Upload an attachment",
        f"A new file for a record that exists. {_HOW} A record has one file of a name: another one is 409 `file_exists`.",
        _UPLOAD,
        ref("Attachment"),
        (
            Example(
                "A text",
                201,
                _AT,
                headers={**_FORM, "x-filename": "visa.txt"},
                body=_BODY % b"A page of a visa.\n",
                answer={
                    **_SHOWN,
                    "filename": "visa.txt",
                    "hash": "733bffb8388cd1bdd7c509686ee456f86052b91ef73e4d2a4e4c8d04067b621a",
                    "size": 18,
                },
            ),
            Example(
                "A name that is taken",
                409,
                _AT,
                headers={**_FORM, "x-filename": _NAME},
                body=_BODY % b"Another page.\n",
            ),
            Example(
                "Without a name",
                400,
                _AT,
                headers=_FORM,
                body=_BODY.replace(b'; filename="x"', b"") % b"A page.\n",
            ),
        ),
        "The attachment.",
        request_type=_MULTIPART,
        parameters=(_FILENAME,),
    ),
    "replace_attachment": Description(
        FILES,
        "Replace an attachment",
        f"The file takes the place of the one of its name, whose identifier it keeps; where there is none, it is new. {_HOW}",
        _UPLOAD,
        ref("Attachment"),
        (
            Example(
                "The same content again",
                201,
                _AT,
                headers={**_FORM, "x-filename": _NAME},
                body=_BODY % _CONTENT,
                answer=_SHOWN,
            ),
        ),
        "The attachment.",
        request_type=_MULTIPART,
        parameters=(_FILENAME,),
    ),
    "change_attachment": Description(
        FILES,
        "Rename an attachment or change its type",
        "The content stays. A name that another file of the record has is 409 `file_exists`. Who may not read the record is told of what it "
        "sent alone.",
        closed(
            {
                "filename": string(
                    "1 to 255 characters, without control characters and slashes.",
                    minLength=1,
                    maxLength=255,
                ),
                "mime_type": string("As in `text/plain`.", minLength=3, maxLength=255),
            },
            minProperties=1,
        ),
        ref("ChangedAttachment"),
        (
            Example(
                "Another name",
                200,
                _THIS,
                body={"filename": "passport-1.txt"},
                answer={**_SHOWN, "filename": "passport-1.txt"},
            ),
        ),
        "The attachment as it is now.",
    ),
    "download_attachment": Description(
        FILES,
        "Download an attachment",
        "Always as `application/octet-stream` with `Content-Disposition: attachment`. Every byte is authenticated before it is sent; "
        "when a later part of the file turns out to be damaged, the connection ends before `Content-Length` is reached. `ETag` is the "
        "hash of the content. One range of bytes may be asked for (RFC 9110, section 14); several at once are answered with the whole.",
        answer={"contentMediaType": "application/octet-stream"},
        examples=(
            Example("The whole", 200, _THIS),
            Example("Its first ten bytes", 206, _THIS, headers={"Range": "bytes=0-9"}),
            Example("Bytes that it does not have", 416, _THIS, headers={"Range": "bytes=1000-"}),
        ),
        answered="The content.",
        answer_type="application/octet-stream",
        parameters=(
            header("Range", "One range of bytes, as in `bytes=0-1023`."),
            header(
                "If-Range",
                "The range counts only if this is the `ETag`; else the whole is answered.",
            ),
        ),
    ),
    "move_attachments": Description(
        FILES,
        "Move attachments to another record",
        "All of them or none; they keep their identifiers. An identifier that is not of the source is 401 `unknown_file`, a name that "
        "the destination has is 422 `file_exists`, and so is (`invalid_input`) whatever else is wrong with the request.",
        closed({"attachment_ids": array(string(), minItems=1, uniqueItems=True)}, "attachment_ids"),
        examples=(
            Example(
                "One",
                204,
                {"schema": "contact", "source": "c-1", "destination": "c-2"},
                body={"attachment_ids": ["{file_id}"]},
            ),
            Example(
                "One that the source does not have",
                401,
                {"schema": "contact", "source": "c-1", "destination": "c-2"},
                body={"attachment_ids": ["unknown"]},
            ),
        ),
        answered="They are the destination's.",
    ),
    "delete_attachment": Description(
        FILES,
        "Delete an attachment",
        "Its content is removed within seconds.",
        examples=(
            Example("One", 204, _THIS),
            Example("One that is not there", 404, {**_AT, "file_id": "unknown"}),
        ),
        answered="It is gone.",
    ),
}
