"""One ordinary exchange of a front, step by step; ``tests/property/test_fast_path_laws.py`` compares
many with the general way.
"""

from types import SimpleNamespace
from typing import Any, cast

from proxy.errors import Code, VaultError
from proxy.redactor.exchange.fast_path_exchange import FastPathExchange
from proxy.redactor.exchange.owner_fast_path import SENT, OrdinaryJob
from proxy.redactor.exchange.owner_protocol import Ended, Redact, Redacted, RestoreAnswer
from proxy.redactor.message import RawHeaders, Request, Response
from tests.support.table import table

JSON: RawHeaders = ((b"Content-Type", b"application/json"),)
ASKED = Redact(7, "v", 0, {}, 0, Request("POST", b"/p", JSON, b"value"), ())
FAULT = VaultError(Code.AUDIT_DOWN, "No.")


class Steps:
    """An exchange on the fast path and the connection of its front: each step is written down."""

    def __init__(self, *, settles: bool = True) -> None:
        self.plan = SimpleNamespace(success={200, 201})
        self.settles, self.sent = settles, b"token" if settles else b""
        self.steps: list[Any] = []
        self.takes = True  #: whether the store takes what is settled
        self.restores: bytes | None = b"restored"
        self.job = OrdinaryJob(self, ASKED, cast(FastPathExchange, self), writes=settles)

    def stage(self, _: object) -> bool:
        self.steps.append("stage")
        return True

    def restore(self, *what: Any) -> Any:
        """Of the exchange with the body; of the connection with the general exchange."""
        if len(what) == 2:
            self.steps.append(("general", *what))
            return None
        self.steps.append("restore")
        if self.restores == b"":
            raise ZeroDivisionError
        return self.restores

    def settle(self, *_: object) -> bool:
        self.steps.append("settle")
        return self.takes

    def audit(self, status: int, _: object) -> None:
        self.steps.append(("audit", status))

    def mark(self) -> bytes:
        return b"m"

    def general(self) -> Any:
        return "exchange"

    def send(self, answer: Any) -> None:
        self.steps.append(answer)

    def restart(self, job: Redact) -> None:
        self.steps.append(("restart", job))

    def give_up(self, exchange: Any, *, sent: bool, ident: str = "") -> None:
        assert ident == ASKED.ident
        self.steps.append(("failed", exchange, sent))

    def finish(self, number: int) -> None:
        self.steps.append(("finish", number))

    def __getattr__(self, name: str) -> Any:
        if name not in ("staged", "settled", "audited", "close", "abandon"):
            raise AttributeError(name)
        return lambda: self.steps.append(name)


def begun(*, settles: bool = True) -> Steps:
    """An exchange whose request is at the application."""
    one = Steps(settles=settles)
    assert one.job.start()
    if settles:
        one.job.set_result(None)
    redacted = one.steps[-1]
    assert isinstance(redacted, Redacted)
    assert redacted.request is not None
    assert redacted.request.body == (b"token" if settles else b"value")
    assert one.job.phase == SENT
    one.steps.clear()
    return one


def answered(status: int = 201, headers: RawHeaders = JSON) -> RestoreAnswer:
    return RestoreAnswer(7, Response(status, headers, b"token"))


def test_a_write_is_settled_and_told_before_it_is_answered():
    one = Steps()
    assert one.job.start()
    assert one.steps == ["stage"]
    assert one.job.phase != SENT, "it is not durable"
    one = begun()
    one.job.restore(answered())
    assert one.steps == ["restore", "settle"]
    one.job.set_result(None)
    assert one.steps[2:] == ["settled", ("audit", 201)]
    one.job.audited(None)
    ended = one.steps[-1]
    assert isinstance(ended, Ended)
    assert (ended.fault, ended.answer, ended.body) == (None, None, b"restored")
    assert ended.of(answered().answer) == Response(201, JSON, b"restored")


def test_a_read_is_told_before_it_is_answered():
    one = begun(settles=False)
    one.job.restore(answered(200))
    assert one.steps == ["restore", ("audit", 200)]
    one.job.audited(None)
    assert one.steps[-1].body == b"restored"


@table(
    ("status", "headers"),
    [(500, JSON), (201, ()), (201, ((b"Content-Range", b"x"), *JSON)), (201, ((b"Content-Type", b"text/html"),))],
)  # fmt: skip
def test_an_answer_out_of_the_ordinary_goes_the_general_way(status, headers):
    one = begun()
    one.job.restore(back := answered(status, headers))
    assert one.steps == [("finish", 7), ("general", "exchange", back)]


def test_the_mark_of_a_record_is_told_where_the_answer_has_a_tag():
    for headers, mark in ((JSON, b""), (((b"eTag", b'"x"'), *JSON), b"m")):
        one = begun(settles=False)
        one.job.restore(answered(200, headers))
        one.job.audited(None)
        assert one.steps[-1].mark == mark


@table("restores", [None, b""])
def test_an_answer_that_is_not_restored_goes_the_general_way(restores):
    one = begun()
    one.restores = restores
    one.job.restore(back := answered())
    assert one.steps == ["restore", ("finish", 7), ("general", "exchange", back)]


def test_what_cannot_be_settled_goes_the_general_way():
    for takes in (False, True):
        one = begun()
        one.takes = takes
        one.job.restore(back := answered())
        if takes:
            one.job.set_exception(FAULT)
        assert one.steps[1:] == ["settle", ("finish", 7), ("general", "exchange", back)]


def test_without_its_line_a_write_is_refused_and_a_read_goes_the_general_way():
    one = begun()
    one.job.restore(answered())
    one.job.set_result(None)
    one.job.audited(FAULT)
    assert one.steps[-1].fault.code == "audit_down"
    assert one.steps[-1].answer is None
    assert "close" in one.steps
    one = begun(settles=False)
    one.job.restore(back := answered(200))
    one.job.audited(FAULT)
    assert one.steps[2:] == [("finish", 7), ("general", "exchange", back)]


def test_a_fault_after_the_line_goes_the_general_way_and_is_answered_by_that_alone(monkeypatch):
    one = begun()
    one.job.restore(back := answered())
    one.job.set_result(None)
    monkeypatch.setattr(one, "audited", lambda: 1 / 0, raising=False)
    one.job.audited(None)
    assert one.steps[-2:] == [("finish", 7), ("general", "exchange", back)]


def test_values_that_are_not_durable_begin_again_while_somebody_waits():
    for waits in (True, False):
        one = Steps()
        one.job.start()
        if not waits:
            one.job.front_lost()
        one.job.set_exception(FAULT)
        again = [("restart", ASKED)] if waits else []
        assert one.steps == ["stage", "abandon", ("finish", 7), *again]


def test_who_leaves_before_the_request_is_sent_leaves_nothing_and_after_it_a_doubt():
    one = Steps()
    one.job.start()
    one.job.front_lost()
    one.job.set_result(None)
    assert one.steps == ["stage", "staged", ("finish", 7), ("failed", "exchange", False)]
    one = begun()
    one.job.front_lost()
    assert one.steps == [("finish", 7), ("failed", "exchange", True)]
    one = begun()
    one.job.restore(answered())
    one.job.front_lost()
    assert one.steps == ["restore", "settle"], "it comes to its end"
