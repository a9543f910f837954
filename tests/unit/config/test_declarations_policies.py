from pathlib import Path

import pytest

from proxy.config.declarations import read_policies
from proxy.errors import Code, VaultError
from proxy.model.policy import read_policy
from tests.unit.model.test_policy import EXAMPLE

#: As the interface shows it.
TEXT = """\
name: support                     # letters and digits
schema: contact
actions: [read, write]            # read, write, delete
fields:                           # absent: all, clear
  email: {valueType: redacted, format: "[a-z]{8}@example.org"}
  phone: {valueType: masked, mask: {last: 2}}
  passport: hidden
  city: clear
rows: {filter: {region: north}}
external_acl: https://app.example.com/allowed
firewall: {mode: mask}
cors: {origins: ["https://app.example.com"]}
"""


def test_a_file_says_what_a_body_says(tmp_path: Path):
    (tmp_path / "support.yaml").write_text(TEXT)
    assert read_policies([tmp_path]).found == (read_policy("support", EXAMPLE),)


def test_faults_have_their_lines(tmp_path: Path):
    (tmp_path / "a.yaml").write_text(TEXT.replace("[a-z]{8}", "[a-z]").replace("write", "fly"))
    with pytest.raises(VaultError) as refused:
        read_policies([tmp_path])
    assert refused.value.code is Code.INVALID_POLICY
    assert [detail.source.rpartition("/")[2] for detail in refused.value.details] == [
        "a.yaml:3:17",
        "a.yaml:5:32",
    ]
