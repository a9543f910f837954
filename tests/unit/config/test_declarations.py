from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from proxy.config.declarations import DeclarationKind, plural, read_files
from proxy.errors import Code, VaultError

KIND: DeclarationKind[Any] = DeclarationKind(
    "policy", "`name:`", Code.INVALID_POLICY, lambda name, raw: (name, raw)
)


def test_values_are_read_without_the_traps_of_yaml(tmp_path: Path):
    (tmp_path / "a.yaml").write_text(
        "name: x\nv: [no, 012, 5, -1.50, 1e3, true, null, 'null', '5']\n"
    )
    (one,) = read_files(KIND, [tmp_path]).found
    assert one == ("x", {"v": ["no", "012", 5, Decimal("-1.50"), "1e3", True, None, "null", "5"]})


def test_every_fault_has_its_line_and_the_noun_of_the_kind(tmp_path: Path):
    (tmp_path / "a.yaml").write_text(
        "name: x\n---\nname: x\n---\nfields: 5\n---\nname: y\nname: z\n"
    )
    with pytest.raises(VaultError) as refused:
        read_files(KIND, [tmp_path, tmp_path / "none"])
    assert refused.value.code is Code.INVALID_POLICY
    assert "policies" in refused.value.message
    told = [(detail.source.rpartition("/")[2], detail.text) for detail in refused.value.details]
    assert [place for place, _ in told] == ["a.yaml:3:1", "a.yaml:5:1", "a.yaml:8:1", "none"]
    assert "policy" in told[0][1]


def test_where_a_part_stands_is_known(tmp_path: Path):
    file = tmp_path / "a.yaml"
    file.write_text("name: x\nfields:\n  a:\n    b: 5\n")
    place = read_files(KIND, [file]).place
    assert [place("x", at) for at in ("/fields/a/b", "/fields/a/b/c", "name", "/other")] == [
        f"{file}:4:5",
        f"{file}:4:5",
        f"{file}:1:1",
        f"{file}:1:1",
    ]


def test_plurals():
    assert (plural("policy"), plural("schema")) == ("policies", "schemas")
