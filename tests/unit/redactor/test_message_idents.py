import pytest

from proxy.redactor.message import canonical_uuid, numeric_id

UUID = "0192F3A4-7B6C-7D8E-9FA0-B1C2D3E4F506"


@pytest.mark.parametrize(
    "text", [UUID, UUID.replace("-", ""), "507F1F77BCF86CD799439011", UUID.title()]
)
def test_letter_case_of_long_hexadecimal_ids_means_nothing(text):
    assert canonical_uuid(text) == text.lower()


@pytest.mark.parametrize(
    "text", ["", "17", "ABCDEF", "Ann-Smith", "AAAAAAAAAAAAAAAAAAAAAAAG", UUID + " x", UUID.lower()]
)
def test_other_ids_stay_as_they_are(text):
    assert canonical_uuid(text) == text


@pytest.mark.parametrize(
    ("text", "plainly"),
    [
        ("01", "1"),
        ("+1", "1"),
        (" 1", "1"),
        ("1_0", "10"),
        ("\uff11", "1"),
        ("00", "0"),
        ("-07", "-7"),
    ],
)
def test_a_number_in_another_spelling(text, plainly):
    assert numeric_id(text) == plainly


@pytest.mark.parametrize(
    "text", ["1", "0", "-7", "", "a", "1.0", "0x1", "0" * 41, "9" * 5000, UUID]
)
def test_what_is_written_so_or_is_no_number(text):
    assert numeric_id(text) is None
