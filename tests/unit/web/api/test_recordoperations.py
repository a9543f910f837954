"""The lines of the record-based family."""

from proxy.model.builtin import RECORDS
from proxy.web.api.operations import OPERATIONS as ALL
from proxy.web.api.recordoperations import OPERATIONS


def test_they_are_in_the_table_and_work_with_one_schema() -> None:
    assert set(OPERATIONS) <= set(ALL)
    for operation in OPERATIONS:
        assert operation.path.startswith("/api/records")
        assert operation.schema == RECORDS


def test_no_other_operation_has_a_schema_of_its_own() -> None:
    assert {operation.name for operation in ALL if operation.schema == RECORDS} >= {
        operation.name for operation in OPERATIONS
    }
    assert all(operation.schema is None for operation in ALL if "{schema}" in operation.path)
