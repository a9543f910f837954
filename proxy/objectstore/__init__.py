"""Sealed attachments in and out: object stores behind the port ``base.ObjectStore``.

An object is visible whole or not at all, and durable before a write returns. A backend is not
trusted: it gets sealed content under random names. It may touch its own folder or connection, and
raises ``VaultError`` and ``NoObject``. A further backend is a file here and a line in ``BACKENDS``;
the conformance suite then runs over it. Face: what stands here and ``base``; ``bucket_path`` reads
a bucket's address.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from proxy.errors import Code, VaultError
from proxy.objectstore.base import SHARDS, NoObject, ObjectStore, OpenObject
from proxy.objectstore.files import open_folder


async def _open_bucket(location: str, own: bool, shared: bool) -> ObjectStore:
    from proxy.objectstore.s3 import open_bucket  # most keep theirs in a folder

    return await open_bucket(location, own, shared)


#: Openers by scheme of the setting ``files``. Arguments: the text after ``scheme://``, whether this
#: process owns the store, and whether others own it, too.
BACKENDS: dict[str, Callable[[str, bool, bool], Awaitable[ObjectStore]]] = {
    "file": open_folder,
    "s3": _open_bucket,
}

#: Shards that are copied at the same moment, and bytes of a piece of an object.
_TOGETHER, _PIECE = 8, 1 << 20
_EVER = 1 << 62


async def open_objects(uri: str, *, own: bool = True, shared: bool = False) -> ObjectStore:
    """Open the place of that address: ``file:///folder/files``, which is made where it is missing,
    or ``s3://bucket/prefix``. Without ``own`` it may be another process's, and is only read;
    ``shared``: other replicas own it, too.

    Raises ``VaultError``: ``BAD_SETTINGS`` for an unknown scheme; otherwise the errors of the
    backend.
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
    """Copy the objects that the target lacks; return their number.

    No other process writes to the target. ``progress`` gets the bytes of each.

    An object deleted during the copy is left out; a running instance removes extra ones.
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

    await target.clear(_EVER)  # leftovers of a killed copy, under the same names

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
