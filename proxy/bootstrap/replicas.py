"""Replicas that share a vault (``replicas=true``): reload what another one has changed.

Workers of one service (``serve --workers``) also answer together, whichever of them is asked:
metrics, readiness, and reloads. What an instance trusts without having made it, the notes of its
store and the clock of its machine, is compared now and then.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from proxy.admin.app import ReadinessCheck
from proxy.api.context import Services
from proxy.auth.authorization_server import AuthorizationServer
from proxy.clock import Clock
from proxy.config import Worker
from proxy.errors import Code, VaultError
from proxy.net.sockets import local_socket
from proxy.storage.base import Replicas, Store
from proxy.telemetry import logs
from proxy.telemetry.reloads import Reload

_log = logs.logger("bootstrap")

#: Reads a note again, given the part and the environment of its name.
Reader = Callable[[str, str], Awaitable[None]]
#: Seconds until a failed reload of another replica's change is repeated.
_RETRY: Final = 0.2
#: What ``/readyz`` says; the log names the notes.
_NOTES_CHANGED: Final = (
    "Notes of the store were changed, rolled back, added or removed by another program; the "
    "previous ones stay active."
)
#: Milliseconds by which a clock may be behind without a word: those that NTP takes off at once.
_SET_BACK: Final = 1000


class Followed(Protocol):
    """The environments of an instance, with their schemas."""

    @property
    def followed(self) -> Collection[str]:
        """Kinds of notes."""

    async def follow(self, kind: str, part: str, environment: str) -> None:
        """Take what another replica has changed in such a note."""


#: What reads honeytokens again, and the keys of an environment; and the environments.
FollowedParts = tuple[Callable[[], Awaitable[None]], Callable[[str], Awaitable[None]], Followed]


def _readers(
    auth: AuthorizationServer, services: Services, parts: FollowedParts
) -> Mapping[str, Reader]:
    """Return the function that reloads each kind of note that another replica may write.

    Other kinds cannot change while this one runs (``storage.postgres.replicas``).
    """
    honeytokens, keys, environments = parts

    async def clients(part: str, environment: str) -> None:
        await auth.clients.read_again(environment, int(part))

    async def policies(_part: str, environment: str) -> None:
        if (space := services.spaces.get(environment)) is not None:  # else it is read when opened
            await space.policies.read_again()

    async def signing(_part: str, _environment: str) -> None:
        await auth.keys.read_again()

    async def approvals(_part: str, _environment: str) -> None:
        if services.approvals is not None:
            await services.approvals.read_again()

    async def baits(_part: str, _environment: str) -> None:
        await honeytokens()

    async def keyset(_part: str, environment: str) -> None:
        await keys(environment)

    return {
        **{kind: partial(environments.follow, kind) for kind in environments.followed},
        "clients": clients, "policies": policies, "signing": signing, "approvals": approvals,
        "baits": baits, "keyset": keyset, "next keyset": keyset,
    }  # fmt: skip


class Follower:
    """Follows the notes of a store whose other replicas are ``replicas``."""

    def __init__(self, store: Store, replicas: Replicas, read: Mapping[str, Reader]) -> None:
        self._store = store
        self._replicas = replicas
        self._read = read
        self._counter = 0  #: of the root that was read last
        self._digests: dict[str, bytes] = {}  #: digests of the loaded notes, by name

    async def run(self) -> None:
        """Reload changes of other replicas, for ever."""
        while True:
            await self._replicas.changed()
            try:
                await self.catch_up()
            except VaultError as error:
                _log.error(
                    "another replica's change could not be loaded and will be retried", fault=error
                )
                await asyncio.sleep(_RETRY)

    async def catch_up(self) -> None:
        """Read everything that is another than was known.

        Raises the first ``VaultError`` after that: what cannot be read holds nothing else up.
        """
        digests = dict(await self._store.refresh())
        counter = 0 if self._store.root is None else self._store.root.state.counter
        errors: list[VaultError] = []
        for name in sorted(digests.keys() | self._digests.keys()):
            if digests.get(name) == self._digests.get(name):
                continue
            kind, _, environment = name.partition(":")
            kind, _, part = kind.partition("/")
            if (read := self._read.get(kind)) is not None:
                try:
                    await read(part, environment)
                except VaultError as error:
                    errors.append(error)
                    continue
            if name in digests:
                self._digests[name] = digests[name]
            else:
                del self._digests[name]
        if errors:
            raise errors[0]
        if counter > self._counter:
            self._counter = counter
            await self._replicas.heard(counter)


async def follow(
    store: Store, auth: AuthorizationServer, services: Services, parts: FollowedParts
) -> list[Coroutine[Any, Any, None]]:
    """Return the background tasks of a replica; none if no other instance shares the store.

    Reads everything once more first: others may have changed it since the start.
    """
    if store.replicas is None:
        return []
    follower = Follower(store, store.replicas, _readers(auth, services, parts))
    await follower.catch_up()
    return [follower.run()]


async def announce_start(store: Store) -> None:
    """Let the next instance start, which has to wait for this one."""
    if store.replicas is not None:
        await store.replicas.ready()


# The workers of one service. Each answers the others at a Unix socket in a folder that their user
# alone may enter: a line with a word in, a text out.

#: Seconds that another worker may take; files that it loads again are read by then.
_PATIENCE: Final = 10.0
#: The beginning of a sample: its name, and whether labels follow.
_SAMPLE: Final = re.compile(rb"^([A-Za-z_:][A-Za-z0-9_:]*)(\{|(?= ))", re.MULTILINE)

#: By name, the reason of a failed check or a stale part; ``None``: all is well.
Faults = dict[str, str | None]
_faults = msgspec.json.Decoder(Faults).decode


class Team:
    """One worker among the others."""

    def __init__(
        self,
        worker: Worker,
        metrics: Callable[[], bytes],
        checks: Mapping[str, ReadinessCheck],
        reload: Callable[[], Awaitable[Faults]],
    ) -> None:
        self._worker = worker
        self._metrics = metrics
        self._checks = checks
        self._reload = reload
        self._answers: Mapping[bytes, Callable[[], Awaitable[bytes]]] = {
            b"metrics\n": self._own_metrics,
            b"checks\n": self._own_checks,
            b"reload\n": self._own_reload,
        }

    @asynccontextmanager
    async def answering(self) -> AsyncIterator[None]:
        """Answer the others until the block ends."""
        path = self._worker.folder / str(self._worker.number)
        server = await asyncio.start_unix_server(self._answer, sock=local_socket(path))
        try:
            yield
        finally:
            server.close()
            path.unlink(missing_ok=True)

    async def metrics(self) -> bytes:
        """The metrics of all, each sample with the number of its worker."""
        texts = await self._ask(b"metrics\n")
        return merged_metrics({**texts, self._worker.number: self._metrics()})

    async def check(self) -> str | None:
        """For ``/readyz``: whether all have served, and those that serve are ready.

        A worker that is being restarted makes no instance unready: the others serve.
        """
        if not self._worker.all_served.exists():
            return "Not all workers serve yet."
        for number, text in sorted((await self._ask(b"checks\n")).items()):
            for name, fault in _faults(text).items():
                if fault is not None:
                    return f"Worker {number} is not ready ({name}): {fault}"
        return None

    async def reload(self) -> Faults:
        """Reload everything in all workers; return the parts that are stale in any."""
        others, own = await asyncio.gather(self._ask(b"reload\n"), self._reload())
        faults = dict(own)
        for number, text in sorted(others.items()):
            for name, fault in _faults(text).items():
                if fault is not None and faults.get(name) is None:
                    faults[name] = f"in worker {number}: {fault}"
        return faults

    async def _own_metrics(self) -> bytes:
        return self._metrics()

    async def _own_checks(self) -> bytes:
        return msgspec.json.encode({name: await check() for name, check in self._checks.items()})

    async def _own_reload(self) -> bytes:
        return msgspec.json.encode(await self._reload())

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if (answer := self._answers.get(await reader.readline())) is not None:
                writer.write(await answer())
                await writer.drain()
        except (ConnectionError, ValueError):
            _log.debug("another worker has asked and did not wait for the answer")
        finally:
            writer.close()

    async def _ask(self, word: bytes) -> dict[int, bytes]:
        """Ask the others: their answers by number; those that give none are left out."""
        own = str(self._worker.number)
        names = [
            path.name
            for path in self._worker.folder.iterdir()
            if path.name.isdecimal() and path.name != own
        ]
        answers = await asyncio.gather(*map(partial(self._answer_from, word), names))
        return {int(name): text for name, text in zip(names, answers, strict=True) if text}

    async def _answer_from(self, word: bytes, name: str) -> bytes:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                path = str(self._worker.folder / name)
                reader, writer = await asyncio.open_unix_connection(path)
                try:
                    writer.write(word)
                    return await reader.read()
                finally:
                    writer.close()
        return b""


def merged_metrics(texts: Mapping[int, bytes]) -> bytes:
    """Metrics of several workers as one text, each sample with the label ``worker``.

    Sums would fall when one of them ends, and look like a reset of all.
    """
    families: dict[bytes, list[bytes]] = {}
    for number, text in sorted(texts.items()):
        for family in text.split(b"# HELP ")[1:]:
            help_line, type_line, samples = family.split(b"\n", 2)
            labelled = _SAMPLE.sub(partial(_with_worker, number), samples)
            families.setdefault(b"%b\n%b\n" % (help_line, type_line), []).append(labelled)
    return b"".join(b"# HELP %b%b" % (head, b"".join(all_)) for head, all_ in families.items())


def _with_worker(number: int, sample: re.Match[bytes]) -> bytes:
    name, brace = sample.groups()
    label = b'{worker="%d"' % number
    return name + label + (b"," if brace else b"}")


# ---------------------------------------------------------------------- the store, and the clock


class ClockWatch:
    """Compares the clock of this machine with the database's, and with the instants of before.

    ``latest``: the newest instant that is written down, of the last line of the audit log. A fault
    is said and changes nothing: of two clocks the other one may be wrong.
    """

    def __init__(self, state: Reload, now: Clock, latest: int) -> None:
        self._state = state
        self._now = now
        self._latest = latest

    async def look(self, replicas: Replicas | None) -> None:
        """Compare once, and say what differs the first time."""
        error = None if replicas is None else await _other_time(replicas)
        if error is not None and error.code is not Code.BAD_SETTINGS:
            return  # the database is away, which others report
        first, now = await self._state.check() is None, self._now()
        self._latest = max(self._latest, now)
        if error is not None:
            if first:
                _log.warning("the clock differs from the database's", text=error.message)
        elif (behind := self._latest - now) > _SET_BACK:
            error = VaultError(
                Code.BAD_SETTINGS,
                f"The clock of this machine is {behind / 1000:.0f} s behind what it was: records "
                "and access tokens end so much later. Set it, and keep it by NTP.",
            )
            if first:
                _log.warning("the clock of this machine was set back", text=error.message)
        if error is None:
            self._state.succeeded()
        else:
            self._state.failed(error)


async def _other_time(replicas: Replicas) -> VaultError | None:
    try:
        await replicas.same_time()
    except VaultError as error:
        return error
    return None


async def watch_store(store: Store, notes: Reload, clock: ClockWatch, interval: float) -> None:
    """Compare every note with the root, and the clock, for ever.

    A fault is said and changes nothing: the loaded notes stay active.
    """
    while True:
        await _compare_notes(store, notes)
        await clock.look(store.replicas)
        await asyncio.sleep(interval)


async def _compare_notes(store: Store, state: Reload) -> None:
    try:
        faults = await store.check_notes()
    except VaultError as error:
        _log.error(
            "the notes of the store could not be compared with their root; it will be retried",
            fault=error,
        )
        return
    if faults:
        state.failed(VaultError(Code.CANNOT_OPEN, _NOTES_CHANGED))
    else:
        state.succeeded()
