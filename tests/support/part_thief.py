"""A thief of the database: without a key, but with a public list of how common each text is.

The thief has of each row the keyed hash of its value and its entries in the index of parts, guesses
texts of frequent hashes by their number, learns from rows that are sure where their grams stand,
and from that the others, until nothing moves any more.
"""

import math
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from proxy.vault.part_index import grams

_STEMS = (
    "ander johan karl nils erik lars olof per svens gustaf petter jons jans hans bengt lind berg "
    "sand sjö sund ek holm fors dahl hög ny norr öst väst söder björk gran ceder alm asp hassel "
    "ros blom lilje kron silver guld sten ström wall hed skog malm rönn löv äng mo vik ås land"
).split()
_TAILS = (
    "sson berg ström lund gren qvist man dahl ell in én stedt vall mark holm strand blad fors bäck "
    "sten gård hammar kvist"
).split()
_ROUNDS = 8


class Stolen(NamedTuple):
    """Rows with one value: how many there are, and their entries."""

    rows: int
    entries: frozenset[bytes]


def common_names(count: int, chance: random.Random) -> dict[str, float]:
    """Family names by their share: the second is half as common as the first, the third a third."""
    names = chance.sample([stem + tail for stem in _STEMS for tail in _TAILS], count)
    whole = sum(1 / place for place in range(1, count + 1))
    return {name: 1 / place / whole for place, name in enumerate(names, 1)}


def guesses(
    stolen: Sequence[Stolen], public: dict[str, float], size: Callable[[str], int]
) -> list[str]:
    """The name that the thief takes each value to be; ``size``: how many entries a name has."""
    thief = _Thief(stolen, public, size)
    for turn in range(_ROUNDS):
        thief.learn(sure=max(0.5, 0.95 - 0.03 * turn))
    return [max(names, key=names.__getitem__) for names in thief.beliefs]


class _Thief:
    def __init__(
        self, stolen: Sequence[Stolen], public: dict[str, float], size: Callable[[str], int]
    ) -> None:
        self.stolen = stolen
        self.parts = {name: sorted(grams(name)) for name in public}
        rows = sum(one.rows for one in stolen)
        sizes = {name: size(name) for name in public}
        self.priors = [
            {
                name: one.rows * math.log(rows * share) - rows * share - math.lgamma(one.rows + 1)
                for name, share in public.items()
                if sizes[name] == len(one.entries)
            }
            for one in stolen
        ]
        self.beliefs = _settled(self.priors)
        self.group = _groups(stolen)

    def learn(self, sure: float) -> None:
        """Where the grams of sure names stand, and so which names the others are."""
        seen: dict[int, dict[str, list[tuple[int, float]]]] = defaultdict(lambda: defaultdict(list))
        for at, names in enumerate(self.beliefs):
            name = max(names, key=names.__getitem__)
            if names[name] > sure:
                for gram in self.parts[name]:
                    seen[self.group[at]][gram].append((at, min(names[name], 0.999)))
        sizes = {group: set[bytes]() for group in self.group}
        for at, one in enumerate(self.stolen):
            sizes[self.group[at]] |= one.entries
        scores: list[dict[str, float]] = []
        places = {
            group: {gram: self._places(found, len(sizes[group])) for gram, found in by_gram.items()}
            for group, by_gram in seen.items()
        }
        for at, prior in enumerate(self.priors):
            known, entries = places.get(self.group[at], {}), self.stolen[at].entries
            share = len(entries) / len(sizes[self.group[at]])
            told = {
                gram: math.log(
                    (
                        0.999 * sum(weights[one] for one in entries & weights.keys())
                        + 0.999 * rest * len(entries - weights.keys())
                        + 0.001 * share
                    )
                    / share
                )
                for gram, (weights, rest) in known.items()
            }
            scores.append(
                {
                    name: score + sum(told.get(gram, 0.0) for gram in self.parts[name])
                    for name, score in prior.items()
                }
            )
        self.beliefs = _settled(scores)

    def _places(
        self, found: Sequence[tuple[int, float]], size: int
    ) -> tuple[dict[bytes, float], float]:
        """How likely each entry is that of a gram, given who has it; and each that nobody has."""
        odds: dict[bytes, float] = defaultdict(float)
        for at, belief in found:
            entries = self.stolen[at].entries
            share = len(entries) / size
            inside = math.log(belief + (1 - belief) * share + 0.001) - math.log(share + 0.001)
            outside = math.log((1 - belief) * (1 - share) + 0.001) - math.log(1 - share + 0.001)
            for entry in entries:
                odds[entry] += inside - outside
        top = max(odds.values())
        weights = {entry: math.exp(value - top) for entry, value in odds.items()}
        rest = math.exp(-top)
        whole = sum(weights.values()) + rest * (size - len(weights))
        return {entry: value / whole for entry, value in weights.items()}, rest / whole


def _groups(stolen: Sequence[Stolen]) -> list[int]:
    """Rows that have entries in common, over whatever others, are of one group."""
    group: dict[bytes, int] = {}
    members: dict[int, set[bytes]] = {}
    for number, one in enumerate(stolen):
        members[number] = set(one.entries)
        for other in {group[entry] for entry in one.entries if entry in group}:
            members[number] |= members.pop(other)
        group.update(dict.fromkeys(members[number], number))
    return [group[next(iter(one.entries))] for one in stolen]


def _settled(scores: Sequence[dict[str, float]]) -> list[dict[str, float]]:
    """Beliefs of scores: what is likely for a value, and no name for two of them."""
    beliefs: list[dict[str, float]] = []
    for names in scores:
        top = max(names.values())
        likely = {name: math.exp(score - top) for name, score in names.items() if score > top - 12}
        whole = sum(likely.values())
        beliefs.append({name: value / whole for name, value in likely.items()})
    for _ in range(8):
        total: dict[str, float] = defaultdict(float)
        for names in beliefs:
            for name, value in names.items():
                total[name] += value
        for at, names in enumerate(beliefs):
            scaled = {name: value / max(1.0, total[name]) for name, value in names.items()}
            whole = sum(scaled.values())
            beliefs[at] = {name: value / whole for name, value in scaled.items()}
    return beliefs
