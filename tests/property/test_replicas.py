"""The model with two instances on one database, which serve by turns: nobody can tell."""

import pytest

from tests.support.effort import rounds
from tests.support.replicas import TwoReplicas

SHARE = rounds(200)


@pytest.mark.parametrize("hosted", [False, True])
async def test_nobody_can_tell_which_of_two_replicas_is_there(hosted: bool) -> None:
    model = TwoReplicas(3, hosted)
    try:
        await model.run(SHARE)
    finally:
        await model.end()
    assert {"POST 200", "PATCH 200", "PATCH 0", "DELETE 200", "GET 200"} <= model.counts.keys()
    assert model.counts["compared"] > SHARE
