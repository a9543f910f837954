"""How much is tried of what never ends: a fixed share in every run, many times that at night.

Every run draws the same examples, so that a change is judged by what it changed and not by the
draw. ``make explore`` (``EXPLORE=20``) draws new ones, that many times as many, and kills as many
more processes.
"""

import os

from hypothesis import settings

#: How many times the usual share is tried; 0 is the usual share with the usual examples.
EXPLORE = int(os.environ.get("EXPLORE") or 0)
#: Whether guides are tried whose applications take minutes to install (``make guides``).
HEAVY = bool(os.environ.get("HEAVY"))


def rounds(usual: int) -> int:
    """Rounds of a test that goes on at random."""
    return usual * max(1, EXPLORE)


def examples(most: int) -> settings:
    """Examples of a law: so many times ``EXPLORE``, half of them where every run draws the same."""
    return settings(max_examples=most * EXPLORE if EXPLORE else max(10, most // 2))
