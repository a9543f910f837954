"""Domicile as an operator runs it: ``domicile serve`` with a settings file, durable vault on this machine's disk."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.processes import Running, free_port, started

RULES = Path(__file__).with_name("rules.yaml")
_UPSTREAM = "http://127.0.0.1:3000"  # as it stands in the rule file

_SETTINGS = """\
data: {folder}/data
listen:
  proxy: 127.0.0.1:{port}
  admin: 127.0.0.1:{admin}
rules: {folder}/rules.yaml
store: sqlite:///{{data}}/vault.db
keys: file:///{{data}}/keys.json
"""


@contextmanager
def domicile(upstream: int, folder: Path) -> Iterator[Running]:
    """The proxy with the rules of the benchmark in front of ``upstream``; its data lies in ``folder``.

    Raises:
        Unavailable: it does not start; with the end of what it printed.
    """
    rules = RULES.read_text()
    assert _UPSTREAM in rules
    (folder / "rules.yaml").write_text(rules.replace(_UPSTREAM, f"http://127.0.0.1:{upstream}"))
    port = free_port()
    settings = folder / "domicile.yaml"
    settings.write_text(_SETTINGS.format(folder=folder, port=port, admin=free_port()))
    command = [sys.executable, "-m", "proxy", "serve", "--config", str(settings)]
    with started("domicile", command, port, folder) as running:
        yield running
