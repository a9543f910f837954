"""Commit of every write over the vault's interface, with the changes its caller adds.

A use case computes its changes from its reads and tries to commit them. If a precondition no longer
holds it reads again (``attempt``). Changes of its caller (``ExtraChanges``) are in the same
transaction, so that a repeatable answer is stored exactly if the write is.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager

from proxy.errors import Code, VaultError
from proxy.model.record import Record
from proxy.storage.changes import Change, Conflict, Remember
from proxy.storage.rows import Row
from proxy.vault.erasure import hosts_others
from proxy.vault.records.repository import Records
from proxy.vault.seal import Tampered

#: Further changes for the commit of a write, given its result.
ExtraChanges = Callable[[Sequence[Record]], Sequence[Change]]

#: How often a write that others overtook is tried again.
COMMIT_TRIES = 8


def no_changes(_result: Sequence[object]) -> Sequence[Change]:
    """A closing that adds nothing."""
    return ()


def refuse_of_rules(records: Records, keys: Iterable[str | None] = ()) -> None:
    """Raise ``VaultError(SCHEMA_OF_RULES)`` where only the application behind the proxy makes and
    changes records.

    These are all records of a schema that the proxy collects, and among those of the program's own
    schema the ones that tell by their keys that it has collected them.
    """
    if records.primary is None:
        raise VaultError(
            Code.SCHEMA_OF_RULES,
            f"Records of {records.name!r} are written by the application behind the proxy alone; "
            "here they can be found, corrected one by one (PATCH), deleted, and given attachments.",
        )
    if records.shared and any(map(records.collects, keys)):
        raise VaultError(
            Code.SCHEMA_OF_RULES,
            "Records whose keys begin with rules: are written by the application behind the "
            "proxy alone; here they can be "
            "found, copied, deleted, and given attachments. Nothing was changed.",
        )


async def attempt(records: Records, changes: Sequence[Change]) -> bool:
    """Commit; ``False`` when something that these changes build on has changed, and the whole is to
    be tried again.

    Raises ``VaultError(IDEMPOTENCY_CHECK_FAILED)`` when the answer has been given already, by
    another process.
    """
    try:
        await records.collection.store.commit(records.collection.table, changes)
    except Conflict as conflict:
        if isinstance(conflict.change, Remember):
            raise repeated() from None
        return False
    return True


async def check_end(records: Records, row: Row) -> None:
    """Raise ``Tampered`` unless its columns let a row end; reports as ``erasure.may_end``."""
    opens = True
    try:
        records.open(row)
    except VaultError as error:
        if error.code is not Code.CANNOT_OPEN or isinstance(error, Tampered):
            raise
        opens = False
    if await hosts_others(records.collection, row):
        tampered = records.tampered()
        if not opens:
            raise tampered


def locked(records: Records, keys: Iterable[bytes]) -> AbstractAsyncContextManager[None]:
    """Nobody else changes records of these key hashes, by the interface or the proxy."""
    return records.collection.state.locks.hold(keys)


def repeated() -> VaultError:
    """The error when another process or a repetition has stored the answer meanwhile."""
    return VaultError(
        Code.IDEMPOTENCY_CHECK_FAILED,
        "The request under this idempotency key has been carried out meanwhile.",
    )


def overtaken(records: Records) -> VaultError:
    """The error of a write that found its records changed each time it was tried."""
    return VaultError(
        Code.CONFLICT,
        f"The records of {records.name!r} kept changing while they were being written; send it "
        "again.",
    )
