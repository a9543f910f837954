from proxy.api.openapi.rehash import DESCRIBED
from proxy.api.operations import POP_OPERATIONS
from proxy.tokenization.strategy import strategy_names


def test_only_what_is_an_operation_is_described() -> None:
    assert DESCRIBED.keys() == {
        one.name for one in POP_OPERATIONS if not one.name.startswith("pop_")
    }


def test_every_strategy_is_named() -> None:
    request = DESCRIBED["rehash_records"].request
    assert request is not None
    assert (
        request["properties"]["rules"]["additionalProperties"]["properties"]["strategy"]["enum"]
        == strategy_names()
    )
