import pytest

from proxy.model.schema import Value
from proxy.tokenization import make_shape
from tests.support.shapes import bound, is_email


def test_the_domain_is_reserved_unless_the_rule_names_another():
    assert bound("email").mint(Value("x"), 1, 1).text.endswith("@example.org")
    token = bound("email", domain="crm.example.net").mint(Value("x"), 1, 1).text
    assert token.endswith("@crm.example.net")
    assert is_email(token)
    assert bound("email").identify(token) is None


def test_letter_case_of_an_address_does_not_matter_to_its_same_token():
    tokenizer = bound("email", "email", same=True)
    assert tokenizer.mint(Value("Ann@Example.COM"), 1, 1) == tokenizer.mint(
        Value("ann@example.com "), 2, 2
    )


@pytest.mark.parametrize(
    "domain",
    [
        "", "localhost", "Example.org", "a..b", "-a.se", "a.se.", "a b.se", "x@y.se", "1.2.3.4",
        "a." * 130 + "se",
    ],
)  # fmt: skip
def test_a_domain_that_is_none_is_refused(domain):
    with pytest.raises(ValueError, match="domain"):
        make_shape("email", {"domain": domain})


def test_a_longer_domain_or_local_part_is_another_address():
    tokenizer = bound("email")
    token = tokenizer.mint(Value("x"), 1, 1).text
    for text in (f"{token}.uk", f"{token}-x", f"x.{token}", f"x-{token}"):
        assert tokenizer.pattern.search(text) is None
        assert tokenizer.identify(text) is None
    found = tokenizer.pattern.search(f"Write to <{token}>.")
    assert found is not None
    assert found[0] == token
