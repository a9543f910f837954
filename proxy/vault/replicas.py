"""Changes that the replicas make together: each agrees to what it knows (``Replicas.agree``),
and whoever changes something waits for all before it acts by that.
"""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

from proxy.errors import Code, VaultError
from proxy.storage.base import Store
from proxy.storage.notes import Agreement

#: What is agreed to, and the task that does.
Agreeing = tuple[Agreement, asyncio.Task[None]]

#: Seconds between two looks whether this replica is alone.
_PAUSE: Final = 5.0


async def is_alone(store: Store) -> bool:
    """Whether no other replica is there. Raises the errors of the store."""
    return store.replicas is None or await store.replicas.alone() is not None


#: Seconds that the other replicas may take to follow a change, and between two looks.
AGREED_WITHIN = 30.0
BETWEEN_LOOKS = 0.05


def agreement_on(name: str, content: bytes | None) -> Agreement:
    """The proposal to act by what a note says; its number, of 62 bits, is that of no other content,
    and never 0.
    """
    digest = hashlib.blake2b(content or b"", digest_size=8).digest()
    return Agreement(name, int.from_bytes(digest, "big") >> 2 or 1)


def agreeing(
    running: Agreeing | None, agreement: Agreement, agree: Callable[[], Coroutine[Any, Any, None]]
) -> Agreeing:
    """The task that agrees to that in the background: the running one, or one in its place."""
    if running is not None:
        before, task = running
        if before == agreement and not task.done():
            return running
        task.cancel()
    return agreement, asyncio.create_task(agree())


async def until_agreed(
    store: Store,
    agree: Callable[[], Awaitable[Agreement]],
    patience: float = AGREED_WITHIN,
    pause: float = BETWEEN_LOOKS,
) -> Agreement | None:
    """Wait until every replica has agreed to the same as this one does by ``agree``,
    which is called again and again: what two replicas wait for may be each other. Return what
    they have agreed to; ``None``: there are no others.

    Raises ``VaultError(REPLICAS_RUNNING)``, which names those that have not in time.
    """
    if store.replicas is None:
        return None
    until = time.monotonic() + patience
    while blockers := await store.replicas.disagreeing(agreement := await agree()):
        if time.monotonic() > until:
            raise VaultError(
                Code.REPLICAS_RUNNING,
                f"Nothing was changed, for not every instance follows the change after "
                f"{patience:.0f} seconds: {', '.join(blockers)}. "
                "Upgrade, repair or stop it.",
            )
        await asyncio.sleep(pause)
    return agreement


async def removed_by_all(
    store: Store,
    agree: Callable[[], Awaitable[Agreement]],
    remove: Callable[[Agreement | None], Awaitable[None]],
    patience: float,
) -> None:
    """Remove what every replica has agreed to use no more; anew where something has changed, or one
    has joined, between the last agreement and the removal.

    Raises as ``until_agreed`` and ``remove``.
    """
    until = time.monotonic() + patience
    while True:
        agreement = await until_agreed(store, agree, until - time.monotonic())
        try:
            return await remove(agreement)
        except VaultError as error:
            passing = error.code in (Code.CONFLICT, Code.REPLICAS_RUNNING)
            if agreement is None or not passing or time.monotonic() > until:
                raise


async def until_alone(store: Store, pause: float = _PAUSE) -> None:
    """Wait until no other replica is there. Raises the errors of the store."""
    while not await is_alone(store):  # noqa: ASYNC110  # others end
        await asyncio.sleep(pause)


@asynccontextmanager
async def taking_turns(store: Store, name: str, pause: float = 1.0) -> AsyncIterator[None]:
    """Do something as the only replica that does; another one goes on after a death."""
    names = (name.encode(),)
    if store.replicas is not None:
        while not await store.replicas.lock(names, wait=False):  # noqa: ASYNC110  # another process ends
            await asyncio.sleep(pause)
    try:
        yield
    finally:
        if store.replicas is not None:
            store.replicas.unlock(names)


@contextmanager
def conflict_ignored() -> Iterator[None]:
    """Go on after the block where another replica has changed the same note first."""
    try:
        yield
    except VaultError as error:
        if error.code is not Code.CONFLICT:
            raise
