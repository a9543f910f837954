import base64
import copy
import os
import pickle
import subprocess
import sys

import pytest

from proxy.crypto.keyset import Keyset
from proxy.crypto.master_key import MasterKey
from tests.support.table import table
from tests.support.tree import ROOT

MASTER = bytes(range(32))


def holders() -> list[object]:
    keyset = Keyset.create("test")
    return [MasterKey(MASTER), keyset, keyset.aead(), keyset.field_keys("contact", "email")]


@table("holder", holders())
def test_a_holder_of_keys_is_neither_pickled_nor_copied(holder):
    for attempt in (
        lambda: pickle.dumps(holder),
        lambda: copy.copy(holder),
        lambda: copy.deepcopy(holder),
    ):
        with pytest.raises(TypeError, match="key bytes"):
            attempt()


@table("holder", holders())
def test_a_holder_of_keys_shows_its_type_and_no_bytes(holder):
    assert repr(holder) == str(holder) == f"<{type(holder).__name__}: key bytes not shown>"
    assert not hasattr(holder, "__dict__")


HIDING = """
import os, subprocess, sys
from pathlib import Path
from proxy.crypto.key_sources import open_source
from proxy.crypto.secret import hide_variables, secret_variable

key = open_source("env:VAULT_KEY").load().id
hide_variables(["VAULT_KEY", "NOT_THERE", "EMPTY"])
hide_variables(["VAULT_KEY"])
assert open_source("env:VAULT_KEY").load().id == key and open_source("env:VAULT_KEY").exists()
assert (secret_variable("NOT_THERE"), secret_variable("EMPTY"), secret_variable("OTHER")) == ("", "", "stays")
child = subprocess.run(["env"], capture_output=True, check=True).stdout
print((Path("/proc/self/environ").read_bytes() + child + repr(os.environ).encode()).hex())
"""


def test_a_variable_that_was_hidden_is_read_by_us_alone():
    key = base64.b64encode(MASTER)
    done = subprocess.run(
        [sys.executable, "-c", HIDING],
        env={**os.environ, "VAULT_KEY": key.decode(), "EMPTY": "", "OTHER": "stays"},
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
        timeout=120,
    )
    seen = bytes.fromhex(done.stdout)
    assert seen.count(b"stays") == 3
    assert key not in seen
    assert seen.count(b"VAULT_KEY") == 1  # with nothing behind it, where it stood at first
