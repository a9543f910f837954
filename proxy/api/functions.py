"""Handlers of resident functions: their list, and calls, whose handle asks in the caller's name."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

import msgspec

from proxy.api import records, request, search, wire
from proxy.api.context import ApiHandler, ApiRequest, ApiResponse

_decode = msgspec.json.Decoder(float_hook=Decimal).decode


async def list_functions(call: ApiRequest) -> ApiResponse:
    """The names of all functions."""
    return wire.json_answer(
        200, {"data": [{"name": name} for name in call.services.functions.functions]}
    )


async def invoke(call: ApiRequest) -> ApiResponse:
    """The result of one function."""
    content = request.checked_members(call.content, ("arguments",))
    runner = call.services.functions
    result = await runner.call(call.path["name"], content.get("arguments"), function_calls(call))
    return wire.json_answer(200, {"result": result})


def function_calls(call: ApiRequest) -> Callable[[str, Any], Awaitable[Any]]:
    """Build the handle of a function: operations of the interface in the name of its caller."""

    async def ask(operation: str, argument: Any) -> Any:
        handler, path, content = _OPERATIONS[operation](argument)
        question = replace(call, path=path, query={}, body=b"", content=content, keep=None)
        answer = await handler(question)
        body = (
            answer.body
            if answer.stream is None
            else b"".join([piece async for piece in answer.stream])
        )
        return _decode(body) if body else None

    return ask


#: A handler, the parameters in its path, and its content.
_Request = tuple[ApiHandler, Mapping[str, str], Any]

#: Operations that a handle has: what each becomes.
_OPERATIONS: Final[Mapping[str, Callable[[Any], _Request]]] = {
    "find": lambda argument: (search.find_direct, {}, argument),
    "aggregate": lambda argument: (
        search.aggregate_records, {"schema": argument["schema"]}, argument["request"]),
    "create": lambda argument: (
        records.create_records, {"schema": argument["schema"]}, argument["records"]),
    "update": lambda argument: (
        records.update_records, {"schema": argument["schema"]}, argument["records"]),
    "delete": lambda argument: (
        records.delete_record, {"schema": argument["schema"], "record_key": argument["key"]}, None),
}  # fmt: skip
