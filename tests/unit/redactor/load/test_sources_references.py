from pathlib import Path

import pytest

from proxy.redactor.load.sources import MOST_REFERENCE_BYTES, files_named, resolve_references


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
