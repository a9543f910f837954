"""``domicile health``: ask a running instance how it is, for container probes and scripts."""

import argparse
import contextlib
import http.client
import json
import os
import urllib.parse
from collections.abc import Iterator
from typing import Any, Final

from proxy.cli import SUMMARIES, command
from proxy.cli.command import FAULT, OK, Arguments, Command
from proxy.config import load_settings
from proxy.config.settings import ListenAddress
from proxy.errors import Code, VaultError

#: Of an answer, as much is read: more than all checks with their faults.
_LONGEST: Final = 65_536
_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # recognised here, not listened at


def _arguments(parser: argparse.ArgumentParser) -> None:
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument(
        "--url",
        type=http_address,
        metavar="URL",
        help="what to ask; without a path, /healthz there (default: the admin listener's)",
    )
    choice.add_argument(
        "--ready", action="store_true", help="ask /readyz: whether requests should be sent here now"
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=3.0,
        metavar="SECONDS",
        help="longest wait for the answer (default: 3)",
    )


def run(arguments: Arguments) -> int:
    """Exit status 0 when the answer is 200."""
    url: str = _with_path(arguments.url) if arguments.url else _own(arguments)
    status, text = probe(url, arguments.timeout)
    healthy = status == 200
    command.show(arguments, {"healthy": healthy, "url": url, "status": status}, f"{url}: {text}")
    return OK if healthy else FAULT


def probe(url: str, timeout: float) -> tuple[int | None, str]:
    """The status of the answer, ``None`` without one, and a text for people.

    ``timeout`` in seconds, for each wait.
    """
    try:
        status, reason, body = _get(url, timeout)
    except TimeoutError:
        return None, f"no answer within {timeout:g} s"
    except OSError as error:
        why = error.strerror or "the name is not known"
        return None, f"no answer ({why}): is the service running, and there?"
    except http.client.HTTPException:
        return None, "what answers there does not speak HTTP"
    return status, "; ".join([f"{status} {reason}", *_faults(body)])


def _get(url: str, timeout: float) -> tuple[int, str, bytes]:
    """Status, reason and body of an answer. Raises what ``http.client`` does."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=timeout)
    with contextlib.closing(connection):
        connection.request("GET", f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}")
        answer = connection.getresponse()
        return answer.status, answer.reason, answer.read(_LONGEST)


def _faults(body: bytes) -> Iterator[str]:
    """The checks of ``/readyz`` that are not in order; nothing of any other answer."""
    try:
        checks = json.loads(body)["checks"].items()
    except (ValueError, TypeError, KeyError, AttributeError):
        return
    yield from (f"{name}: {state}" for name, state in checks if state != "ok")


def readiness(url: str) -> dict[str, Any]:
    """Return ``status``, ``checks``, ``stale`` from ``/readyz`` of the admin listener at ``url``.

    Raises ``VaultError``: VAULT_DOWN without an answer, BAD_SETTINGS for one of something else.
    """
    try:
        readyz = urllib.parse.urlsplit(url)._replace(path="/readyz", query="").geturl()
        data = json.loads(_get(readyz, 10)[2])
        return {name: data[name] for name in ("status", "checks", "stale")}
    except (OSError, http.client.HTTPException):
        text = f"{url} gives no answer: is the service running, and there?"
        raise VaultError(Code.VAULT_DOWN, text) from None
    except (ValueError, TypeError, KeyError):
        text = f"{url} is no admin listener of domicile."
        raise VaultError(Code.BAD_SETTINGS, text) from None


def _with_path(url: str) -> str:
    """Return the address of a listener with the path that tells of its health; others as sent."""
    parts = urllib.parse.urlsplit(url)
    return parts._replace(path="/healthz").geturl() if parts.path in ("", "/") else url


def _own(arguments: Arguments) -> str:
    """The address of the admin listener of the settings, as seen from this machine."""
    here = reachable(load_settings(arguments.config, os.environ).listen.admin)
    return f"http://{here}/{'readyz' if arguments.ready else 'healthz'}"


def reachable(listening: ListenAddress) -> ListenAddress:
    """Return the address at which this machine reaches the listener."""
    return listening._replace(host=_WILDCARDS.get(listening.host, listening.host))


def http_address(text: str) -> str:
    """A whole address at http://, as an argument."""
    if not is_address(text, "http"):
        raise argparse.ArgumentTypeError(
            "write a whole address, such as http://127.0.0.1:8082/healthz"
        )
    return text


def is_address(text: str, *schemes: str) -> bool:
    """Whether the text is an address with a host and one of these schemes."""
    try:
        parts = urllib.parse.urlsplit(text)
        fits = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return fits and min(text) > " "


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds <= 3600:
        raise argparse.ArgumentTypeError("write a number of seconds above 0, such as 3")
    return seconds


COMMAND: Final = Command(SUMMARIES["health"],
    "domicile health --url http://127.0.0.1:8082/readyz", run, _arguments)  # fmt: skip
