"""The lines of the record-based family."""

from proxy.api.operations import OPERATIONS as ALL
from proxy.api.operations import RECORD_OPERATIONS
from proxy.model.schema import RECORDS_SCHEMA


def test_they_are_in_the_table_and_work_with_one_schema() -> None:
    assert set(RECORD_OPERATIONS) <= set(ALL)
    for operation in RECORD_OPERATIONS:
        assert operation.path.startswith("/api/records")
        assert operation.schema == RECORDS_SCHEMA


def test_no_other_operation_has_a_schema_of_its_own() -> None:
    assert {operation.name for operation in ALL if operation.schema == RECORDS_SCHEMA} >= {
        operation.name for operation in RECORD_OPERATIONS
    }
    assert all(operation.schema is None for operation in ALL if "{schema}" in operation.path)
