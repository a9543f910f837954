import io
import json
import logging
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from proxy.errors import Code, VaultError
from proxy.telemetry.logs import FIELDS, REQUEST_ID, Style, configure, logger
from tests.support.patience import until
from tests.support.table import table
from tests.support.tree import ROOT

MARKER = "ann@example.com"


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """A stream to configure with; the style of tests is put back afterwards, and the root logger
    with it.
    """
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    configure(Style(format="text"))
    root.handlers, root.level = handlers, level


def test_a_json_line_holds_the_fixed_members_first_and_then_the_fields(lines):
    configure(Style(), lines)
    logger("redactor").info("rules loaded", version="abc", count=3)
    members = json.loads(lines.getvalue())
    assert list(members) == ["time", "level", "room", "event", "count", "version"]
    assert members["event"] == "rules loaded"
    assert members["room"] == "redactor"
    assert members["count"] == 3
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", members["time"])


def test_a_text_line_keeps_to_one_line_whatever_a_field_holds(lines):
    configure(Style(format="text"), lines)
    logger("config").warning("odd", text="one\ntwo", status=503)
    written = lines.getvalue()
    assert written.count("\n") == 1
    assert written.endswith('warning config   odd status=503 text="one\\ntwo"\n')


@pytest.mark.parametrize("style", ["text", "json"])
def test_a_terminal_obeys_nothing_that_stands_in_a_field(lines, style):
    configure(Style(format=style), lines)
    hostile = "a\x1b[2J\x9b31m\x7f\u202egnp\u2066\u2028\u061cå"
    logger("config").warning("odd", text=hostile)
    (written,) = lines.getvalue().splitlines()
    assert [sign for sign in written if not sign.isprintable()] == []
    assert "å" in written
    told = json.loads(written)["text"] if style == "json" else json.loads(written.split("text=")[1])
    assert told == hostile


def test_a_line_below_the_level_is_not_written(lines):
    configure(Style(level="warning"), lines)
    logger("vault").info("quiet")
    logger("vault").warning("loud")
    assert [json.loads(line)["event"] for line in lines.getvalue().splitlines()] == ["loud"]


def test_an_unlisted_field_raises_while_strict(lines):
    configure(Style(), lines)
    with pytest.raises(ValueError, match="email may not stand in a log line"):
        logger("vault").info("staged", email=MARKER)
    assert lines.getvalue() == ""


def test_an_unlisted_field_is_left_out_and_named_in_service(lines):
    configure(Style(strict=False), lines)
    logger("vault").info("staged", email=MARKER, entity="contact")
    assert MARKER not in lines.getvalue()
    assert json.loads(lines.getvalue())["unlisted"] == ["email"]
    assert json.loads(lines.getvalue())["entity"] == "contact"


def test_an_exception_is_named_by_class_and_place_never_by_its_text(lines):
    configure(Style(), lines)
    try:
        raise KeyError(MARKER)
    except KeyError:
        logger("vault").exception("commit failed")
    members = json.loads(lines.getvalue())
    assert members["exception"] == "KeyError"
    assert re.match(r"unit/telemetry/test_logs\.py:\d+", members["where"])
    assert MARKER not in lines.getvalue()


def test_an_exception_without_a_traceback_is_named_too(lines):
    configure(Style(), lines)
    logger("vault").error("commit failed", exc_info=OSError(MARKER))
    assert json.loads(lines.getvalue())["exception"] == "OSError"
    assert MARKER not in lines.getvalue()


def test_a_fault_is_told_by_its_code_and_its_message(lines):
    configure(Style(), lines)
    logger("vault").error("commit failed", fault=VaultError(Code.VAULT_DOWN, "It is away."))
    members = json.loads(lines.getvalue())
    assert (members["code"], members["text"]) == ("vault_down", "It is away.")
    assert "fault" not in members


def test_a_library_line_tells_who_and_where_but_not_what(lines):
    configure(Style(), lines)
    try:
        raise ValueError(MARKER)
    except ValueError:
        logging.getLogger("aiohttp.server").exception("Error handling request %s", MARKER)
    members = json.loads(lines.getvalue())
    assert members["logger"] == "aiohttp.server"
    assert members["exception"] == "ValueError"
    assert members["level"] == "error"
    assert MARKER not in lines.getvalue()


def test_a_library_line_below_warning_is_not_written(lines):
    configure(Style(), lines)
    logging.getLogger("asyncio").info("Using selector")
    logging.getLogger("asyncio").warning("slow")
    assert [json.loads(line)["level"] for line in lines.getvalue().splitlines()] == ["warning"]


