"""The program of a worker process: ``python -m proxy.functions.worker MEMORY``, told over standard
input what to call.

It takes its limits upon itself before any code of the operator is loaded, keeps standard output for
the protocol alone (what a function prints goes nowhere: it could be anybody's data), runs one call
and ends. Exceptions are told by class and place, never by their text.
"""

import os
import resource
import sys
import traceback
from importlib import import_module
from pathlib import PurePath
from typing import Any, BinaryIO

from proxy.functions.handle import Handle, RefusedError
from proxy.functions.runner import BrokenFrameError, NotJsonError, read_frame, write_frame


def serve_call(memory: int) -> None:
    """Serve one call; ``memory``: bytes of address space."""
    incoming, outgoing = _pipes()
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold personal data
    try:
        call = read_frame(incoming)
    except BrokenFrameError:
        return  # the service has gone, or does not need this process after all
    try:
        outcome = {"result": _run(call, incoming, outgoing)}
        write_frame(outgoing, outcome)
    except MemoryError:
        write_frame(outgoing, {"limit": "memory"})
    except NotJsonError:
        write_frame(outgoing, {"failed": "NotJsonError", "where": ""})
    except BaseException as error:  # noqa: BLE001 - whatever the operator's code raises, the service is told
        write_frame(outgoing, {"failed": type(error).__name__, "where": _source_line(error)})


def _run(call: Any, incoming: BinaryIO, outgoing: BinaryIO) -> Any:
    def ask(operation: str, parameters: dict[str, Any]) -> Any:
        write_frame(outgoing, {"ask": operation, "with": parameters})
        message = read_frame(incoming)
        if "refused" in message:
            raise RefusedError(message["refused"]["status"], message["refused"]["code"])
        return message["answer"]

    module, _, name = call["target"].partition(":")
    function = import_module(module)
    for part in name.split("."):
        function = getattr(function, part)
    return function(Handle(ask), call["arguments"])  # type: ignore[operator]  # what an entry point names is called


def _pipes() -> tuple[BinaryIO, BinaryIO]:
    """The two pipes of the protocol; whatever else reads or prints finds nothing there."""
    # uvloop leaves its own pipes and copies of ours open in a child
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    os.close(nothing)
    return incoming, outgoing


def _source_line(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    return f"{'/'.join(PurePath(frames[-1].filename).parts[-2:])}:{frames[-1].lineno}"


if __name__ == "__main__":
    serve_call(int(sys.argv[1]))
