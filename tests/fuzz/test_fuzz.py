"""Each target over its corpus, over changed pieces of it, and over anything."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.seeds import changed, corpus
from tests.fuzz.targets import TARGETS
from tests.support.effort import examples
from tests.support.tree import ROOT


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_holds(name: str) -> None:
    texts = corpus(name)
    assert len(texts) >= 5
    for text in texts:
        TARGETS[name](text)


@pytest.mark.parametrize("name", TARGETS)
def test_changed_pieces_of_the_corpus_hold(name: str) -> None:
    texts = corpus(name)

    @examples(400)
    @given(st.integers(0, 2**32))
    def run(seed: int) -> None:
        TARGETS[name](changed(texts, random.Random(seed)))  # nothing secret

    run()


@pytest.mark.parametrize("name", TARGETS)
def test_anything_holds(name: str) -> None:
    @examples(200)
    @given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
    def run(data: bytes) -> None:
        TARGETS[name](data)

    run()


def test_every_folder_of_the_corpus_belongs_to_a_target_and_is_small() -> None:
    folders = [path for path in (ROOT / "tests/fuzz/corpus").iterdir() if path.is_dir()]
    assert {folder.name for folder in folders} == set(TARGETS)
    files: list[Path] = [path for folder in folders for path in folder.iterdir()]
    assert sum(path.stat().st_size for path in files) < 100_000
