"""``domicile`` as scripts call it, run by a fork of ``tests.support.crashing``: with the arguments,
folder, environment, streams and signals of this process, which ends as the fork ends.

``python -IS FILE ADDRESS ARGUMENT…``; ``lives.write_command`` writes a command that calls it. Nothing
but the standard library is imported, so that a call costs hundredths of a second in place of one.
"""

import json
import os
import signal
import socket
import sys
from types import FrameType


def forward(address: str, arguments: list[str]) -> int:
    """Run to the end; the exit status, negative for a signal that ended the fork."""
    life = {"argv": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}  # noqa: PTH109  # pathlib would be half of the call
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(address)
        told = line.makefile("r")
        order = json.dumps(life).encode() + b"\n"
        line.sendall(order[socket.send_fds(line, [order], [0, 1, 2]) :])
        child = json.loads(told.readline())["born"]

        def pass_on(number: int, _: FrameType | None) -> None:
            line.sendall(json.dumps({"child": child, "signal": number}).encode() + b"\n")

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, pass_on)
        status: int = json.loads(told.readline())["status"]
    return status


if __name__ == "__main__":
    ended = forward(sys.argv[1], sys.argv[2:])
    if ended < 0:
        signal.signal(-ended, signal.SIG_DFL)
        os.kill(os.getpid(), -ended)
    sys.exit(ended)
