"""The peers: found on this machine, else installed by the benchmark itself, and started on a free
port.

nginx comes from the machine or from its Debian packages; mitmproxy from its hashed lock, in an
environment of its own that ``make bench`` makes and this file makes where it is absent.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.processes import CACHE, ROOT, Running, Unavailable, free_port, started

#: The Makefile names another where the benchmarks are to run on another interpreter.
MITMPROXY_ENVIRONMENT = ROOT / os.environ.get("BENCH_PEERS", ".venv-bench")
MITMPROXY_LOCK = ROOT / "requirements" / "bench.txt"

#: As much as nginx needs to be fast: one worker, kept-alive connections on both sides, no log,
#: bodies in memory.
_NGINX = """\
daemon off;
worker_processes 1;
pid nginx.pid;
error_log stderr error;
{user}
events {{ worker_connections 1024; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    client_body_buffer_size 64k;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    scgi_temp_path scgi;
    uwsgi_temp_path uwsgi;
    upstream application {{
        server 127.0.0.1:{upstream};
        keepalive 256;
        keepalive_requests 1000000000;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=1024;
        location / {{
            proxy_pass http://application;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $host;
        }}
    }}
}}
"""


@contextmanager
def nginx(
    upstream: int, folder: Path, *, install: bool, template: str = _NGINX
) -> Iterator[Running]:
    """Nginx that passes everything to ``upstream``; ``template`` is its configuration, with places
    for ports and user.

    Raises:
        Unavailable: it is not here and cannot be installed, or does not start.
    """
    program = _find_nginx() or _installed_nginx(install=install)
    port = free_port()
    settings = folder / "nginx.conf"
    user = "user root;" if os.geteuid() == 0 else ""
    settings.write_text(template.format(upstream=upstream, port=port, user=user))
    command = [str(program), "-p", str(folder), "-c", str(settings), "-e", "stderr"]
    with started("nginx", command, port, folder) as running:
        yield running


@contextmanager
def mitmproxy(upstream: int, folder: Path, *, install: bool) -> Iterator[Running]:
    """mitmproxy in reverse mode with the redacting addon in front of ``upstream``.

    Raises:
        Unavailable: it is not here and cannot be installed, or does not start.
    """
    program = _installed_mitmproxy(install=install)
    port = free_port()
    command = [
        *(str(program), "--quiet", "--mode", f"reverse:http://127.0.0.1:{upstream}"),
        *("--listen-host", "127.0.0.1", "--listen-port", str(port)),
        *("--set", f"confdir={folder / 'mitmproxy'}", "--set", "flow_detail=0"),
        *("--scripts", str(Path(__file__).with_name("mitm_addon.py"))),
    ]
    with started("mitmproxy", command, port, folder) as running:
        yield running


def nginx_version() -> str | None:
    """The version of the nginx that would be measured, ``None`` where there is none."""
    program = _find_nginx()
    if program is None:
        return None
    said = subprocess.run([program, "-v"], capture_output=True, text=True, check=False).stderr
    return said.strip().rpartition("/")[2] or None


def mitmproxy_version() -> str | None:
    """The version of the mitmproxy that would be measured, ``None`` where there is none."""
    found = sorted(MITMPROXY_ENVIRONMENT.glob("lib/python*/site-packages/mitmproxy-*.dist-info"))
    return found[-1].name.removeprefix("mitmproxy-").removesuffix(".dist-info") if found else None


def _find_nginx() -> Path | None:
    usual = os.pathsep.join(
        (os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", str(CACHE / "nginx/usr/sbin"))
    )
    found = shutil.which("nginx", path=usual)
    try:
        if (
            found is None
            or subprocess.run([found, "-v"], capture_output=True, check=False).returncode
        ):
            return None  # unpacked, but a library that it needs is not here
    except OSError:
        return None  # being unpacked at this moment, by another run
    return Path(found)


def _installed_nginx(*, install: bool) -> Path:
    """From Debian's packages: unpacked into the cache, which leaves the machine alone; installed
    where that is not enough.
    """
    if not install:
        raise Unavailable("nginx is not installed, and a quick run installs nothing")
    if shutil.which("apt-get") is None:
        raise Unavailable(
            "nginx is not installed and this machine has no apt-get: install nginx and try again"
        )
    try:
        _unpack_nginx()
    except Unavailable:
        if os.geteuid() != 0:
            raise
        _run("nginx", ["apt-get", "update", "-qq"])  # a fresh machine knows no package yet
        with contextlib.suppress(Unavailable):
            _unpack_nginx()
    program = _find_nginx()
    if program is None and os.geteuid() == 0:
        _run("nginx", ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "nginx-light"])
        program = _find_nginx()
    if program is None:
        raise Unavailable("nginx cannot be unpacked so that it runs here: install it and try again")
    return program


def _unpack_nginx() -> None:
    """Fetch the packages that hold the program, in one distribution or another, and unpack them
    into the cache.
    """
    fetched = CACHE / "packages"
    fetched.mkdir(parents=True, exist_ok=True)
    for name in ("nginx", "nginx-light"):
        _run("nginx", ["apt-get", "download", "-qq", name], fetched)
        for package in sorted(fetched.glob(f"{name}_*.deb")):
            _run("nginx", ["dpkg", "-x", str(package), str(CACHE / "nginx")])
        if _find_nginx() is not None:
            return


def _installed_mitmproxy(*, install: bool) -> Path:
    program = MITMPROXY_ENVIRONMENT / "bin" / "mitmdump"
    if program.exists():
        return program
    if not install:
        raise Unavailable(
            "mitmproxy is not installed, and a quick run installs nothing: make bench installs it"
        )
    print(f"Installing mitmproxy into {MITMPROXY_ENVIRONMENT.name} ...", file=sys.stderr)
    venv.create(MITMPROXY_ENVIRONMENT, with_pip=True)
    pip = [str(MITMPROXY_ENVIRONMENT / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    _run(
        "mitmproxy",
        [
            *pip,
            "--disable-pip-version-check",
            "--require-hashes",
            "--requirement",
            str(MITMPROXY_LOCK),
        ],
    )
    (MITMPROXY_ENVIRONMENT / ".installed").touch()  # the stamp that the Makefile looks for
    return program


def _run(what: str, command: Sequence[str], folder: Path | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "it printed nothing").splitlines()[-1]
        raise Unavailable(f"{what} cannot be installed here: {Path(command[0]).name} said: {last}")
