"""A real S3 interface for the tests: the server of ``moto``, a process of its own.

One server serves a process of tests, which it does not outlive; every store has a prefix of its own
in its bucket. Tests of outages start servers for themselves.
"""

import atexit
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
import urllib.request
import weakref
from functools import cache
from typing import Any

import boto3

from tests.support.patience import PATIENCE
from tests.support.ports import hold_port
from tests.support.tree import ROOT

BUCKET = "vault-files"
#: What the tests' instances find their credentials in.
CREDENTIALS = {"TEST_S3_KEY": "an-access-key", "TEST_S3_SECRET": "a-secret-of-the-tests"}


class Server:
    """One server with an empty bucket, which keeps everything in memory."""

    def __init__(self) -> None:
        self.port, holder = hold_port()
        weakref.finalize(self, os.close, holder)
        command = [sys.executable, "-m", "tests.support.bucket", str(self.port)]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        end = time.monotonic() + PATIENCE
        while not self.ready():
            assert self.process.poll() is None, "the server has ended"
            assert time.monotonic() < end, "the server does not answer"
            time.sleep(0.05)
        self.client().create_bucket(Bucket=BUCKET)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, service: str = "s3") -> Any:
        """Somebody else's client of it."""
        return boto3.client(
            service, endpoint_url=self.endpoint, region_name="us-east-1",
            aws_access_key_id="x", aws_secret_access_key="x",
        )  # fmt: skip

    def address(self, prefix: str, bucket: str = BUCKET, **parameters: str) -> str:
        """The address of a prefix in it."""
        query = {
            "endpoint": self.endpoint, "region": "us-east-1", "timeout": "15",
            "access_key": "${env:TEST_S3_KEY}", "secret_key": "${env:TEST_S3_SECRET}", **parameters,
        }  # fmt: skip
        return f"s3://{bucket}/{prefix}?" + "&".join(f"{key}={query[key]}" for key in query)

    def names(self, prefix: str = "") -> list[str]:
        """The objects under a prefix."""
        pages = (
            self.client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        )
        return [item["Key"] for page in pages for item in page.get("Contents", ())]

    def unfinished(self) -> list[str]:
        """The uploads that have parts and no end."""
        uploads = self.client().list_multipart_uploads(Bucket=BUCKET).get("Uploads", ())
        return [upload["Key"] for upload in uploads]

    def ready(self) -> bool:
        try:
            urllib.request.urlopen(f"{self.endpoint}/moto-api/", timeout=2).close()
        except OSError:
            return False
        return True

    def demand_rights(self) -> None:
        """From now on serve only what is signed with a key that it has made, and allowed."""
        address = f"{self.endpoint}/moto-api/reset-auth"
        request = urllib.request.Request(address, b"0", {"Content-Type": "text/plain"})
        urllib.request.urlopen(request).close()

    def freeze(self) -> None:
        """Let it answer nothing, and refuse nothing either, until ``thaw``."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it, and lose what it has. Idempotent."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE)
        if self.process.stdin is not None:
            self.process.stdin.close()


@cache
def shared() -> Server:
    """The server of this process of tests."""
    os.environ.update(CREDENTIALS)
    server = Server()
    atexit.register(server.kill)
    return server


def fresh_files(**parameters: str) -> str:
    """The address of files that nobody has used, on the server of this process."""
    return shared().address(f"t{secrets.token_hex(8)}", **parameters)


def _serve(port: int) -> None:
    """Run the server until standard input ends, as it does with the process that started it."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    server = make_server(
        "127.0.0.1", port, DomainDispatcherApplication(create_backend_app), threaded=True
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
