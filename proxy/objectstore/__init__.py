"""Sealed attachments in and out: object stores behind the port ``base.ObjectStore``.

An object is visible whole or not at all, and durable before a write returns. A backend is not
trusted with content: it gets what was sealed above, under random names. It may touch its own folder
or connection, and answers with ``VaultError`` and ``NoObject``. A further backend is a file here
and a line in ``BACKENDS``; the conformance suite then runs over it.
"""

from collections.abc import Awaitable, Callable

from proxy.errors import Code, VaultError
from proxy.objectstore.base import ObjectStore
from proxy.objectstore.files import open_folder
from proxy.objectstore.memory import open_memory_objects
from proxy.objectstore.s3 import open_bucket

#: Scheme of the setting ``files``: what opens it, given what follows ``scheme://``.
#: ``memory:`` keeps nothing beyond the process; it is for tests and for the trials of rule files.
BACKENDS: dict[str, Callable[[str], Awaitable[ObjectStore]]] = {
    "file": open_folder,
    "memory": open_memory_objects,
    "s3": open_bucket,
}


async def open_objects(uri: str) -> ObjectStore:
    """Open the place of that address: ``file:///folder/files``, which is made where it is missing,
    or ``s3://bucket/prefix``.

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
    return await backend(location.removeprefix("//"))
