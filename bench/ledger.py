"""The ledger of an exchange: what each step of it takes of the processor, and what it would take to
take less. ``make bench ARGS=ledger`` prints it, ``ARGS="ledger --write"`` keeps it as
``docs/performance.md``.

Two proxies run in turns under the same load: one as it is, whose processor time is what an exchange
takes; and one whose steps are timed (``steps.py``), each without those inside it. What no step
holds is the last line: the event loop, the kernel, and what the interpreter does between steps.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from bench import machine
from bench.ours import domicile, settings_file
from bench.processes import CACHE, ROOT, Unavailable, free_port, started
from bench.redacting import application
from bench.rounds import QUICK, Driver, Failed, Plan
from bench.steps import HTTP, STEPS

PAGE: Final = ROOT / "docs" / "performance.md"

#: The rest of an exchange.
REST: Final = "event loop, sockets, kernel, between the steps"
_REST_TAKES: Final = (
    "a read and a write on each side through the kernel; a naive proxy has them too. The floor"
)


class Exchange(NamedTuple):
    """An exchange that is taken apart."""

    title: str
    scenario: str  #: of the load


EXCHANGES: Final = (
    Exchange("Redacting POST of 1 KB, five new values", "create"),
    Exchange("PUT of 1 KB, values that are known", "update"),
    Exchange("PUT of 1 KB, new values", "changed"),
    Exchange("GET of one record, restored", "restored"),
    Exchange("Pass-through of what no rule names", "read"),
)
#: Those with every step and with the fewest, which show that the ledger can be taken.
FEW: Final = (EXCHANGES[2], EXCHANGES[4])


class Line(NamedTuple):
    """One step of a ledger: microseconds of an exchange."""

    part: str
    name: str
    micros: float
    takes: str


def take(plan: Plan, exchanges: Sequence[Exchange]) -> dict[str, list[Line]]:
    """By exchange its ledger.

    Raises:
        Unavailable: our own command does not start.
        Failed: an answer was wrong.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    ledgers: dict[str, list[Line]] = {}
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="run-") as name:
        folder = Path(name)
        with application(folder) as app:
            driver = Driver(app, plan)
            for exchange in exchanges:
                ledgers[exchange.title] = _ledger(driver, exchange, folder / exchange.scenario)
    return ledgers


def _ledger(driver: Driver, exchange: Exchange, folder: Path) -> list[Line]:
    """The ledger of one exchange; both proxies begin with an empty vault."""
    port, target, upstream = free_port(), folder / "times.json", driver.app.port
    (folder / "plain").mkdir(parents=True)
    settings = settings_file(folder, port, vault=free_port(), upstream=upstream)
    command = [sys.executable, "-m", "bench.steps", str(target), "--config", str(settings)]
    with (
        domicile(upstream, folder / "plain") as plain,
        started("domicile", command, port, folder) as timed,
    ):
        figures, _ = driver.compare(exchange.scenario, [plain, timed], driver.plan.connections[0])
    micros = msgspec.json.decode(target.read_bytes(), type=dict[str, float])
    return _lines(micros, figures.cpu_us)


def _lines(micros: dict[str, float], whole: float | None) -> list[Line]:
    lines = [
        Line(step.part, step.name, max(0.0, micros[step.name]), step.takes)
        for step in STEPS
        if step.name in micros
    ]
    if whole is not None:
        left = whole - sum(line.micros for line in lines)
        lines.append(Line(HTTP, REST, max(0.0, left), _REST_TAKES))
    return lines


def tables(ledgers: dict[str, list[Line]]) -> str:
    """The ledgers as Markdown."""
    parts: list[str] = []
    for title, lines in ledgers.items():
        whole = sum(line.micros for line in lines)
        parts += [f"## {title}", "", "| Step | us | Share | What it would take |"]
        parts.append("|---|---|---|---|")
        parts += [
            f"| {line.name} | {line.micros:.1f} | {line.micros / whole:.0%} | {line.takes} |"
            for line in lines
        ]
        parts += [f"| **all** | **{whole:.1f}** | | |", ""]
    return "\n".join(parts)


