import subprocess
import sys

from proxy.functions.runner import encode_frame


def test_a_worker_that_is_told_nothing_ends_quietly():
    done = subprocess.run(
        [sys.executable, "-m", "proxy.functions.worker", str(256 << 20)],
        input=b"",
        capture_output=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == (b"", b"")


def test_what_a_function_prints_goes_nowhere():
    call = encode_frame({"target": "builtins:print", "arguments": "a secret"})
    done = subprocess.run(
        [sys.executable, "-m", "proxy.functions.worker", str(256 << 20)],
        input=call,
        capture_output=True,
        check=True,
    )
    assert done.stdout[4:] == b'{"result":null}'
    assert b"secret" not in done.stderr
