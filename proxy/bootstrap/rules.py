"""The rules of the settings: loaded, tried by their own tests, refused where they do not fit.

The rules that fronts use stand in a note of the store (``RuleHistory``): rules come to an owner and
to its fronts one after the other, and an owner that starts anew meanwhile has read the new files
alone; it finds here what its fronts still have.
"""

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from proxy.admin.app import Console
from proxy.audit.services import no_audit
from proxy.bootstrap.network import redirected, upstream_routes
from proxy.bootstrap.open_vault import unobserved
from proxy.clock import Clock, system_clock
from proxy.config import Settings
from proxy.config.schema import SETTINGS
from proxy.crypto.keyset import Keyset
from proxy.errors import Code, Detail, VaultError, coded
from proxy.model.schema import records_schema
from proxy.net.coverage import Coverage
from proxy.net.coverage_report import CoverageReport, UnruledPath, joined_reports
from proxy.redactor.exchange.runtime import Runtime, bind_rules, refuse_unfit
from proxy.redactor.load import load_files, load_rule_set, no_rules
from proxy.redactor.load.rule_tests import Case, parse_case
from proxy.redactor.rules import BodyLimits, Endpoint, OnError, RuleSet, Unmatched
from proxy.redactor.views import CallerSource
from proxy.storage import open_store
from proxy.storage.base import Store
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.reloads import Reload
from proxy.vault.vault import VaultOptions, new_vault

_log = logs.logger("coverage")

#: Seconds between writings of what no rule names.
_WRITTEN: Final = 10.0

#: How often a rule file's own test is tried before it counts as failed.
TRIALS = 4


@dataclass(frozen=True, slots=True)
class Overrides:
    """Addresses that take the place of those in rule files: by endpoint name, or of the only
    application; and sockets that take the place of those that the settings name.
    """

    upstreams: Mapping[str, str]
    only: str = ""  #: without rule files, everything passes to it, and is reported
    #: listening ones that the process was started with: listener and file descriptor of each
    sockets: tuple[tuple[str, int], ...] = ()


def load_rules(settings: Settings, overrides: Overrides | None = None) -> RuleSet:
    """The rule set of the settings' folder or file, whole; empty where there is no rule file in the
    folder, or no default folder.

    Raises ``VaultError(BAD_RULES)`` with every fault.
    """
    return _fitted(rules_at(settings.rules), settings, overrides)


def load_earlier(
    settings: Settings, overrides: Overrides | None, files: Mapping[str, bytes]
) -> RuleSet:
    """The rule set of files that were there before; raises as ``load_rules``."""
    return _fitted(load_files(files), settings, overrides)


def _fitted(rules: RuleSet, settings: Settings, overrides: Overrides | None) -> RuleSet:
    _refuse_uncertified(settings, rules)
    if overrides is None:
        return rules
    if overrides.only:
        rules = _for_one(rules, overrides.only)
    return redirected(rules, overrides.upstreams)


def _refuse_uncertified(settings: Settings, rules: RuleSet) -> None:
    """Raise ``VaultError(BAD_SETTINGS)`` for roles in certificates that are never requested."""
    tls = settings.listen.tls
    if tls.secures("proxy") and tls.clients and tls.clients_at in ("proxy", "both"):
        return
    text = (
        "callers prove their roles by certificates (endpoint.caller): name who vouches for them, "
        "and set listen.tls.clients_at to proxy or both"
    )
    faults = tuple(
        Detail("listen.tls.clients", f"by the rules of {endpoint.name} {text}")
        for endpoint in rules.endpoints
        if endpoint.caller is not None and endpoint.caller.source is CallerSource.CERTIFICATE
    )
    if faults:
        raise VaultError(Code.BAD_SETTINGS, "Nobody is asked for a certificate.", faults)


def _for_one(rules: RuleSet, upstream: str) -> RuleSet:
    """The rules for the application at that address.

    Raises ``VaultError(BAD_SETTINGS)`` where they name several.
    """
    match rules.endpoints:
        case ():
            endpoint = Endpoint(
                "default", upstream, frozenset(), "", Unmatched.REPORT, BodyLimits(), OnError()
            )
            return replace(rules, endpoints=(endpoint,))
        case (one,):
            return redirected(rules, {one.name: upstream})
        case several:
            names = ", ".join(endpoint.name for endpoint in several)
            raise VaultError(
                Code.BAD_SETTINGS,
                f"--upstream is for one application, and the rules name several ({names}): write "
                "the address of each into its rule file.",
            )


