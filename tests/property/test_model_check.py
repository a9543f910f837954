"""Random operations on an application with the proxy and on one without show the same: a fixed
share of what is tried by hand.
"""

import pytest

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
        "POST 200",
        "PATCH 200",
        "PATCH 500",
        "PATCH 0",
        "PATCH 422",
        "PUT 200",
        "DELETE 200",
        "GET 200",
        "killed",
    }
    assert tried <= counts.keys()
    assert counts["compared"] > SHARE
