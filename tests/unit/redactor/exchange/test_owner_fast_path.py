"""One ordinary write of a front, step by step; ``tests/property/test_fast_path_laws.py`` compares
many with the general way.
"""

from types import SimpleNamespace
from typing import Any, cast

from proxy.errors import Code, VaultError
from proxy.redactor.exchange.fast_path_exchange import FastPathExchange
from proxy.redactor.exchange.owner_fast_path import SENT, StageJob
from proxy.redactor.exchange.owner_protocol import Ended, SettleWrite, StageDone
from proxy.redactor.message import Request

FAULT = VaultError(Code.AUDIT_DOWN, "No.")
TOLD = SettleWrite(7, 201, "1", ("name",))
UNSETTLED = Ended(7, None, unsettled=True)


class Steps:
    """An exchange on the fast path and the connection of its front: each step is written down."""

    def __init__(self) -> None:
        self.settles, self.tagged, self.ident = True, False, "of-a-caller"
        self.write = SimpleNamespace(tokens={"name": (SimpleNamespace(token="token"),), "age": ()})
        self.steps: list[Any] = []
        self.takes = True  #: whether the store takes what is settled
        self.answer: Any = None
        self.request: Any = None
        self.job = StageJob(self, 7, cast(FastPathExchange, self))

    def stage(self, _: object) -> bool:
        self.steps.append("stage")
        return True

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

    def give_up(self, exchange: Any, *, sent: bool, ident: str = "") -> None:
        assert ident == self.ident
        self.steps.append(("failed", exchange, sent))

    def finish(self, number: int) -> None:
        self.steps.append(("finish", number))

    def __getattr__(self, name: str) -> Any:
        if name not in ("staged", "settled", "audited", "close", "abandon"):
            raise AttributeError(name)
        return lambda: self.steps.append(name)


def begun() -> Steps:
    """A write whose front has its tokens."""
    one = Steps()
    assert one.job.start()
    assert one.steps == ["stage"]
    assert one.job.phase != SENT, "it is not durable"
    one.job.set_result(None)
    done = one.steps[-1]
    assert isinstance(done, StageDone)
    assert done.tokens == ["token", None]
    assert one.job.phase == SENT
    one.steps.clear()
    return one


def test_a_write_is_settled_and_told_before_it_is_answered():
    for tagged in (False, True):
        one = begun()
        one.job.settle_write(SettleWrite(7, 201, "1", ("name",), tagged))
        assert one.steps == ["settle"]
        one.job.set_result(None)
        assert one.steps[1:] == ["settled", ("audit", 201)]
        one.job.audited(None)
        ended = one.steps[-1]
        assert isinstance(ended, Ended)
        assert (ended.fault, ended.mark) == (None, b"m" if tagged else b"")


def test_what_cannot_be_settled_goes_on_the_general_way_of_its_front():
    for takes in (False, True):
        one = begun()
        one.takes = takes
        one.job.settle_write(TOLD)
        if takes:
            one.job.set_exception(FAULT)
        assert one.steps == ["settle", UNSETTLED]
        assert one.job.phase == SENT
        request = Request("POST", b"/p", (), b"token")
        assert str(one.job.resume(request)) == "exchange"
        assert one.request is request


def test_without_its_line_a_write_is_refused():
    one = begun()
    one.job.settle_write(TOLD)
    one.job.set_result(None)
    one.job.audited(FAULT)
    assert one.steps[-1].fault.code == "audit_down"
    assert "close" in one.steps


def test_a_fault_of_ours_goes_on_the_general_way_of_its_front(monkeypatch):
    one = begun()
    one.job.settle_write(TOLD)
    one.job.set_result(None)
    monkeypatch.setattr(one, "audited", lambda: 1 / 0, raising=False)
    one.job.audited(None)
    assert one.steps[-1] == UNSETTLED
    one = Steps()
    one.job.start()
    monkeypatch.setattr(one, "staged", lambda: 1 / 0, raising=False)
    one.job.set_result(None)
    assert one.steps[1:] == [("finish", 7), ("failed", "exchange", False), StageDone(7)]


def test_values_that_are_not_durable_begin_again_while_somebody_waits():
    for waits in (True, False):
        one = Steps()
        one.job.start()
        if not waits:
            one.job.front_lost()
        one.job.set_exception(FAULT)
        assert one.steps == ["stage", "abandon", ("finish", 7), *([StageDone(7)] if waits else [])]


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
    one.job.settle_write(TOLD)
    one.job.front_lost()
    assert one.steps == ["settle"], "it comes to its end"
    one.job.set_exception(FAULT)
    assert one.steps[1:] == [("finish", 7), ("failed", "exchange", True)]
