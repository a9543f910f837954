"""Errors of the vault's own interface: the statuses that its specification gives otherwise than the one table does.

``web.errors.STATUS`` holds for all listeners; ``HERE`` changes it for this one, ``BY_ROUTE`` for single operations.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from proxy.errors import Code, VaultError
from proxy.web.api.operation import Answer
from proxy.web.errors import STATUS
from proxy.web.own import PROBLEM, document, wait_of

#: On this listener, whatever the operation.
HERE: Final[Mapping[Code, int]] = MappingProxyType(
    {
        Code.CANNOT_OPEN: 422,  # "records cannot be processed" (specification, Errors)
    }
)

#: Of the record-based family, whose lists are shorter: 422 and 409 are 400 where they are not listed, and what may succeed in a
#: moment, or is nobody's mistake, is a server error there.
_SHORT: Final[Mapping[Code, int]] = {
    Code.WRONG_COUNTRY: 400,
    Code.BATCH_TOO_LARGE: 400,
    Code.TOO_BROAD: 400,
    Code.UNPROCESSABLE: 400,
    Code.NO_MATCH: 400,
    Code.UNSUPPORTED_MEDIA_TYPE: 400,
    Code.CANNOT_OPEN: 500,
    Code.CONFLICT: 503,
}
_RECORDS: Final[Mapping[tuple[str, Code], int]] = {
    **{
        (operation, code): status
        for operation in ("records_create_many", "records_update_many", "records_find", "records_delete_many")
        for code, status in _SHORT.items()
    },
    ("records_clone", Code.PARTIAL_MATCH_DISABLED): 403,
    ("records_clone", Code.NO_MATCH): 403,
    # An aggregation knows no 400: what does not fit is 422, "validation of input parameters failed".
    ("records_aggregate", Code.INVALID_INPUT): 422,
    ("records_aggregate", Code.INVALID_FILTER): 422,
    ("records_delete", Code.WRONG_COUNTRY): 404,
    ("records_delete", Code.UNPROCESSABLE): 400,
    ("records_delete", Code.CANNOT_OPEN): 500,
    ("records_delete", Code.CONFLICT): 503,
    ("records_download", Code.INVALID_INPUT): 422,
    ("records_download", Code.WRONG_COUNTRY): 404,
    ("records_download", Code.CONFLICT): 422,
    ("records_move_files", Code.UNKNOWN_FILE): 401,
    ("records_move_files", Code.FILE_EXISTS): 422,
    ("records_move_files", Code.INVALID_INPUT): 422,
    ("records_move_files", Code.WRONG_COUNTRY): 404,
    ("records_move_files", Code.UNSUPPORTED_MEDIA_TYPE): 422,
    ("records_move_files", Code.TOO_LARGE): 422,
    ("records_move_files", Code.CONFLICT): 422,
    ("records_delete_file", Code.INVALID_INPUT): 422,
    ("records_delete_file", Code.WRONG_COUNTRY): 404,
    ("records_delete_file", Code.CONFLICT): 422,
}

#: What policies do not allow is 401, and 403 where the specification lists that.
_FORBIDDEN: Final = (
    "clone_record", "upload_attachment", "replace_attachment", "change_attachment", "download_attachment", "move_attachments",
    "delete_attachment", "records_clone", "records_aggregate", "records_upload", "records_replace_file", "records_change_file",
    "records_download", "records_move_files", "records_delete_file",
)  # fmt: skip

#: (operation, code) → status, where the specification's list of an operation says so.
BY_ROUTE: Final[Mapping[tuple[str, Code], int]] = MappingProxyType(
    {
        ("clone_record", Code.PARTIAL_MATCH_DISABLED): 403,
        ("clone_record", Code.NO_MATCH): 403,
        **{(operation, Code.ACCESS_DENIED): 403 for operation in _FORBIDDEN},
        ("delete_record", Code.UNPROCESSABLE): 400,  # more hangs on it by ``cascadeBy`` than a delete takes
        ("delete_record", Code.CANNOT_OPEN): 500,
        **_RECORDS,
        ("show_schema", Code.UNKNOWN_SCHEMA): 404,  # ours: here the schema itself is asked for
        ("remove_schema", Code.UNKNOWN_SCHEMA): 404,
        # A move answers 401 for "an attachment identifier is not accessible", and knows neither 400 nor 409, 413 and 415.
        ("move_attachments", Code.UNKNOWN_FILE): 401,
        ("move_attachments", Code.FILE_EXISTS): 422,
        ("move_attachments", Code.INVALID_INPUT): 422,
        ("move_attachments", Code.UNSUPPORTED_MEDIA_TYPE): 422,
        ("move_attachments", Code.TOO_LARGE): 422,
        ("move_attachments", Code.CONFLICT): 422,
        ("move_attachments", Code.UNKNOWN_SCHEMA): 404,
        ("download_attachment", Code.INVALID_INPUT): 422,
        ("download_attachment", Code.CONFLICT): 422,
        ("download_attachment", Code.UNKNOWN_SCHEMA): 404,
        ("delete_attachment", Code.INVALID_INPUT): 422,
        ("delete_attachment", Code.CONFLICT): 422,
        ("delete_attachment", Code.UNKNOWN_SCHEMA): 404,
    }
)


def status_of(operation: str, code: Code) -> int:
    """The status that an operation answers an error with; ``""`` where no operation was reached."""
    special = BY_ROUTE.get((operation, code))
    return special if special is not None else HERE.get(code, STATUS[code])


def refused(operation: str, error: VaultError) -> Answer:
    """The answer to a request that failed."""
    status = status_of(operation, error.code)
    headers: dict[str, str] = {}
    if (wait := wait_of(error)) is not None:
        headers["Retry-After"] = str(wait)
    if status == 401 or error.challenge is not None:
        headers["WWW-Authenticate"] = error.challenge or "Bearer"  # RFC 9110, section 15.5.2
    return Answer(status, document(status, error), headers, PROBLEM)
