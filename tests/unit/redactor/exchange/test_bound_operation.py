from proxy.redactor.exchange.bound_operation import BoundOperation
from tests.support.exchanges import desk


async def test_an_operation_has_a_counter_for_each_field_and_direction():
    one = await desk()
    joined = next(iter(one.runtime.joined.values()))
    assert isinstance(joined, BoundOperation)
    assert (
        set(joined.protected) == set(joined.restored) == {"name", "email", "phone", "born", "tags"}
    )
    joined.protected["name"].value += 2
    joined.restored["name"].value += 3
    text = one.metrics.render().decode()
    assert 'domicile_protected_values_total{entity="p",field="name"} 2.0' in text
    assert 'domicile_restored_values_total{entity="p",field="name"} 3.0' in text


async def test_operations_of_one_entity_share_its_counters_and_collection():
    one = await desk()
    first, second, *_ = one.runtime.joined.values()
    assert first.collection is second.collection
    assert first.protected["name"] is second.protected["name"]
    assert first.plan is not second.plan
