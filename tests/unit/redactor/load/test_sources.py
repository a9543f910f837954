from pathlib import Path

import pytest

from proxy.redactor.load.sources import (
    MOST_REFERENCE_BYTES,
    RuleSource,
    decode_rule_text,
    files_named,
    fingerprint,
    read_sources,
    resolve_references,
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


def test_variables_and_files_take_the_place_of_their_references(tmp_path):
    (tmp_path / "secret").write_text("from file\n")
    assert (
        resolve_references("a ${env:X} b ${file:secret} c", tmp_path, {"X": "from env"})
        == "a from env b from file c"
    )
    assert resolve_references(f"${{file:{tmp_path}/secret}}", Path("/nowhere"), {}) == "from file"
    assert resolve_references("plain $HOME {x}", tmp_path, {}) == "plain $HOME {x}"


def test_what_a_reference_brings_is_not_read_as_a_reference_again(tmp_path):
    assert resolve_references("${env:X}", tmp_path, {"X": "${env:Y}"}) == "${env:Y}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("${env:GONE}", "GONE is not set"),
        ("${env:}", "write"),
        ("${file:}", "write"),
        ("${HOME}", "write"),
        ("${file:gone}", "gone cannot be read"),
        ("${file:long}", "longer than"),
        ("${file:binary}", "not UTF-8"),
    ],
)
def test_what_cannot_be_resolved_is_refused_by_the_name_of_the_reference(tmp_path, text, words):
    (tmp_path / "long").write_bytes(b"x" * (MOST_REFERENCE_BYTES + 1))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=words):
        resolve_references(text, tmp_path, {})


def test_the_files_that_references_name_are_told(tmp_path):
    assert files_named("${file:a} ${env:b} ${file:/c/d}", tmp_path) == [
        tmp_path / "a",
        Path("/c/d"),
    ]
