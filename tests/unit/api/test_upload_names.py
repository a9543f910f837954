import pytest

from proxy.api.upload import of_header, of_part
from proxy.errors import Code, VaultError

FORM = 'form-data; name="file"'


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("a.txt", "a.txt"),
        ("a%20b.txt", "a b.txt"),
        ("100%.txt", "100%.txt"),
        ("UTF-8''p%C3%A5.txt", "på.txt"),
        (" å ", "å"),
    ],
)
def test_a_field_names_a_file_as_it_is_or_percent_encoded(given: str, name: str) -> None:
    assert of_header([given]) == name


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ('; filename="passport å.pdf"', "passport å.pdf"),
        ("; filename=a.txt", "a.txt"),
        ('; filename="a%22b;c.txt"', 'a"b;c.txt'),
        ('; filename="100%20.txt"', "100%20.txt"),
        ("; filename*=UTF-8''p%C3%A5.txt", "på.txt"),
        ("; filename=\"p.txt\"; filename*=utf-8'sv'p%C3%A5.txt", "på.txt"),
        ('; FILENAME="a.txt"', "a.txt"),
    ],
)
def test_a_part_names_a_file_as_browsers_and_libraries_do(more: str, name: str) -> None:
    assert of_part(FORM + more) == name


@pytest.mark.parametrize("given", [[], ["a", "b"], [""], ["a/b"], ["%FF"], ["a\x00b"], ["x" * 256]])
def test_a_field_that_cannot_be_used_is_told(given: list[str]) -> None:
    with pytest.raises(VaultError) as caught:
        of_header(given)
    assert (caught.value.code, [one.source for one in caught.value.details]) == (
        Code.INVALID_FILE,
        ["x-filename"],
    )


@pytest.mark.parametrize(
    "more",
    [
        "",
        '; filename=""',
        '; filename="a/b"',
        "; filename*=iso-8859-1''p%E5",
        "; filename*=UTF-8''%FF",
        '; filename="a%0Ab"',
    ],
)
def test_a_part_that_cannot_be_used_is_told(more: str) -> None:
    with pytest.raises(VaultError) as caught:
        of_part(FORM + more)
    assert (caught.value.code, [one.source for one in caught.value.details]) == (
        Code.INVALID_FILE,
        ["file"],
    )
