import pytest
from jsonschema import Draft202012Validator

from proxy.api.openapi.types import model
from proxy.api.openapi.world import CONTACT, RECORDS
from proxy.model.record import DEFAULTS
from proxy.model.schema_document import read_definition

MODEL = model(read_definition("contact", CONTACT), DEFAULTS)


@pytest.mark.parametrize("record", RECORDS)
def test_a_record_fits_the_model_of_its_schema(record):
    Draft202012Validator(MODEL).validate(record)
    Draft202012Validator(MODEL).validate(
        {**record, "name": None, "expires_at": "2030-01-01T00:00:00.000Z"}
    )


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"id": ""},
        {"id": None},
        {"id": "k" * 129},
        {"id": "k", "other": 1},
        {"id": "k", "age": 1.5},
        {"id": "k", "age": 2**63},
        {"id": "k", "email": "e" * 257},
        {"id": "k", "active": "yes"},
        {"id": "k", "profile": []},
    ],
)
def test_what_the_service_would_refuse_does_not_fit(record):
    assert not Draft202012Validator(MODEL).is_valid(record)


def test_what_can_be_asked_of_a_field_is_told():
    assert "search_keys" in MODEL["properties"]["email"]["description"]
    assert "search_keys" not in MODEL["properties"]["manager"]["description"]
    assert "cannot be asked" in MODEL["properties"]["name"]["description"]
