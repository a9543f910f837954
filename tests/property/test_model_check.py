"""Random operations on an application with the proxy and on one without show the same: a fixed
share of what is tried by hand.
"""

import subprocess
import sys

import pytest

from tests.support import lifecheck
from tests.support.effort import rounds
from tests.support.modelcheck import check

#: By hand: ``python -m tests.support.modelcheck SEED OPERATIONS``; 100,000 of them before each
#: release.
SHARE = rounds(400)


@pytest.mark.parametrize("hosted", [False, True])
@pytest.mark.parametrize("seed", [1, 2])
async def test_nobody_can_tell_whether_the_proxy_is_there(seed: int, hosted: bool) -> None:
    counts = await check(seed, SHARE, hosted=hosted)
    tried = {
        "POST 200", "PATCH 200", "PATCH 500", "PATCH 0", "PATCH 422", "PUT 200", "DELETE 200",
        "GET 200", "killed",
    }  # fmt: skip
    assert tried <= counts.keys()
    assert counts["compared"] > SHARE


@pytest.mark.parametrize("fields", [lifecheck.TELLING, ("name", "pin", "email", "born")])
@pytest.mark.parametrize("seed", range(1, 1 + rounds(2)))
async def test_callers_at_once_see_what_they_wrote_whenever_the_process_is_killed(
    seed: int, fields: tuple[str, ...]
) -> None:
    """Creates are answered with ids that are known, while others change those records; with ``pin``,
    whose values have one token, as well.
    """
    counts = await lifecheck.check(seed, 8, fields)
    assert {"POST 201", "PUT 200", "GET 200"} <= counts.keys()
    assert counts.keys() & {"POST 422", "PUT 422", "POST 502", "PUT 502"}, (
        "some were refused, or lost"
    )


@pytest.mark.parametrize(
    ("seed", "fields"),
    [
        *[(one, ("phone", "born", "card")) for one in (605, 608, 611, 624)],
        *[(one, ("name", "card")) for one in (896, 901)],
        (5, ("name", "pin", "phone", "card", "correct")),
    ],
)
async def test_the_vault_holds_what_the_application_holds_and_nothing_else(
    seed: int, fields: tuple[str, ...]
) -> None:
    """Creates, updates and deletes of one id overlap: here lost creates outlived their records, and
    answers showed tokens; of creates with one id that were joined one was lost, and another showed
    the ``pin`` of a later update. Clients of the interface correct values beside it all, or do not.
    """
    counts = await lifecheck.check(seed, 12, fields, more=True)
    assert {"POST 201", "PUT 200", "GET 200"} <= counts.keys()
    assert any(word.startswith("DELETE") for word in counts)
    assert bool(counts["corrected"]) is ("correct" in fields)


@pytest.mark.parametrize(
    ("seed", "fields"),
    [
        *[(one, "born") for one in (1310003, 1310006, 1310018, 1410020, 1510002, 1600015)],
        *[(one, "card phone tags address matrix") for one in (1710001, 1710009, 1710016)],
    ],
)
def test_an_answer_shows_the_value_that_was_written_with_what_it_shows_beside_it(
    seed: int, fields: str
) -> None:
    """With updates of a part of the fields (``change``) answers showed the ``pin`` of another
    version: all its values have one token. A process of its own, as sets have an order there.
    """
    words = (str(seed), "1", "name", "pin", "email", *fields.split(), "change")
    command = [sys.executable, "-m", "tests.support.lifecheck", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.endswith("\n0 failed\n"), done.stdout
