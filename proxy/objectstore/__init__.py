"""Sealed attachments in, sealed attachments out: the places that keep them, behind the port ``base.ObjectStore``.

Why it exists: files of many megabytes do not belong into a database. The promises (visible whole or not at all, durable
before it returns) are made once, in ``base``, and kept by any backend. A backend is not trusted with content: what it
gets was sealed in chunks above, and the names of objects are random.

What it may touch: its own folder or connection. It answers with ``VaultError`` (FILES_UNAVAILABLE) and ``NoObject``.

- ``base`` is the port; ``memory`` the reference, as plainly as it can be said.
- ``folder`` is the embedded backend: a folder on a local disk, worked on by ``threads``.

A further backend is a file here and a line in ``BACKENDS``; the conformance suite then runs over it.
"""

from collections.abc import Awaitable, Callable

from proxy.errors import Code, VaultError
from proxy.objectstore.base import ObjectStore
from proxy.objectstore.files import open_folder
from proxy.objectstore.memory import open_memory_objects

#: Scheme of the setting ``files``: what opens it, given what follows ``scheme://``.
#: ``memory:`` keeps nothing beyond the process; it is for tests and for the trials of rule files.
BACKENDS: dict[str, Callable[[str], Awaitable[ObjectStore]]] = {
    "file": open_folder,
    "memory": open_memory_objects,
}


async def open_objects(uri: str) -> ObjectStore:
    """Open the place of that address: ``file:///folder/files``; the folder is made where it is missing.

    Raises ``VaultError``: ``BAD_SETTINGS`` for a scheme that no backend has; otherwise what the backend says.
    """
    scheme, _, place = uri.partition(":")
    backend = BACKENDS.get(scheme)
    if backend is None:
        raise VaultError(
            Code.BAD_SETTINGS,
            f"The setting files begins with {scheme!r}, which no backend has; there are: {', '.join(BACKENDS)}.",
        )
    return await backend(place.removeprefix("//"))
