"""A real Prometheus for the tests: the programs of Debian's package, unpacked and not installed."""

import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.support.patience import PATIENCE
from tests.support.ports import closed_port


class NoPrometheus(Exception):
    """Why there is none."""


def program(name: str) -> str:
    """The path of ``prometheus`` or ``promtool``. Raises ``NoPrometheus``."""
    if found := shutil.which(name):
        return found
    folder = Path(tempfile.gettempdir(), f"domicile-prometheus-{os.getuid()}")
    if not folder.exists():
        _unpack(folder)
    return str(folder / "usr" / "bin" / name)


def _unpack(folder: Path) -> None:
    if shutil.which("apt-get") is None:
        raise NoPrometheus("prometheus is not installed, and there is no apt-get to fetch it")
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        for attempt in range(2):
            fetched = _run(["apt-get", "download", "-qq", "prometheus"], place)
            if fetched or attempt or os.geteuid() != 0:
                break
            _run(["apt-get", "update", "-qq"], place)  # a fresh machine knows no package yet
        packages = sorted(Path(place).glob("prometheus_*.deb"))
        if not packages:
            raise NoPrometheus("prometheus is not installed, and its package cannot be fetched")
        fresh = Path(place, "unpacked")
        if not _run(["dpkg", "-x", str(packages[0]), str(fresh)], place):
            raise NoPrometheus("the package of prometheus cannot be unpacked")
        if not folder.exists():  # another worker may have been faster
            fresh.rename(folder)


def _run(command: list[str], place: str) -> bool:
    try:
        done = subprocess.run(command, cwd=place, check=False, capture_output=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


class Prometheus:
    """A server on loopback, asked by its interface."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def get(self, path: str, **parameters: str) -> Any:
        """The data of an answer."""
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self._url}{path}?{query}", timeout=PATIENCE) as answer:
            told = json.load(answer)
        assert told["status"] == "success", told
        return told["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an instant query."""
        result: list[dict[str, Any]] = self.get("/api/v1/query", query=expression)["result"]
        return result

    def until(self, expression: str) -> None:
        """Wait until a query has an answer."""
        end = time.monotonic() + PATIENCE
        while not self.query(expression):
            assert time.monotonic() < end, expression
            time.sleep(0.1)


@contextmanager
def prometheus(folder: Path, rules: Any, scraped: str, bearer: str) -> Iterator[Prometheus]:
    """A server that scrapes that address each second and evaluates the rules."""
    (folder / "rules.yml").write_text(yaml.safe_dump(rules))
    job = {
        "job_name": "domicile",
        "authorization": {"credentials": bearer},
        "static_configs": [{"targets": [scraped]}],
    }
    settings = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yml"],
        "scrape_configs": [job],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
    with closed_port() as port:
        process = subprocess.Popen(
            [
                program("prometheus"), f"--config.file={folder}/prometheus.yml",
                f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            server = Prometheus(port)
            end = time.monotonic() + PATIENCE
            while True:
                try:
                    server.query("vector(1)")
                    break
                except (urllib.error.URLError, OSError):
                    assert process.poll() is None, "the server has ended"
                    assert time.monotonic() < end, "the server does not answer"
                    time.sleep(0.1)
            yield server
        finally:
            process.terminate()
            process.wait(PATIENCE)