def test_a_deep_traceback_names_only_its_innermost_frames(lines):
    def fall(depth: int) -> None:
        if depth == 0:
            raise RuntimeError
        fall(depth - 1)

    configure(Style(), lines)
    try:
        fall(30)
    except RuntimeError:
        logger("vault").exception("fell")
    assert json.loads(lines.getvalue())["where"].count(",") == 7


def written(lines: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in lines.getvalue().splitlines()]


async def test_of_lines_that_repeat_each_other_the_first_are_written_and_the_others_counted(lines):
    configure(Style(span=0.2), lines)
    log, each = logger("web"), logger("access", each=True)
    for number in range(50):
        REQUEST_ID.set(f"r{number}")
        log.error("the vault failed a request", code="vault_down", text="It is away.", count=number)
        log.info("said often")
        each.warning("request refused", code="vault_down")
    log.error("the vault failed a request", code="bad_store", text="It is away.")
    kinds = Counter((line["event"], line.get("code")) for line in written(lines))
    assert kinds == {
        ("the vault failed a request", "vault_down"): 20, ("said often", None): 50,
        ("request refused", "vault_down"): 50, ("the vault failed a request", "bad_store"): 1,
    }  # fmt: skip
    await until(lambda: any("repeated" in line for line in written(lines)))
    (told,) = (line for line in written(lines) if "repeated" in line)
    assert told.items() >= {"level": "error", "code": "vault_down", "repeated": 30}.items()
    assert "request_id" not in told, "they were of many requests"
    log.error("the vault failed a request", code="vault_down", text="It is away.")
    assert "repeated" not in written(lines)[-1], "the next span begins anew"


def test_where_no_span_is_named_every_line_is_written(lines):
    configure(Style(), lines)
    for _ in range(25):
        logger("web", each=True).warning("away")
    assert len(written(lines)) == 25


def test_without_a_loop_the_next_such_line_tells_how_many_were_left_out(lines):
    configure(Style(span=0.1), lines)
    for _ in range(25):
        logger("web").warning("away", text="It is away.")
    end = time.monotonic() + 0.2
    while time.monotonic() < end:
        pass
    logger("web").warning("away", text="It is away.")
    assert [line.get("repeated") for line in written(lines)] == [*[None] * 20, 5, None]


def test_so_many_different_lines_are_counted_and_no_more(lines):
    configure(Style(span=3600), lines)
    for number in range(250):
        for _ in range(21):
            logger("web").warning("away", text=f"It is away {number}.")
    counts = Counter(line["text"] for line in written(lines))
    assert Counter(counts.values()) == {20: 200, 21: 50}


def test_before_anything_is_configured_lines_are_text_and_strict():
    # in a process of its own: other tests have configured this one
    lines = (
        "from proxy.telemetry.logs import logger",
        "logger('clock').warning('early', count=1)",
        "logger('clock').warning('early', passport=1)",
    )
    told = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stderr
    assert "early count=1" in told
    assert re.search("ValueError: .*passport", told)


@pytest.mark.parametrize(
    "fault", [OSError(28, "No space left on device"), ValueError("I/O operation on closed file")]
)
def test_a_log_that_cannot_be_written_fails_nobody(lines, fault):
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise fault

        def flush(self) -> None:
            raise fault

    configure(Style(), Full())
    logger("web").error("the disk is full")
    configure(Style(), lines)
    logger("web").error("there is room again")
    assert json.loads(lines.getvalue())["event"] == "there is room again"


@table(
    "crash",
    [
        "raise KeyError(marker)",
        "import threading; threading.Thread(target=lambda: {}[marker]).start()",
        "E = type('E', (), {'__del__': lambda self: {}[marker]}); E()",
    ],
)
def test_what_nobody_caught_is_a_line_without_its_text(crash):
    code = (
        "from proxy.telemetry import logs; logs.configure(logs.Style()); logs.log_crashes(); "
        f"marker = 'ann@' + 'example.com'; {crash}"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    (line,) = done.stderr.splitlines()
    assert (json.loads(line)["event"], MARKER in line) == ("the program failed", False)
    assert json.loads(line)["exception"] == "KeyError"
    assert done.returncode == crash.startswith("raise")


def test_every_field_says_what_it_holds():
    assert all(meaning.strip() for meaning in FIELDS.values())
