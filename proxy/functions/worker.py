"""The program of a worker process, ``python -m proxy.functions.worker``.

It reads its terms and the call from standard input.

It applies its limits and gives up its rights (``sandbox``) before any code of the operator is
loaded. It keeps standard output for the protocol (prints of a function go nowhere: they may hold
personal data), runs one call and ends. Exceptions are reported by class and place, never by their
text. It imports little, since each call starts one.
"""

import os
import resource
import sys
from importlib import import_module
from typing import Any, BinaryIO, Final

from proxy.functions.handle import (
    BrokenFrameError,
    Handle,
    NotJsonError,
    RefusedError,
    read_frame,
    write_frame,
)
from proxy.functions.sandbox import confine, readable_paths

#: Descriptors that a function may have open.
_DESCRIPTORS: Final = 256


def serve_call() -> None:
    """Serve one call."""
    incoming, outgoing = _pipes()
    try:
        write_frame(outgoing, _confined(read_frame(incoming)))
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


def _confined(terms: Any) -> dict[str, Any]:
    """Take the limits of these terms upon this process, and tell what holds."""
    memory, folder, user = terms["memory"], terms["folder"], terms["user"]
    for limit, value in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_FSIZE, memory),
        (resource.RLIMIT_NOFILE, _DESCRIPTORS),
        (resource.RLIMIT_CORE, 0),  # a core file would hold personal data
    ):
        resource.setrlimit(limit, (value, value))
    paths = readable_paths(network=terms["network"])
    layers = confine(folder, network=terms["network"], user=user and tuple(user))
    sys.dont_write_bytecode = True
    os.chdir(folder)
    zone = {"TZ": os.environ["TZ"]} if "TZ" in os.environ else {}
    os.environ.clear()
    os.environ.update({"HOME": folder, "TMPDIR": folder, **zone})
    return {"layers": layers, "readable": paths}


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
    trace = error.__traceback__
    if trace is None:
        return ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    folders = trace.tb_frame.f_code.co_filename.split("/")
    return f"{'/'.join(folders[-2:])}:{trace.tb_lineno}"


if __name__ == "__main__":
    serve_call()
