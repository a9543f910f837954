"""The table from error codes to HTTP statuses, with an endpoint's ``on_error``."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from proxy.errors import Code, VaultError
from proxy.redactor.rules import OnError, Verb

_CODES: Final = {
    400: (Code.BAD_REQUEST, Code.MALFORMED_JSON, Code.AMBIGUOUS_JSON, Code.AMBIGUOUS_UPLOAD,
        Code.INVALID_RECORD, Code.INVALID_FILTER, Code.INVALID_OPTIONS, Code.INVALID_INPUT,
        Code.INVALID_FILE, Code.INVALID_SCHEMA, Code.INVALID_POLICY, Code.UNKNOWN_SCHEMA,
        Code.SCHEMA_OF_RULES, Code.UNKNOWN_FUNCTION),
    401: (Code.ACCESS_DENIED, Code.PARTIAL_MATCH_DISABLED, Code.UNAUTHORIZED),
    403: (Code.FIELD_HIDDEN, Code.OPERATION_DENIED, Code.PURPOSE_REQUIRED, Code.FORBIDDEN,
        Code.APPROVAL_NEEDED, Code.APPROVAL_REFUSED, Code.OUTSIDE_COUNTRY),
    404: (Code.NOT_FOUND, Code.NO_MATCH, Code.UNKNOWN_FILE),
    405: (Code.METHOD_NOT_ALLOWED,),
    408: (Code.REQUEST_TIMEOUT,),
    409: (Code.RECORD_EXISTS, Code.CONFLICT, Code.POLICY_IN_USE, Code.SCHEMA_BUSY,
        Code.REPLICAS_RUNNING, Code.SCHEMA_IN_USE, Code.ENVIRONMENT_IN_USE, Code.WRONG_COUNTRY,
        Code.FILE_EXISTS),
    412: (Code.PRECONDITION_FAILED,),
    413: (Code.TOO_LARGE,),
    414: (Code.URI_TOO_LONG,),
    415: (Code.UNREADABLE_BODY, Code.UNSUPPORTED_MEDIA_TYPE),
    416: (Code.RANGE_UNSATISFIABLE,),
    422: (Code.FIELD_ABSENT, Code.VALUE_UNFIT, Code.VALUE_INVALID, Code.SEARCH_REFUSED,
        Code.VALUE_ELSEWHERE, Code.UNPROCESSABLE, Code.BATCH_TOO_LARGE, Code.TOO_BROAD),
    429: (Code.TOO_MANY_REQUESTS, Code.TOO_MANY_UPLOADS, Code.IDEMPOTENCY_CHECK_FAILED),
    431: (Code.HEADER_TOO_LARGE,),
    500: (Code.CANNOT_OPEN, Code.FUNCTION_FAILED, Code.BAD_SETTINGS, Code.BAD_RULES, Code.BAD_KEYS,
        Code.BAD_STORE, Code.PORT_IN_USE, Code.INTERNAL),
    502: (Code.FILTER_ENDPOINT_WRONG, Code.UPSTREAM_UNREACHABLE, Code.UPSTREAM_BROKEN,
        Code.UNREADABLE_ANSWER, Code.ANSWER_TOO_LARGE),
    503: (Code.OVERLOADED, Code.VAULT_DOWN, Code.AUDIT_DOWN, Code.FILES_UNAVAILABLE,
        Code.FUNCTION_LIMIT, Code.ISSUER_UNREACHABLE, Code.UPSTREAM_BUSY, Code.UPSTREAM_SUSPENDED,
        Code.STORE_BUSY),
    504: (Code.FILTER_ENDPOINT_LATE, Code.UPSTREAM_TIMEOUT),
    507: (Code.SHAPE_FULL, Code.NOT_WRITABLE),
}  # fmt: skip

#: The status of every code, at all listeners.
STATUS: Final[Mapping[Code, int]] = MappingProxyType(
    {code: status for status, codes in _CODES.items() for code in codes}
)


def proxy_status(
    error: VaultError, on_error: OnError | None = None, verb: Verb | None = None
) -> int:
    """The status to answer with; ``on_error`` and ``verb`` of the matched operation, if any."""
    if on_error is None:
        return STATUS[error.code]
    if error.code in (Code.VAULT_DOWN, Code.AUDIT_DOWN):
        return _vault_down(on_error, verb)
    if error.code is Code.UNREADABLE_ANSWER and on_error.unreadable_answer.isdecimal():
        return int(on_error.unreadable_answer)
    chosen = {
        Code.UNREADABLE_BODY: on_error.unreadable_body,
        Code.AMBIGUOUS_JSON: on_error.ambiguous_json,
        Code.AMBIGUOUS_UPLOAD: on_error.ambiguous_json,
        Code.TOO_LARGE: on_error.too_large,
    }
    return chosen.get(error.code, STATUS[error.code])


def _vault_down(on_error: OnError, verb: Verb | None) -> int:
    """``vault_down_read`` may be no status; then an error has that of the table."""
    if verb is not Verb.READ:
        return on_error.vault_down_write
    read = on_error.vault_down_read
    return int(read) if read.isdecimal() else STATUS[Code.VAULT_DOWN]
