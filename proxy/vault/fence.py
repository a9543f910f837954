"""Keeps bytes of data keys that are about to go, or are gone, out of the store.

Somebody may have read a body before it was sealed anew, and write it only now: as a past version, or in place of what was sealed
anew. While everything is looked through, such a commit is noticed (``watch``), so that what was found is known not to be the
whole truth. Once a key is gone it is refused (``refuse``) as a conflict like any other: whoever meets it reads again, and then has
what is sealed with the key of now.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from proxy.crypto.aead import HEAD_BYTES, head_of
from proxy.storage.base import Store
from proxy.storage.changes import (
    Amend,
    Attach,
    Bind,
    Change,
    Conflict,
    Inscribe,
    Insert,
    Recast,
    Remember,
    Replace,
    Stage,
)
from proxy.vault.seal import SALT_BYTES


class Fence:
    """The guard of one store. Ids of keys are those of all its environments: they are drawn at random."""

    def __init__(self) -> None:
        self._watched: frozenset[bytes] = frozenset()
        self._refused: frozenset[bytes] = frozenset()
        self._seen: set[bytes] = set()

    def __call__(self, changes: Sequence[Change]) -> None:
        """Look at a commit. Raises ``Conflict`` for one that brings what a refused key has sealed."""
        if not self._watched and not self._refused:
            return
        for change in changes:
            heads = _heads(change)
            if not self._refused.isdisjoint(heads):
                raise Conflict(change)
            self._seen |= self._watched.intersection(heads)

    def watch(self, keys: Iterable[str]) -> None:
        """Notice from now on what comes that one of these data keys has sealed."""
        heads = frozenset(map(head_of, keys))
        self._watched |= heads
        self._seen -= heads

    def seen(self, key: str) -> bool:
        """Whether anything came since ``watch`` that the data key has sealed."""
        return head_of(key) in self._seen

    def ease(self, keys: Iterable[str]) -> None:
        """End ``watch``."""
        self._watched -= frozenset(map(head_of, keys))

    def refuse(self, keys: Iterable[str]) -> None:
        """Refuse what any of these data keys has sealed, as long as the process runs."""
        self._refused |= frozenset(map(head_of, keys))


def fence_of(store: Store) -> Fence:
    """The fence of a store; made with the first call, so that a store where no key was ever replaced has nothing to look at."""
    if not isinstance(store.guard, Fence):
        store.guard = Fence()
    return store.guard


_SEALED: dict[type[Any], Callable[[Any], Collection[bytes | None]]] = {
    Insert: lambda change: (change.row.body, change.row.key_sealed),
    Replace: lambda change: (change.row.body,),
    Bind: lambda change: (change.key_sealed,),
    Stage: lambda change: (change.staged.body,),
    Inscribe: lambda change: (change.past.body,),
    Attach: lambda change: (change.file.sealed,),
    Amend: lambda change: (change.file.sealed,),
    Remember: lambda change: (change.reply.sealed[SALT_BYTES:],),
    Recast: lambda change: change.after,
}


def _heads(change: Change) -> list[bytes]:
    sealed = _SEALED.get(type(change))
    return [one[:HEAD_BYTES] for one in sealed(change) if one] if sealed is not None else []
