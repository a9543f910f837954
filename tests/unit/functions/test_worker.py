import io
import json
import subprocess
import sys
from pathlib import Path

from proxy.functions.handle import encode_frame, read_frame


def talk(*frames: object) -> "subprocess.CompletedProcess[bytes]":
    """A worker that is sent these frames, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "proxy.functions.worker"],
        input=b"".join(map(encode_frame, frames)),
        capture_output=True,
        check=True,
    )


def terms(folder: Path) -> dict[str, object]:
    return {"memory": 256 << 20, "network": False, "user": None, "folder": str(folder)}


def test_a_worker_that_is_told_nothing_ends_quietly():
    done = talk()
    assert (done.stdout, done.stderr) == (b"", b"")


def test_a_worker_without_a_call_ends_after_it_has_told_what_confines_it(tmp_path):
    done = talk(terms(tmp_path))
    report = read_frame(io.BytesIO(done.stdout))
    assert {"landlock", "seccomp"} <= report["layers"].keys()
    assert str(tmp_path) not in json.dumps(report["readable"])


def test_what_a_function_prints_goes_nowhere(tmp_path):
    done = talk(terms(tmp_path), {"target": "builtins:print", "arguments": "a secret"})
    pipe = io.BytesIO(done.stdout)
    assert [read_frame(pipe), read_frame(pipe)][1] == {"result": None}
    assert pipe.read() == b""
    assert b"secret" not in done.stdout + done.stderr
