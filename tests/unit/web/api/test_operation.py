from typing import Any, cast

from proxy.model.access import Principal
from proxy.model.record import Record
from proxy.storage.changes import Release
from proxy.web.api.operation import Answer, Call

RECORD = Record(1, "k", {"id": "k"}, 1, 0, 0)


def call(keep=None) -> Call:
    nothing = cast(Any, None)
    return Call(nothing, nothing, Principal("c", "default"), nothing, keep=keep)


def test_without_an_idempotency_key_a_write_commits_nothing_besides_its_own():
    def render(_records):
        raise AssertionError("nobody keeps the answer")

    assert call().closing(render)([RECORD]) == ()


def test_with_one_the_answer_is_kept_in_the_commit_of_the_write():
    kept: list[Answer] = []

    def keep(answer: Answer) -> list[Release]:
        kept.append(answer)
        return [Release(b"", 1, 1)]

    assert call(keep).closing(lambda records: Answer(201, b"%d" % len(records)))([RECORD]) == [Release(b"", 1, 1)]
    assert kept == [Answer(201, b"1")]
