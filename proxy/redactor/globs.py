"""Name patterns with ``*``: parameters and form members such as ``email_*`` or ``filter[*][email]``.

Only ``*`` is special and stands for any characters, none included; brackets are ordinary characters, because
frameworks write nested names with them.
"""

import re
from functools import lru_cache


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern as a regular expression for ``fullmatch``; at most 1024 patterns are kept.

    Each part is taken where it stands first, for good (an atomic group): what a later place would match, the first one does. So the
    time grows with the name, however many ``*`` there are.
    """
    first, *others = (re.escape(part) for part in pattern.split("*"))
    between = "".join(f"(?>.*?{part})" for part in others[:-1] if part)
    return re.compile(first + between + "".join(f".*{last}" for last in others[-1:]), re.DOTALL)


def weight(pattern: str) -> tuple[bool, int]:
    """How specific a name or pattern is: a plain name beats every pattern, the longer pattern a shorter."""
    return ("*" not in pattern, len(pattern) if "*" in pattern else 0)


def overlap(one: str, other: str) -> bool:
    """Whether some name fits both patterns."""
    if "*" not in one:
        return compiled(other).fullmatch(one) is not None
    if "*" not in other:
        return compiled(one).fullmatch(other) is not None
    # What stands between the first and the last * of each fits behind one another, so the ends alone decide.
    heads = one.partition("*")[0], other.partition("*")[0]
    tails = one.rpartition("*")[2], other.rpartition("*")[2]
    begins = heads[0].startswith(heads[1]) or heads[1].startswith(heads[0])
    return begins and (tails[0].endswith(tails[1]) or tails[1].endswith(tails[0]))
