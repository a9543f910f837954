"""Handlers of resident functions: which there are, and calls of them, whose handle asks in the name
of the caller.
"""

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
    """What answers the questions of a function: the operations of the interface, asked by its
    caller.
    """

    async def ask(operation: str, given: Any) -> Any:
        handler, path, content = _ASKED[operation](given)
        asked = replace(call, path=path, query={}, body=b"", content=content, keep=None)
        answer = await handler(asked)
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
_ASKED: Final[Mapping[str, Callable[[Any], _Request]]] = {
    "find": lambda given: (search.find_direct, {}, given),
    "aggregate": lambda given: (
        search.aggregate_records,
        {"schema": given["schema"]},
        given["request"],
    ),
    "create": lambda given: (records.create_records, {"schema": given["schema"]}, given["records"]),
    "update": lambda given: (records.update_records, {"schema": given["schema"]}, given["records"]),
    "delete": lambda given: (
        records.delete_record,
        {"schema": given["schema"], "record_key": given["key"]},
        None,
    ),
}
