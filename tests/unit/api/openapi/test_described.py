from proxy.api.openapi.described import DESCRIBED
from proxy.api.operations import OPERATIONS


def test_every_operation_is_described():
    assert {operation.name for operation in OPERATIONS} - DESCRIBED.keys() == set()


def test_every_operation_has_an_example_of_its_success():
    without = {"token_slash"}  # it is the one without the slash
    for operation in OPERATIONS:
        statuses = {example.status for example in DESCRIBED[operation.name].examples}
        assert operation.success in statuses or operation.name in without, operation.name
        assert statuses <= {operation.success, *operation.also, *operation.failures}
