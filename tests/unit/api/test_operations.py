from collections import Counter

from proxy.api.operations import OPERATIONS


def test_every_operation_has_a_name_and_a_place_of_its_own():
    names = Counter(operation.name for operation in OPERATIONS)
    places = Counter((operation.method, operation.path) for operation in OPERATIONS)
    assert max([0, *names.values(), *places.values()]) <= 1
