"""What the operations on resident functions mean."""

from typing import Final

from proxy.api.openapi.models import fault
from proxy.api.openapi.parts import Description, Example, array, closed, string

TAG: Final = "Functions"

DESCRIBED: Final[dict[str, Description]] = {
    "list_functions": Description(
        TAG,
        "The functions that are installed",
        "Code that the operator of this instance installed (entry point group `domicile.functions`).",
        answer=closed({"data": array(closed({"name": string("What it is called by.")}, "name"))}, "data"),
        examples=(Example("One function", 200, answer={"data": [{"name": "oldest"}]}),),
        answered="Their names.",
    ),
    "call_function": Description(
        TAG,
        "Call a function",
        "It runs beside the vault, in a process of its own, and asks the vault in the name of the caller; of what it sees only its "
        "result leaves. One that takes more time or memory than the operator allows ends with 503 `function_limit`; one that "
        "fails with 500 `function_failed`. What it wrote until then stays.",
        closed({"arguments": {"description": "Whatever the function takes."}}),
        closed({"result": {"description": "Whatever the function gives."}}, "result"),
        (
            Example(
                "The greatest age in a city", 200, {"name": "oldest"}, body={"arguments": {"city": "Uppsala"}}, answer={"result": 41}
            ),
            Example("A function that is not there", 400, {"name": "none"}, body={}, answer=fault(
                400, "Bad Request", "unknown_function", "No resident function of that name is installed.",
            )),
        ),
        "Its result.",
    ),
}  # fmt: skip
