"""Domicile as an operator runs it: ``domicile serve`` with a settings file, durable vault on this
machine's disk.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.machine import absent
from bench.processes import Running, free_port, started

RULES = Path(__file__).with_name("rules.yaml")
#: Runs the program without modules that are not there where it is installed.
_PROGRAM = (
    "import runpy, sys; sys.modules.update(dict.fromkeys(sys.argv.pop(1).split(','))); "
    "runpy.run_module('proxy', run_name='__main__', alter_sys=True)"
)
_UPSTREAM = "http://127.0.0.1:3000"  # as it stands in the rule file

#: Address of the embedded store.
EMBEDDED = "sqlite:///{data}/vault.db"

_SETTINGS = """\
country: se
data: {folder}/data
listen:
  proxy: 127.0.0.1:{port}
  vault: 127.0.0.1:{vault}
  admin: 127.0.0.1:{admin}
rules: {folder}/rules.yaml
store: sqlite:///{{data}}/vault.db
keys: file:///{{data}}/keys.json
"""


def settings_file(
    folder: Path, port: int, *, vault: int, upstream: int = 9, more: str = ""
) -> Path:
    """A settings file for an instance on these ports, with the rules of the benchmark and ``more``;
    its data lies in ``folder``.
    """
    rules = RULES.read_text()
    assert _UPSTREAM in rules
    (folder / "rules.yaml").write_text(rules.replace(_UPSTREAM, f"http://127.0.0.1:{upstream}"))
    settings = folder / "domicile.yaml"
    settings.write_text(
        _SETTINGS.format(folder=folder, port=port, vault=vault, admin=free_port()) + more
    )
    return settings


@contextmanager
def domicile(upstream: int, folder: Path) -> Iterator[Running]:
    """The proxy with the rules of the benchmark in front of ``upstream``; its data lies in
    ``folder``.

    Raises:
        Unavailable: it does not start; with the end of what it printed.
    """
    port = free_port()
    settings = settings_file(folder, port, vault=free_port(), upstream=upstream)
    hidden = ",".join(absent())
    command = [sys.executable, "-c", _PROGRAM, hidden, "serve", "--config", str(settings)]
    with started("domicile", command, port, folder) as running:
        yield running
