from proxy.api.openapi.assemble import assemble
from proxy.api.openapi.described import DESCRIBED
from proxy.api.openapi.text import PARAMETERS, STATUSES, TAGS
from proxy.api.operations import OPERATIONS


def test_every_tag_parameter_and_status_of_an_operation_has_its_sentence():
    document = assemble(OPERATIONS, DESCRIBED)
    operations = [
        operation for methods in document["paths"].values() for operation in methods.values()
    ]
    assert {operation["tags"][0] for operation in operations} <= TAGS.keys()
    assert all(text.endswith(".") for text in (*TAGS.values(), *STATUSES.values()))
    assert all(text.endswith(".") for text, _ in PARAMETERS.values())
    assert {status for operation in OPERATIONS for status in operation.failures} <= STATUSES.keys()
