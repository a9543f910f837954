"""The one error taxonomy: a stable code, a sentence that says what to do, and details by place.

Nothing here knows HTTP (``net/errors.py`` holds the table of statuses), and no text ever contains a
stored or submitted personal value: details name places (a JSON Pointer, a file and line), never
content.
"""

import enum
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Self


class Code(enum.StrEnum):
    """Stable, documented error codes; part of the public interface."""

    # The caller's request on a matched operation.
    BAD_REQUEST = "bad_request"  #: not understood as HTTP, or two readings that hit different rules
    URI_TOO_LONG = "uri_too_long"  #: the request line is over the limit of the listener
    #: a field of the head, their number or the whole head is over the limit
    HEADER_TOO_LARGE = "header_too_large"
    #: said to be neither JSON nor a form, unknown charset or content coding
    UNREADABLE_BODY = "unreadable_body"
    MALFORMED_JSON = "malformed_json"  #: said to be JSON, and breaks its grammar
    AMBIGUOUS_JSON = "ambiguous_json"  #: duplicate member, lone surrogate, trailing data
    AMBIGUOUS_UPLOAD = "ambiguous_upload"  #: a CSV file or form that programs read in two ways
    TOO_LARGE = "too_large"  #: a limit on size, depth or number of fields is exceeded
    METHOD_NOT_ALLOWED = "method_not_allowed"  #: another method than the address takes
    REQUEST_TIMEOUT = "request_timeout"  #: the caller stopped sending in the middle of its request
    #: as many bodies are held in memory as the settings allow; later there is room again
    OVERLOADED = "overloaded"
    FIELD_ABSENT = "field_absent"  #: a named field is missing and the rule says refuse
    VALUE_UNFIT = "value_unfit"  #: a value does not fit the token shape of its field
    VALUE_INVALID = "value_invalid"  #: a value is not what the rule of its field takes
    SEARCH_REFUSED = "search_refused"  #: a parameter that the application could only get wrong
    #: the caller's view does not show the field that it searches by
    FIELD_HIDDEN = "field_hidden"
    #: a value that was swapped for its token stands elsewhere in the request as well
    VALUE_ELSEWHERE = "value_elsewhere"
    OPERATION_DENIED = "operation_denied"  #: no rule names the request and the endpoint denies such

    # The vault.
    RECORD_EXISTS = "record_exists"  #: the key belongs to another record
    CONFLICT = "conflict"  #: the record changed since it was read
    NOT_FOUND = "not_found"
    SHAPE_FULL = "shape_full"  #: no free token of the shape is left
    CANNOT_OPEN = "cannot_open"  #: a sealed body does not open: changed, moved or under another key
    VAULT_DOWN = "vault_down"  #: the store cannot be reached or refuses to write
    #: the audit log cannot be written, so nothing may be revealed or changed
    AUDIT_DOWN = "audit_down"

    # The vault's own interface.
    INVALID_RECORD = "invalid_record"  #: a record that does not fit its schema
    INVALID_FILTER = "invalid_filter"  #: a filter that cannot be asked of this schema
    INVALID_OPTIONS = "invalid_options"  #: limit, offset or sort of a search
    INVALID_INPUT = "invalid_input"  #: anything else of a request: its JSON, a parameter, a header
    INVALID_FILE = "invalid_file"  #: an upload without its file or its name
    INVALID_SCHEMA = "invalid_schema"  #: the definition of a schema
    INVALID_POLICY = "invalid_policy"  #: the body of an access policy
    POLICY_IN_USE = "policy_in_use"  #: clients are under the policy
    ACCESS_DENIED = "access_denied"  #: the access policies of the client do not allow that
    #: the access policies of the client ask what a request is for, and it does not say so
    PURPOSE_REQUIRED = "purpose_required"
    UNKNOWN_SCHEMA = "unknown_schema"  #: no schema of that name
    #: only the application behind the proxy writes records of a rule file's entity
    SCHEMA_OF_RULES = "schema_of_rules"
    SCHEMA_BUSY = "schema_busy"  #: the schema is being changed already
    #: something that one replica may do only while no other one runs
    REPLICAS_RUNNING = "replicas_running"
    SCHEMA_IN_USE = "schema_in_use"  #: the schema still holds records
    ENVIRONMENT_IN_USE = "environment_in_use"  #: the environment still holds records
    #: another content type than the operation takes
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    UNPROCESSABLE = "unprocessable"  #: well-formed, but cannot be carried out
    BATCH_TOO_LARGE = "batch_too_large"
    TOO_BROAD = "too_broad"  #: a partial match has more candidates than the limits allow
    PARTIAL_MATCH_DISABLED = "partial_match_disabled"  #: partial match on a field that has it off
    NO_MATCH = "no_match"  #: no records match the filter of a clone or a batch delete
    WRONG_COUNTRY = "wrong_country"  #: another country than the instance's
    UNAUTHORIZED = "unauthorized"  #: no access token, or one that is invalid or has expired
    FORBIDDEN = "forbidden"  #: the client may not do that
    APPROVAL_NEEDED = "approval_needed"  #: a second person has to approve the request first
    APPROVAL_REFUSED = "approval_refused"  #: a second person has refused the request
    #: more than a client or an address may send; later there is room again
    TOO_MANY_REQUESTS = "too_many_requests"
    #: more concurrent uploads of one client than the settings allow
    TOO_MANY_UPLOADS = "too_many_uploads"
    #: the data firewall: the request comes from outside the country
    OUTSIDE_COUNTRY = "outside_country"
    FILE_EXISTS = "file_exists"  #: the record has a file of that name
    UNKNOWN_FILE = "unknown_file"  #: the record has no file with that id
    #: what If-Match or If-None-Match asks of a record or file does not hold
    PRECONDITION_FAILED = "precondition_failed"
    #: a requested part of a file does not exist
    RANGE_UNSATISFIABLE = "range_unsatisfiable"
    #: the object store cannot be reached or refuses to write
    FILES_UNAVAILABLE = "files_unavailable"
    #: the key is in use for another request, or for one under way
    IDEMPOTENCY_CHECK_FAILED = "idempotency_check_failed"
    UNKNOWN_FUNCTION = "unknown_function"  #: no resident function of that name
    FUNCTION_FAILED = "function_failed"  #: a resident function raised, or answered what is not JSON
    FUNCTION_LIMIT = "function_limit"  #: a resident function took more time or memory than it may

    #: the external issuer of access tokens cannot be asked
    ISSUER_UNREACHABLE = "issuer_unreachable"
    #: the filter endpoint of a policy is unreachable, or its answer is invalid
    FILTER_ENDPOINT_WRONG = "filter_endpoint_wrong"
    #: the filter endpoint of a policy did not answer in time
    FILTER_ENDPOINT_LATE = "filter_endpoint_late"

    # The application behind the proxy.
    UPSTREAM_UNREACHABLE = "upstream_unreachable"  #: refused, name not found, TLS failure
    UPSTREAM_TIMEOUT = "upstream_timeout"  #: no answer in time
    #: all connections are in use, and too many requests wait for one, or for too long
    UPSTREAM_BUSY = "upstream_busy"
    #: it failed several times in a row and is left alone for a moment
    UPSTREAM_SUSPENDED = "upstream_suspended"
    UPSTREAM_BROKEN = "upstream_broken"  #: reset, or an answer that is not HTTP
    #: an answer that had to be restored cannot be read, and the rule says refuse
    UNREADABLE_ANSWER = "unreadable_answer"
    ANSWER_TOO_LARGE = "answer_too_large"  #: an answer that had to be restored is over the limit

    # Start-up and configuration: the sentence is what the operator reads.
    BAD_SETTINGS = "bad_settings"
    BAD_RULES = "bad_rules"
    BAD_KEYS = "bad_keys"  #: key file missing, readable by others, damaged, or of another vault
    BAD_STORE = "bad_store"  #: database of a newer version, damaged, or not a database
    STORE_BUSY = "store_busy"  #: another process owns the embedded database
    NOT_WRITABLE = "not_writable"
    PORT_IN_USE = "port_in_use"

    INTERNAL = "internal"


