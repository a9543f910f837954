from pathlib import Path

import pytest

from proxy.redactor.load.sources import (
    RuleSource,
    decode_rule_text,
    fingerprint,
    read_sources,
    rules_version,
)
from proxy.redactor.load.yaml_tree import RuleFaults
from tests.support.rules import messages


def names(path: Path) -> list[str]:
    return [Path(source.name).name for source in read_sources(path, RuleFaults())]


def test_a_folder_gives_its_yaml_files_in_order_and_leaves_dot_names_out(tmp_path):
    for name in ("b.yml", "a.yaml", ".hidden.yaml", "notes.txt", "a.yaml.bak"):
        (tmp_path / name).write_text("x")
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "c.yaml").write_text("x")
    (tmp_path / "folder.yaml").mkdir()
    assert names(tmp_path) == ["a.yaml", "b.yml"]
    assert names(tmp_path / "notes.txt") == ["notes.txt"]


def config_map(folder: Path, content: str, generation: str) -> None:
    """A config map as a kubelet mounts and renews it: one symbolic link swapped under all files."""
    data = folder / f"..{generation}"
    data.mkdir()
    (data / "rules.yaml").write_text(content)
    link = folder / "..new"
    link.symlink_to(data.name)
    link.replace(folder / "..data")
    if not (folder / "rules.yaml").is_symlink():
        (folder / "rules.yaml").symlink_to("..data/rules.yaml")


def test_a_config_map_is_read_through_its_links(tmp_path):
    config_map(tmp_path, "first", "one")
    assert [source.content for source in read_sources(tmp_path, RuleFaults())] == [b"first"]
    before = fingerprint(tmp_path)
    config_map(tmp_path, "second", "two")
    assert [source.content for source in read_sources(tmp_path, RuleFaults())] == [b"second"]
    assert fingerprint(tmp_path) != before


@pytest.mark.parametrize("make", [lambda path: path / "gone", lambda path: path])
def test_a_path_without_rules_is_a_fault(tmp_path, make):
    faults = RuleFaults()
    assert read_sources(make(tmp_path), faults) == []
    (told,) = messages(faults)
    assert told.startswith(f"{make(tmp_path)}: ")  # there is no line in it to point at


def test_a_dangling_link_and_a_file_too_long_are_faults(tmp_path, monkeypatch):
    monkeypatch.setattr("proxy.redactor.load.sources.MOST_RULE_BYTES", 3)
    (tmp_path / "a.yaml").symlink_to("gone")
    (tmp_path / "b.yaml").write_text("long")
    faults = RuleFaults()
    assert read_sources(tmp_path, faults) == []
    found = messages(faults)
    assert "cannot be read" in found[0]
    assert "longer than" in found[1]


def test_files_are_utf_8_with_or_without_a_mark():
    assert decode_rule_text(RuleSource("f", Path(), "\ufeffå".encode()), RuleFaults()) == "å"
    faults = RuleFaults()
    assert decode_rule_text(RuleSource("f", Path(), b"a\nb\xff"), faults) is None
    assert messages(faults) == ["f:2:2: not UTF-8; save the file as UTF-8"]


def test_the_version_follows_names_and_contents_only():
    one = [RuleSource("x/a.yaml", Path("x"), b"1"), RuleSource("x/b.yaml", Path("x"), b"2")]
    elsewhere = [RuleSource("y/b.yaml", Path("y"), b"2"), RuleSource("y/a.yaml", Path("y"), b"1")]
    assert rules_version(one) == rules_version(elsewhere)
    assert len(rules_version(one)) == 12
    assert rules_version(one) != rules_version(
        [RuleSource("x/a.yaml", Path("x"), b"12"), RuleSource("x/b.yaml", Path("x"), b"")]
    )
    assert rules_version(one) != rules_version(one[:1])


def test_the_fingerprint_tells_every_change(tmp_path):
    seen = [fingerprint(tmp_path), fingerprint(tmp_path / "gone")]

    def changed() -> None:
        now = fingerprint(tmp_path)
        assert now == fingerprint(tmp_path)
        assert now not in seen
        seen.append(now)

    (tmp_path / "a.yaml").write_text('upstream: "${file:url}"')
    changed()
    (tmp_path / "url").write_text("http://a")
    changed()
    (tmp_path / "url").write_text("http://b")
    changed()
    (tmp_path / "b.yaml").write_text("x")
    changed()
    (tmp_path / "b.yaml").rename(tmp_path / "c.yaml")
    changed()
    (tmp_path / "c.yaml").unlink()
    (tmp_path / "c.yaml").symlink_to("gone")
    changed()
    (tmp_path / "gone").write_text("x")
    changed()
    before = seen[-1]
    (tmp_path / "notes.txt").write_text("not a rule file")
    assert fingerprint(tmp_path) == before
