"""What a thief of the database learns of names, without a key: by equality, and by the index of
parts beside it.
"""

import random
from collections import Counter
from functools import cache

import pytest

from proxy.crypto.prf import hasher
from proxy.vault.part_index import FinePartIndex, PartIndex
from tests.support.part_thief import Stolen, common_names, guesses

ROWS, NAMES = 1_200, 300

Index = PartIndex | FinePartIndex


@cache
def people(seed: int) -> tuple[dict[str, float], Counter[str]]:
    chance = random.Random(seed)
    public = common_names(NAMES, chance)
    rows = chance.choices(list(public), list(public.values()), k=ROWS)
    return public, Counter(rows)


def determined(seed: int, index: Index | None) -> float:
    """The share of rows whose name the thief guesses right; without an index by equality alone."""
    public, rows = people(seed)

    def entries(name: str) -> frozenset[bytes]:
        return frozenset((b"",)) if index is None else frozenset(index.entries(name))

    stolen = [Stolen(count, entries(name)) for name, count in rows.items()]
    taken = guesses(stolen, public, lambda name: len(entries(name)))
    right = zip(rows, taken, strict=True)
    return sum(rows[name] for name, guess in right if name == guess) / ROWS


@pytest.mark.slow
def test_the_index_of_parts_tells_a_thief_hardly_more_of_names_than_equality_does() -> None:
    equality, shared, fine = (
        determined(1, index)
        for index in (None, PartIndex(hasher(b"k" * 32), 4096), FinePartIndex(hasher(b"k" * 32)))
    )
    print(f"equality {equality:.3f}, shared {shared:.3f}, fine {fine:.3f}")
    assert fine > 0.9  # the attack is one: the index of earlier versions told nearly all
    assert shared < equality + 0.05
    assert equality < 0.6