class Detail(NamedTuple):
    """A fault within an error: source (JSON Pointer, parameter, ``file:line:column``) and text."""

    source: str
    text: str


class VaultError(Exception):
    """An error with a stable ``code``, a message that says what to do, and one detail per fault.

    Each is of the class of its code (``coded``), as an ``OSError`` is of that of its number.
    """

    #: Seconds after which a retry makes sense, if known.
    retry_after: int | None = None

    #: Header fields that tell callers of the limit that refused them.
    limit: Mapping[str, str] | None = None

    #: How the caller may prove who it is, where that was what failed (``WWW-Authenticate``, RFC
    #: 9110 section 11.6.1).
    challenge: str | None = None

    def __new__(cls, *of: Any, **_: Any) -> Self:
        kind: Any = _CODED.get(of[0], cls) if of and cls is VaultError else cls
        error: Self = super().__new__(kind)
        return error

    def __init__(self, code: Code, message: str, details: tuple[Detail, ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details


def bad_setting(message: str, setting: str, text: str) -> VaultError:
    """The fault of one setting."""
    return VaultError(Code.BAD_SETTINGS, message, (Detail(setting, text),))


class CannotOpen(VaultError):
    """Something sealed does not open: it was changed, moved, or sealed under another key."""


_CODED: Final[dict[Code, type[VaultError]]] = {
    **{code: type("VaultError", (VaultError,), {}) for code in Code},
    Code.CANNOT_OPEN: CannotOpen,
}


def coded(code: Code) -> type[VaultError]:
    """The class of errors with that code, for ``except``."""
    return _CODED[code]
