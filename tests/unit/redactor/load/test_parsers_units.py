import pytest

from proxy.redactor.load.parsers import Duration, Size, Status
from tests.support.rules import read_form


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2MiB", 2 * 1024 * 1024),
        ("512KiB", 512 * 1024),
        ("1 GiB", 1024**3),
        ("5MB", 5_000_000),
        ("7B", 7),
        ("123", 123),
    ],
)
def test_sizes_are_bytes(text, size):
    assert read_form(Size(), text) == (size, [])


@pytest.mark.parametrize("text", ["0", "-1", "2M", "2 mib", "1.5MiB", "0B", "[1]", "1e3"])
def test_what_is_no_size_is_refused(text):
    value, faults = read_form(Size(), text)
    assert value is None
    assert "2MiB" in faults[0]


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1s", 1000),
        ("2m", 120_000),
        ("12h", 43_200_000),
        ("90d", 7_776_000_000),
        ("1w", 604_800_000),
        ("7y", 7 * 365 * 86_400_000),
    ],
)
def test_durations_are_milliseconds(text, milliseconds):
    assert read_form(Duration(), text) == (milliseconds, [])


@pytest.mark.parametrize("text", ["0d", "7", "1M", "-1d", "{a: b}", "1d2h"])
def test_what_is_no_duration_is_refused(text):
    value, faults = read_form(Duration(), text)
    assert value is None
    assert "7y" in faults[0]


def test_a_status_is_a_number_within_bounds_or_the_word():
    assert read_form(Status(400, 599), "503") == (503, [])
    assert read_form(Status(400, 599, "tokens"), "tokens") == ("tokens", [])
    assert read_form(Status(400, 599), "tokens")[1] == [
        "f:1:1: this must be an HTTP status from 400 to 599"
    ]
    assert read_form(Status(400, 599), '"503"')[0] is None
    assert read_form(Status(400, 599), "600")[0] is None


def test_labels_and_schemas_name_the_bounds():
    assert Status(400, 599, "tokens").label == "`tokens` or status from 400 to 599"
    assert {"const": "tokens"} in Status(400, 599, "tokens").schema()["anyOf"]
    assert Status(1, 2).schema() == {"type": "integer", "minimum": 1, "maximum": 2}
    assert Duration().schema()["pattern"].startswith("^")
    assert Size().schema()["anyOf"][1] == {"type": "integer", "minimum": 1}
