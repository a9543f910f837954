import hashlib

from proxy.api.attachments import upload_attachment
from proxy.api.openapi.described import DESCRIBED
from proxy.api.openapi.world import FILE
from proxy.api.operations import OPERATIONS


def test_the_examples_tell_the_hash_and_size_of_the_file_that_is_there():
    (example,) = DESCRIBED["replace_attachment"].examples
    assert (example.answer["hash"], example.answer["size"]) == (
        hashlib.sha256(FILE[1]).hexdigest(),
        len(FILE[1]),
    )


def test_every_upload_says_that_it_takes_a_name_and_needs_one_part():
    uploads = [operation for operation in OPERATIONS if operation.path.endswith("/files")]
    assert upload_attachment in [operation.handler for operation in uploads]
    for operation in uploads:
        described = DESCRIBED[operation.name]
        assert [(given["name"], given["required"]) for given in described.parameters] == [
            ("x-filename", False)
        ]
        assert described.request is not None
        assert described.request["required"] == ["file"]
