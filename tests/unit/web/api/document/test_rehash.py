from proxy.tokenization.strategy import names
from proxy.web.api.document.rehash import DESCRIBED
from proxy.web.api.popoperations import OPERATIONS


def test_only_what_is_an_operation_is_described() -> None:
    assert DESCRIBED.keys() == {one.name for one in OPERATIONS if not one.name.startswith("pop_")}


def test_every_strategy_is_named() -> None:
    request = DESCRIBED["rehash_records"].request
    assert request is not None
    assert request["properties"]["rules"]["additionalProperties"]["properties"]["strategy"]["enum"] == names()
