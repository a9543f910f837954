from proxy.api.openapi.pop import DESCRIBED
from proxy.api.operations import POP_OPERATIONS


def test_every_operation_names_the_environment_and_shows_it() -> None:
    for name, described in DESCRIBED.items():
        assert "x-env-id" in [one["name"] for one in described.parameters], name
        assert any("x-env-id" in example.headers for example in described.examples), name


def test_writes_tell_who_seals() -> None:
    assert "X-Encrypted-Storage" in [one["name"] for one in DESCRIBED["pop_write"].parameters]
    assert {
        example.headers.get("X-Encrypted-Storage") for example in DESCRIBED["pop_write"].examples
    } == {"true", None}


def test_only_what_is_an_operation_is_described() -> None:
    assert DESCRIBED.keys() == {one.name for one in POP_OPERATIONS if one.name.startswith("pop_")}


def test_no_upload_asks_for_the_field_that_the_other_families_have() -> None:
    assert not [
        one for item in DESCRIBED.values() for one in item.parameters if one["name"] == "x-filename"
    ]