def rules_at(path: Path) -> RuleSet:
    """The rule set of a folder or file; empty as ``load_rules`` says, and raises as it does."""
    setting = SETTINGS["rules"]
    if no_rules(path) and (path.exists() or path == setting.read(setting.default)):
        return RuleSet("none", (), (), ())
    return load_rule_set(path)


#: The report, or only the paths of it, as 0.1.0 wrote them.
_report = msgspec.json.Decoder(CoverageReport | list[UnruledPath]).decode


def coverage_file(settings: Settings) -> Path:
    """Return the path of the coverage file; each worker has its own."""
    if settings.worker is None:
        return settings.data / "coverage.json"
    return settings.data / f"coverage-{settings.worker.number}.json"


def coverage_until_now(settings: Settings) -> CoverageReport:
    """Return the coverage of this process so far; empty if it has not met any request.

    Raises ``VaultError(BAD_SETTINGS)`` for a file that cannot be read.
    """
    return _read_coverage(coverage_file(settings))


def coverage_of_all(settings: Settings, own: CoverageReport | None = None) -> CoverageReport:
    """Return the coverage of all workers; ``own``: of this process, in place of its file.

    Raises as ``coverage_until_now``.
    """
    files = coverage_files(settings)
    if own is not None:
        files = [file for file in files if file != coverage_file(settings)]
    reports = [_read_coverage(file) for file in files]
    return joined_reports(reports if own is None else [*reports, own])


def coverage_written(settings: Settings) -> int | None:
    """When the coverage was last written, in milliseconds since the epoch; ``None``: never."""
    files = coverage_files(settings)
    return int(_written(files[-1]) * 1000) if files else None


def coverage_files(settings: Settings) -> list[Path]:
    """The coverage files of all workers, the newest last."""
    files = [settings.data / "coverage.json", *settings.data.glob("coverage-*.json")]
    return sorted((file for file in files if file.exists()), key=_written)


def _written(file: Path) -> float:
    return file.stat().st_mtime


def _read_coverage(file: Path) -> CoverageReport:
    try:
        report = _report(file.read_bytes())
    except FileNotFoundError:
        return CoverageReport()
    except (OSError, msgspec.MsgspecError):
        text = f"{file} cannot be read as what no rule names: remove it, and it is made anew."
        raise VaultError(Code.BAD_SETTINGS, text) from None
    return report if isinstance(report, CoverageReport) else CoverageReport(report)


def write_coverage(settings: Settings, coverage: Coverage) -> None:
    """Write the coverage to disk; a fault is logged, for nothing depends on it."""
    if settings.remote.vault is not None and not settings.data.exists():
        return  # an instance without a vault needs no folder for data
    file, report = coverage_file(settings), coverage.report()
    try:
        if report.unknown or report.ruled or file.exists():
            part = file.with_suffix(".part")
            part.touch(mode=0o600)
            part.write_bytes(msgspec.json.encode(report))
            part.replace(file)
    except OSError as error:
        _log.warning("the coverage file could not be written", reason=error.strerror or "")


async def write_coverage_often(settings: Settings, coverage: Coverage) -> None:
    """Write it down every ten seconds in which something came, for ever."""
    written = coverage.report()
    while True:
        await asyncio.sleep(_WRITTEN)
        if (report := coverage.report()) != written:
            await asyncio.to_thread(write_coverage, settings, coverage)
            written = report


def first_rules(settings: Settings, overrides: Overrides | None) -> RuleSet:
    """The rules to start with. Raises ``VaultError`` where they do not fit the settings."""
    rules = load_rules(settings, overrides)
    _refuse_strangers(settings, rules)
    refuse_unfit(rules.entities, records_schema(settings.records))
    return rules


def refuse_lost(settings: Settings, rules: RuleSet, rules_before: bool) -> None:
    """Raise ``VaultError`` (BAD_RULES) where everything would pass in the clear, for there is no
    rule file, though there were rules before: nobody would notice that they are lost.
    """
    if rules_before and rules.endpoints and not rules.files:
        raise VaultError(
            Code.BAD_RULES,
            f"There is no rule file at {settings.rules}, and the vault holds what rules have "
            "tokenized: put the files back, or start without --upstream.",
        )


def check_upstream(settings: Settings, rules: RuleSet | None) -> None:
    """Raise as a start would for the applications; ``rules`` if they are valid."""
    upstream_routes(settings)
    if rules is not None:
        _refuse_strangers(settings, rules)