def summary(ledgers: dict[str, list[Line]]) -> str:
    """The parts of each exchange in one table."""
    parts = dict.fromkeys(line.part for lines in ledgers.values() for line in lines)
    rows = [f"| Exchange | us | {' | '.join(parts)} |", "|---" * (len(parts) + 2) + "|"]
    for title, lines in ledgers.items():
        whole = sum(line.micros for line in lines)
        shares = [sum(line.micros for line in lines if line.part == part) for part in parts]
        cells = [f"{share / whole:.0%}" if share else "" for share in shares]
        rows.append(f"| {title} | {whole:.0f} | {' | '.join(cells)} |")
    return "\n".join(rows)


_PAGE: Final = """\
# The ledger of an exchange

{words}

{summary}

{tables}"""

_WORDS: Final = """\
What an exchange takes of the processor, step by step, and what it would take to take less. Written by `make bench ARGS="ledger --write"` on {date}, on
{python}; native code: {native}. Change nothing here by hand: the texts are those of `bench/ledger.py`.

Microseconds of an exchange at 16 connections. The sum is the processor time of a proxy as it is; the steps are those of one whose steps are timed, each without
the steps inside it, the slowest 2 % of its times left out. Other load: {load} (load average {average} on {cores} cores). Absolute figures grow with that; shares hardly do.

**Why a write waits for two commits.** The first makes its values durable before the application hears of them, the second what the application's answer
meant. To answer before the second would spare the caller a flush and the processor nothing: the transaction is the same. It was looked at again for updates, with a mark in memory that lets
searches and the vault's interface read an acknowledged version before it is live. `kill -9` takes that mark away. Until an answer shows the record, searches would then not find an
acknowledged value, and after `pending.keep` it would be dropped ([promises](promises.md#nothing-acknowledged-is-ever-lost)). A mark that outlives the process is the second commit.
Creates wait for the same reasons.

**How many steps.** `tests/arch/test_figures.py` counts the Python calls of one exchange (`CALLS`), with one caller, so that each group of commits has one commit. A create has two such groups,
an update with new values two and a look at the record, one with known values none. At 16 callers a group has about 16 commits, and its calls are shared.
The goal of 90 calls a PUT stands for known values (`same`), as the figure it began from did; a PUT with new values (`update`) does all that a create does, and looks at the record before.

**What is out of reach without another design.** Measure 1 asks for a sixth of the addon's time, and measure 3 for 1.4 times that of a proxy that protects nothing.
The parts of a POST below say why: the store's part is SQLite's own work at random places of indexes, the part of HTTP is what any proxy in Python pays, and sealing, audit and guard are promises.
What is left are the steps themselves in Python. A native core (prepare and restore in one call each) would take most of the part of values away, at the price of the promises' code existing twice.

**What compiling the Python code gives.** 58 modules of the ordinary exchange were compiled from their own source with Cython 3.3, as mypyc had been tried before (0.9 to 1.25 times as fast).
A create then executes 0.90 of the instructions and a PUT with known values 0.94. Its processor time did not fall: in alternating windows on a busy machine it was 1.08 to 1.18 times
that of the Python code. Most of an exchange passes in objects and dictionaries, SQLite, OpenSSL and the kernel, which stay; a quarter is the interpreter's own loop, which looks up what it has looked up
before faster than compiled code does. The price would be 13 MB of files, minutes of compiling, and another language: to iterate over the literal `b"..."` gives bytes there, not numbers. It was not kept.
What did pay is C where a step reads every byte: strings of JSON sixteen bytes at a time (a fifth off the step), and, of a body of 1 KB, the guard, which decodes rows of base64 itself (1.8 us instead of 5.8), and cutting out five texts (2.6 instead of 7). Putting five values back into an answer in C takes half of the instructions (25,000 of 47,000; a create has some 740,000 in all). To spell the tokens of a create and put them into the body in one call of C spares 24,500 instructions (25,800 of 50,300), to count durations 64 at a time another 9,000. A PUT with values that are known executes 370 of 5,400 steps of the interpreter less, since those are compared and their tokens put in in one call of C, and fields that came before are not joined again for another address. SHA-256 of the interpreter itself in place of OpenSSL's is as fast for short texts, and slower from 60 bytes on.

**One connection alone (measure 8).** A create at one connection executes 1.4 times the instructions of one among eight, but takes 5.7 times the processor time of one among sixteen. So its time is not Python's:
it is two flushes, eleven pages of the log in 22 writes, twelve locks of the file and four changes of thread, each on a core that has slept. One page of each commit is that of the sum over its table.
SQLite writes a head of 24 bytes before each page: seven pages as the values are staged, four as that settles. Some eleven calls hand the work and the interpreter's lock from thread to thread.
Beside other programs (load average 13) the fastest tenth of groups took 33 us from the loop to the thread, 51 back, and all else on the loop less; the flush took the rest. So both commits' four changes of thread are 0.2 ms of the 1.6, and 0.6 is out of reach with two flushes of 0.2.
To commit on the thread of the event loop was tried beside a thread of its own: 0.35 to 0.43 ms of processor time and 0.37 ms for the fastest tenth, either way. A disk that hangs would hold up everybody there.
`locking_mode=EXCLUSIVE` would spare the locks (1 us each), and lock out the connection that reads, and `backup`. Random bytes drawn in advance would spare four calls of 1 us, and a forked process would share them.
After ten seconds of quiet the log is emptied. The first commit then takes 0.60 ms, 0.43 into a log that keeps its length, 0.36 into one filled with zeros (the fastest tenth each), which would write all of it twice.

**Bodies of 100 KB (measure 6).** The measure has four connections. There a create of 1 KB takes 1.7 times the processor time of one among sixteen already: it pays for 0.65 groups of commits instead of 0.14,
and a group of one commit takes 143 us, as much as in SQLite alone. To let a group wait two turns of the loop longer makes 0.60 of 0.65, which is not worth the wait.
With native code the body itself is two million instructions: 0.8 to check the JSON and find the places, 0.4 for the guard (0.6 until the rare bytes of a long part were sets), 0.3 to copy it three times.
Since then texts are cut out of a long body by native code as well, which saw the short ones alone, and it looks in long parts for values by their rarest byte: to find, check and cut takes 69 us in place of 89 to 102, the guard 35 to 41 in place of 52 to 68 (processor time, in turns). The interpreter executes 6,260 steps for it in place of 8,590. All instructions together did not fall beyond what counting them varies by: C executes much of what Python did. In one run of each a create of 100 KB took 1,426 us in place of 1,633, on a machine half as fast.

**Eight finds of 4 MB at once (measure 21).** No step of them keeps the interpreter's lock for long: to open, read and write 4 MB takes 1.6, 2.2 and 2.1 ms, and the loop itself uses 7 to 11 ms of its longest turn. The rest it waited behind two workers on one core. Since then these workers are ten steps nicer than the loop (nice(2)), each thread for itself, so it comes first on their core. In seven runs of each in turns, on 1 December at load averages of 3 to 5, the median of the longest turns was 58 ms in place of 94 (69 with five steps), a caller of `/healthz` waited 84 ms in place of 147, and the finds took 0.71 s in place of 0.74. The page of benchmarks (57 ms) is older than that.

**Beside a proxy that protects nothing (measure 3).** Its figures (291 and 289 us a create) are of an earlier run than those of measure 1 (226 and 187): in their own run measure 1 stood at 255 and 269.
On 30 November, all three proxies in turns at load averages of 11 to 16: 0.77 (16 connections) and 1.10 (64) of the plain proxy's time over ours, and 4.8 and 8.4 of the addon's. It has to be taken again on a quiet machine.
What was suspected of a slower way, and counted: of 21,000 creates and reads at 16 and 64 connections 184 took the general way, because no idle connection to the application was there, all of them while connections were opened for the first time or again after four seconds of rest.
A vault of 80,000 records more costs 8 % at 16 connections and 1 % at 64. Where other programs take the processor, a group of commits seems slow, and the thread runs the statements of the next hundred: 65 to 90 of 100 commits at load averages of 10. That costs no more processor time (0.96 of it, pairs of windows), so it was left.

**Records of the vault one by one (measure 10).** Of 64 writers a record takes 47 us (the fastest groups): 31 to hash, seal and hand over, 8 for the statements, 7 for its part of the flush. The engine alone has the last two.
Of the 31, four keyed hashes take 4, a cipher of its own 2, and to seal its open columns 2; the rest are three coroutines, a future and a turn of the loop, which batches of 100 share. No step of it takes more than a tenth.
Up to the commit a record took 28.7 to 29.6 us and takes 24.8, since one record alone is hashed and sealed without coroutines of its own (processor time of a thread, the fastest of 600 rounds). Since 1 December a record alone draws its salt and its nonce in one call of the kernel and is sealed in one step, and its columns are packed as one map (0.5 us for five, in place of 1.1): 231,000 instructions in place of 236,000. Its processor time was 0.96 and 0.81 of that before (medians of seven pairs each, on a busy machine, between 0.7 and 1.2): the measure has not been taken again.
To begin a group with half of the writers, while the others seal, would spare most of the 7 here, and flush twice as often: where a disk takes 5 ms, that is slower.

**What the statements are.** In groups of 16, a row takes 9 us to stage, 3 of them for the sum over its table, and 15 to settle: 6 for that sum, with two keyed hashes and a trigger, and 2 for the question whether another row has its key.
The unique index would answer that as well, at the price of a second run of the group wherever one has. The rest is SQLite's: five indexes, and a row of 600 bytes that is written again.

**Two workers before the embedded store (measure 25).** Two cores serve `one / max(owner, all / 2)` times as much as one process on one of them, by processor time of a request: the owner is one process, and all three share the two cores.
So 1.6 needs both an owner below 0.625 of a lone process and a team below 1.25 of it. On 30 November, with load averages of 1 to 4 and without native code, creates stood at 1.23 (16 connections) and 1.28 (64), where the owner was the limit (0.82 and 0.66, the team 1.53 and 1.11);
the mixed load at 1.39 and 1.51, where both were near it (0.64 and 1.23, 0.66 and 1.24); reads at 1.26 and 1.43, where the team was (1.46 and 1.43).
Of an ordinary create at 64 connections, half of what the owner's event loop executes makes the record: 21% tokens and their index entries, 18% the sealed row, 11% the loop over its fields. 12% hash and seal the key when it settles, 11% are the audit line, 10% the messages (framing, decoding, dispatch, answers), the rest states and counts.
Beside that loop, sockets and their wake-ups are some 3% of the process, flushes and pages of the log 10%, threads that wake each other 2%. So the messages are not what it costs: without any, creates would gain a tenth.
What was waste: when a body was due to be looked at for members that no rule names, every create that began before the first such body came back took the longer way, which brings the whole request to the owner. Of 1,500 creates at 64 connections on a busy machine these were 148 (26 on a quieter one), and are 13 now. The encoding of a message is no longer copied into that of its turn.
What 1.6 would take for creates: fronts that make tokens and seal rows, so that the owner has half of that loop left (0.40 to 0.48 of a lone process); then all three together are the limit, 1.55 to 1.75. Each front would hold all data keys and roots. The owner would have to refuse what was sealed under a key, a root or a schema that has changed since, in the turn in which it commits:
a number of that state with each message, checked there, keeps rotations and destroyed keys right. But keys would be in three processes rather than one, and a front that is taken over could open the database, not only what passes it. That is a decision about threats, not about speed, and was not taken.
Lists are about a third of what the owner does for the mixed load. A quarter of one is reading 50 rows, an eighth opening them, a tenth the audit line, and a sixteenth reads again that the request has no value in it, which its front has seen; that check is kept.

**How to count instructions.** Times vary by half on a busy machine; instructions by 3 in a hundred: start `domicile serve` under `valgrind --tool=cachegrind --cache-sim=no`, once for 60 requests and once for 360,
and divide the difference by 300. The kernel's are not among them.
"""


def main(argv: Sequence[str]) -> int:
    """Print the ledger; exit status 1 where it could not be taken."""
    parser = argparse.ArgumentParser(prog="python -m bench ledger", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="seconds; says nothing about speed")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    arguments = parser.parse_args(argv)
    try:
        if arguments.quick:
            ledgers = take(QUICK, FEW)
        else:
            ledgers = take(Plan(connections=(16,), rounds=3), EXCHANGES)
    except (Unavailable, Failed) as fault:
        print(f"No ledger: {fault}", file=sys.stderr)
        return 1
    text, parts = tables(ledgers), summary(ledgers)
    print(f"{parts}\n\n{text}")
    if arguments.write:
        facts, date = machine.description(), datetime.now(UTC).date().isoformat()
        about = {"python": facts["Python"], "native": facts["Native code"]}
        about |= {"average": f"{os.getloadavg()[0]:.0f}", "cores": str(os.cpu_count())}
        words = _WORDS.format(date=date, load=facts["Other load"], **about)
        PAGE.write_text(_PAGE.format(words=words.strip(), summary=parts, tables=text))
    return 0
