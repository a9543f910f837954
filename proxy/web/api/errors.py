"""Errors of the vault's own interface: the statuses that its specification gives otherwise than the one table does.

``web.errors.STATUS`` holds for all listeners; ``HERE`` changes it for this one, ``BY_ROUTE`` for single operations.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from proxy.errors import Code, VaultError
from proxy.web.api.operation import Answer
from proxy.web.errors import STATUS
from proxy.web.own import document, wait_of

#: On this listener, whatever the operation.
HERE: Final[Mapping[Code, int]] = MappingProxyType(
    {
        Code.CANNOT_OPEN: 422,  # "records cannot be processed" (specification, Errors)
    }
)

#: (operation, code) → status, where the specification's list of an operation says so.
BY_ROUTE: Final[Mapping[tuple[str, Code], int]] = MappingProxyType(
    {
        ("clone_record", Code.PARTIAL_MATCH_DISABLED): 403,
        ("clone_record", Code.NO_MATCH): 403,
        # What policies do not allow is 401, and 403 where the specification has that for "insufficient permissions".
        ("clone_record", Code.ACCESS_DENIED): 403,
        ("upload_attachment", Code.ACCESS_DENIED): 403,
        ("replace_attachment", Code.ACCESS_DENIED): 403,
        ("change_attachment", Code.ACCESS_DENIED): 403,
        ("download_attachment", Code.ACCESS_DENIED): 403,
        ("move_attachments", Code.ACCESS_DENIED): 403,
        ("delete_attachment", Code.ACCESS_DENIED): 403,
        ("delete_record", Code.UNPROCESSABLE): 400,  # more hangs on it by ``cascadeBy`` than a delete takes
        ("delete_record", Code.CANNOT_OPEN): 500,
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

PROBLEM: Final = "application/problem+json"


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