def _refuse_strangers(settings: Settings, rules: RuleSet) -> None:
    """Settings of an application that no rule names would quietly do nothing."""
    names = {endpoint.name for endpoint in rules.endpoints}
    text = f"no rule file has an endpoint of that name: there are {', '.join(sorted(names))}"
    strangers = tuple(
        Detail(f"applications.{name}", text) for name in settings.applications if name not in names
    )
    if strangers:
        raise VaultError(
            Code.BAD_SETTINGS, "The settings name applications that the rules do not.", strangers
        )


def open_console(
    settings: Settings, rules: Callable[[], RuleSet], coverage: Coverage, state: Reload
) -> Console:
    """Return the console; ``state`` tells whether the rule files on disk are active."""

    def run_tests(draft: RuleSet) -> Mapping[str, list[str]]:
        return asyncio.run(try_rules(draft))

    def covered() -> CoverageReport:
        return coverage_of_all(settings, coverage.report())

    report = coverage.report if settings.worker is None else covered
    return Console(settings.rules, rules, report, run_tests, state)


async def try_rules(
    rules: RuleSet, run: Callable[[Runtime, Case], Awaitable[list[str]]] | None = None
) -> dict[str, list[str]]:
    """Run the rule files' own tests, each on a fresh temporary vault: test name and failures.

    A short forbidden text may occur in a random token by chance. So a failed test is repeated with
    other keys, and only permanent failures are reported.
    """
    if run is None:
        from proxy.redactor.exchange.rule_test_runner import run_case

        run = run_case
    results: dict[str, list[str]] = {}
    for test in rules.tests:
        case = parse_case(test)
        problems = await _tried(rules, case, run)
        for _ in range(TRIALS - 1):
            if problems:
                again = await _tried(rules, case, run)
                problems = [problem for problem in problems if problem in again]
        results[f"{test.endpoint}: {test.name}"] = problems
    return results


async def _tried(
    rules: RuleSet, case: Case, run: Callable[[Runtime, Case], Awaitable[list[str]]]
) -> list[str]:
    with TemporaryDirectory(prefix="domicile-trial-") as folder:
        store = await open_store(f"sqlite:///{folder}/vault.db")
        try:
            options = VaultOptions("trial", "SE", 1)
            vault = new_vault(Keyset.create("trial"), store, system_clock, unobserved, options)
            return await run(await bind_rules(rules, vault, Metrics(), no_audit()), case)
        finally:
            await store.close()


_NOTE: Final = "fronts:default"
#: Rule sets in the note, and milliseconds for which one may be used after the next one came.
_MOST: Final = 5
_USABLE: Final = 86_400_000


class UsedRules(msgspec.Struct, frozen=True, array_like=True):
    """A rule set, and when a front first used it."""

    version: str
    at: int
    files: dict[str, bytes]


class RuleHistory:
    """``EarlierRules`` of an owner.

    ``load`` makes rules of files; ``bind`` makes them ready beside those in force.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        load: Callable[[Mapping[str, bytes]], RuleSet],
        bind: Callable[[RuleSet], Awaitable[Runtime]],
    ) -> None:
        self._store, self._clock = store, clock
        self._load, self._bind = load, bind
        self._newest = ""  #: version that is known to be the first of the note

    async def remember(self, rules: RuleSet) -> None:
        """See ``EarlierRules``; the newest ones are first."""
        if rules.version == self._newest or not rules.files:
            return
        stored = await self._store.note(_NOTE)
        listed = _decoded(stored)
        if not listed or listed[0].version != rules.version:
            others = [one for one in listed if one.version != rules.version]
            fresh = UsedRules(rules.version, self._clock(), dict(rules.files))
            content = zlib.compress(_encode([fresh, *others][:_MOST]))
            try:
                await self._store.put_note(_NOTE, content, stored)
            except coded(Code.CONFLICT):
                return  # another replica was faster, and this is tried again at the next question
        self._newest = rules.version

    async def recall(self, version: str) -> Runtime | None:
        replaced, listed = self._clock(), _decoded(await self._store.note(_NOTE))
        for one in listed:
            if one.version == version and self._clock() - replaced < _USABLE:
                return await self._bind(await asyncio.to_thread(self._load, one.files))
            replaced = one.at
        return None


def _decoded(stored: bytes | None) -> list[UsedRules]:
    return [] if stored is None else _decode(zlib.decompress(stored))


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[UsedRules]).decode
