"""Sealed attachments in and out: object stores behind the port ``base.ObjectStore``.

An object is visible whole or not at all, and durable before a write returns. A backend is not
trusted with content: it gets what was sealed above, under random names. It may touch its own folder
or connection, and answers with ``VaultError`` and ``NoObject``. A further backend is a file here
and a line in ``BACKENDS``; the conformance suite then runs over it. Face: what stands here and
``base``; ``bucket_path`` reads a bucket's address.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from proxy.errors import Code, VaultError
from proxy.objectstore.base import SHARDS, NoObject, ObjectStore, OpenObject
from proxy.objectstore.files import open_folder
from proxy.objectstore.memory import open_memory_objects
from proxy.objectstore.s3 import open_bucket

#: Scheme of the setting ``files``: what opens it, given what follows ``scheme://``, and whether
#: this process is to own it, and whether together with others.
#: ``memory:`` keeps nothing beyond the process; it is for tests and for the trials of rule files.
BACKENDS: dict[str, Callable[[str, bool, bool], Awaitable[ObjectStore]]] = {
    "file": open_folder,
    "memory": open_memory_objects,
    "s3": open_bucket,
}

#: Shards that are copied at the same moment, and bytes of a piece of an object.
_TOGETHER, _PIECE = 8, 1 << 20
_EVER = 1 << 62


async def open_objects(uri: str, *, own: bool = True, shared: bool = False) -> ObjectStore:
    """Open the place of that address: ``file:///folder/files``, which is made where it is missing,
    or ``s3://bucket/prefix``. Without ``own`` it may be another process's, and is only read;
    ``shared``: other replicas own it, too.

    Raises ``VaultError``: ``BAD_SETTINGS`` for a scheme that no backend has; otherwise what the
    backend says.
    """
    scheme, _, location = uri.partition(":")
    backend = BACKENDS.get(scheme)
    if backend is None:
        raise VaultError(
            Code.BAD_SETTINGS,
            f"The setting files begins with {scheme!r}, which no backend has; there are: "
            f"{', '.join(BACKENDS)}.",
        )
    return await backend(location.removeprefix("//"), own, shared)


async def copy_objects(
    source: ObjectStore, target: ObjectStore, progress: Callable[[int], object]
) -> int:
    """Copy the objects that the target, which nobody else writes to, lacks; how many. ``progress``
    is told the bytes of each.

    One that goes meanwhile is left out; what the target has more of, a running instance removes.
    """

    async def copy(name: str) -> int:
        try:
            opened = await source.open(name)
        except NoObject:
            return 0
        try:
            progress(await target.put(name, _pieces(opened)))
        finally:
            opened.close()
        return 1

    await target.clear(_EVER)  # what a copy that was killed has begun, under the same names

    async def copy_shard(shard: str) -> int:
        if not (stored := await source.listed(shard)):
            return 0
        present = {one[:2] for one in await target.listed(shard)}
        return sum([await copy(one.name) for one in stored if one[:2] not in present])

    copied = 0
    for at in range(0, len(SHARDS), _TOGETHER):
        copied += sum(await asyncio.gather(*map(copy_shard, SHARDS[at : at + _TOGETHER])))
    return copied


async def _pieces(opened: OpenObject) -> AsyncIterator[tuple[bytes]]:
    for at in range(0, opened.size, _PIECE):
        yield (await opened.read(at, _PIECE),)
