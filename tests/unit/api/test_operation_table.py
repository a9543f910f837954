from collections import Counter

from proxy.api.context import Takes
from proxy.api.operation_table import OPERATIONS, POP_OPERATIONS, RECORD_OPERATIONS
from proxy.api.operation_table import OPERATIONS as ALL
from proxy.model.schema import RECORDS_SCHEMA


def test_every_operation_has_a_name_and_a_place_of_its_own():
    names = Counter(operation.name for operation in OPERATIONS)
    places = Counter((operation.method, operation.path) for operation in OPERATIONS)
    assert max([0, *names.values(), *places.values()]) <= 1


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


BY_NAME = {operation.name: operation for operation in POP_OPERATIONS}


def test_the_twelve_calls_and_the_health_check_are_there() -> None:
    records = "/v2/storage/records/{country}"
    one, files = records + "/{record_key}", records + "/{record_key}/attachments"
    assert {
        (one.method, one.path, one.success) for one in POP_OPERATIONS if one.name.startswith("pop_")
    } == {
        ("POST", records, 201),
        ("POST", records + "/batchWrite", 201),
        ("POST", records + "/find", 200),
        ("POST", records + "/batchDelete", 200),
        ("GET", one, 200),
        ("DELETE", one, 200),
        ("POST", files, 201),
        ("PUT", files, 201),
        ("GET", files + "/{file_id}", 200),
        ("DELETE", files + "/{file_id}", 204),
        ("GET", files + "/{file_id}/meta", 200),
        ("PATCH", files + "/{file_id}/meta", 200),
        ("GET", "/healthcheck", 200),
    }


def test_all_of_them_work_with_the_records_of_the_record_based_family() -> None:
    assert {operation.schema for operation in POP_OPERATIONS} == {"records"}


def test_only_uploads_of_this_interface_name_their_file_inside() -> None:
    inside = {operation.name for operation in POP_OPERATIONS if operation.named_inside}
    assert inside == {
        name for name, operation in BY_NAME.items() if operation.takes is Takes.STREAM
    }


def test_searches_write_nothing() -> None:
    assert {operation.name for operation in POP_OPERATIONS if operation.reads} == {
        "pop_find",
        "resolve_tokens",
    }
