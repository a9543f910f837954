import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import Code, VaultError
from proxy.redactor import form
from proxy.redactor.form import Member, form_members, read_form_value, write_form_value
from proxy.redactor.restore import splice
from tests.support.table import table


def refusal(body: bytes, *declared: str, limit: int = 100) -> VaultError:
    with pytest.raises(VaultError) as caught:
        form_members(body, limit, declared)
    return caught.value


def test_members_come_in_order_with_the_spans_of_their_values():
    body = b"a=1&&b=&c&=x&a=2+3%20&%C3%A9%5B%5D=y=z&"
    found = form_members(body, 100)
    assert found == [
        Member("a", 2, 3),
        Member("b", 7, 7),
        Member("c", 9, 9, bare=True),
        Member("", 11, 12),
        Member("a", 15, 21),
        Member("é[]", 35, 38),
    ]
    assert [read_form_value(body[member.start : member.end]) for member in found] == [
        "1", "", "", "x", "2 3 ", "y=z",
    ]  # fmt: skip


def test_an_edit_gives_a_member_without_a_value_its_equals_sign():
    body = b"a&b=&c=1"
    assert (
        splice(body, [member.edit("x y") for member in form_members(body, 9)])
        == b"a=x+y&b=x+y&c=x+y"
    )


def test_an_empty_form_has_no_members():
    assert form_members(b"", 0) == []
    assert form_members(b"&", 2, ("a",)) == []


def test_more_members_than_allowed_are_too_large():
    assert len(form_members(b"a=1&b=2", 2)) == 2
    assert refusal(b"a=1&b=2&c=3", limit=2).code is Code.TOO_LARGE


def test_a_declared_name_may_repeat_and_be_encoded():
    body = b"email=a&%65mail=b&email%5B%5D=c&other=d"
    assert [member.name for member in form_members(body, 9, ("email", "email[]"))] == [
        "email",
        "email",
        "email[]",
        "other",
    ]


@table(
    "name",
    [
        *(b"email[]", b"email%5B0%5D", b"EMAIL[a][b]", b"user[email][]", b"x;email[]", b"[email]"),
        *(
            b"email.first", b"user.email", b"User.Email.x", b"user/email", b"/user/email",
            b"user->email", b"user.email[]",
        ),
    ],
)  # fmt: skip
def test_a_name_nested_in_a_declared_one_is_ambiguous(name):
    assert refusal(b"x=1&" + name + b"=a", "email", "user[email]").code is Code.AMBIGUOUS_JSON
    assert form_members(
        b"user[name]=a&user[]=b&[phone]=c&user.name=d&x.email=e&user=f", 9, ("email", "user[email]")
    )


def test_a_name_of_many_brackets_costs_little():
    for sign in (b"[", b".", b"[]", b"]["):
        assert len(form_members(b"a" + sign * 100_000 + b"=a", 9, ("email", "user[*]"))) == 1


@table(
    "name",
    [
        b"Email", b"EMAIL", b"ema%C4%B1l", b"+email", b"email+", b"%09email", b"email%00x",
        b"%u0065mail", b"em%u0061il", b"email%E2%80%8B", b"%EF%BB%BFemail",
    ],
)  # fmt: skip
def test_a_name_that_only_some_applications_take_for_a_declared_one_is_ambiguous(name):
    fault = refusal(b"x=1&" + name + b"=a", "phone", "email")
    assert fault.code is Code.AMBIGUOUS_JSON
    assert [one.source for one in fault.details] == ["email"], "as the rule spells it"
    assert form_members(name + b"=a", 9, ("phone",))


@table("name", [b"user.email", b"user+email", b"User_Email"])
def test_php_takes_dots_and_spaces_for_underscores(name):
    assert refusal(name + b"=a", "user_email").code is Code.AMBIGUOUS_JSON


@table(
    ("declared", "name", "resembles"),
    [
        ("first_name", "firstName", True),
        ("first_name", "FIRST-NAME", True),
        ("firstName", "first_name", True),
        ("first_name", "_first__name_", True),
        ("first_name", "name", False),
        ("_", "name", False),
        ("name", "_", False),
        ("user[first_name]", "user[firstName]", True),
        ("user[first_name]", "user.firstName", True),
        ("user[first_name]", "firstName", False),
        ("form-*-first_name", "form-0-first_name", False),
        ("form-*-name", "form-0-first_name", False),
        ("form-*-name", "FORM-0-Na_me", True),
        ("form-*-first_name", "form-0-firstName", True),
        ("*_name", "filename", False),
        ("*_name", "petName", True),
        ("*_email", "workEmail", True),
        ("*_email", "HTTPEmail", True),
        ("*_email", "workemail", False),
        ("*-email", "workEmail", False),
        ("email_*", "emailOfWork", True),
        ("user[*_email]", "user[workEmail]", True),
        ("work_email", "workE_mail", True),
        ("tag_*", "tags", False),
        ("tag_*", "TA-G_1", True),
    ],
)
def test_servers_translate_names_by_signs_and_letter_case(declared, name, resembles):
    body = f"x=1&{name}=a".encode()
    if resembles:
        assert refusal(body, declared).code is Code.AMBIGUOUS_JSON
    assert len(form_members(body, 9, (declared,), (name,))) == 2
    assert resembles or len(form_members(body, 9, (declared,))) == 2


def test_patterns_are_declared_names_too():
    assert [member.name for member in form_members(b"email_2=a&emails=b", 9, ("email_*",))] == [
        "email_2",
        "emails",
    ]
    assert refusal(b"Email_2=a", "email_*").code is Code.AMBIGUOUS_JSON
    assert form_members(b"filter[0][email]=a", 9, ("filter[*][email]",))


def test_a_declared_name_behind_a_semicolon_is_ambiguous():
    assert refusal(b"x=1;email=a", "email").code is Code.AMBIGUOUS_JSON
    assert refusal(b"x=1;Email=a", "email").code is Code.AMBIGUOUS_JSON
    assert refusal(b"x=1;em%FFail=a&y", "email").code is Code.AMBIGUOUS_JSON
    assert [member.name for member in form_members(b"x=1;y=2&email=a;b", 9, ("email",))] == [
        "x",
        "email",
    ]
    assert refusal(b"x=1;a;b;c", "email", limit=2).code is Code.TOO_LARGE
    assert form_members(b"x=1;a;b;a=1;b;a", 2, ("email",))


def test_a_name_that_is_not_utf8_is_unreadable_where_names_are_declared():
    assert refusal(b"em%FFail=a", "email").code is Code.UNREADABLE_BODY
    assert refusal(b"x=1&\xe9=a", "email").code is Code.UNREADABLE_BODY
    assert refusal("email=a".encode("utf-16-le"), "email").code is Code.UNREADABLE_BODY
    assert refusal("email=a".encode("utf-16-be"), "email").code is Code.UNREADABLE_BODY
    assert [member.name for member in form_members(b"em%FFail=a", 9)] == ["email"]


def test_a_broken_percent_in_a_name_stays_as_it_is():
    assert [member.name for member in form_members(b"100%=a&%zz=b&%4=c", 9, ("email",))] == [
        "100%",
        "%zz",
        "%4",
    ]


def test_a_form_in_another_charset_is_unreadable_where_names_are_declared():
    assert refusal(b"email=a&_charset_=ISO-8859-1", "email").code is Code.UNREADABLE_BODY
    for charset in (b"", b"=", b"=UTF-8"):
        assert len(form_members(b"email=a&_charset_" + charset, 9, ("email",))) == 2


@table("raw", [b"100%", b"%zz", b"%4", b"%FF", b"\xe9", b"%ED%A0%80", b"%C3"])
def test_a_value_that_is_no_percent_encoded_utf8_is_unreadable_when_it_is_read(raw):
    body = b"x=" + raw + b"&email=a"
    assert len(form_members(body, 9, ("email",))) == 2
    with pytest.raises(VaultError) as caught:
        read_form_value(memoryview(raw))
    assert caught.value.code is Code.UNREADABLE_BODY


def test_a_value_is_written_as_browsers_write_it():
    assert write_form_value("a b+c&d=é*-._/\n") == b"a+b%2Bc%26d%3D%C3%A9*-._%2F%0A"
    with pytest.raises(VaultError) as caught:
        write_form_value("Quentin\ud800")
    assert caught.value.code is Code.VALUE_UNFIT
    assert caught.value.__context__ is None


def test_stars_stand_for_any_characters():
    assert form.pattern_matches("email_*", "email_")
    assert form.pattern_matches("filter[*][email]", "filter[3][email]")
    assert not form.pattern_matches("email", "email2")


def test_harmless_names_are_remembered_within_bounds(monkeypatch):
    monkeypatch.setattr(form, "_CAPACITY", 3)
    watch = form._Watch(("email",), ())
    for name in ("a", "b", "c", "d", "x" * 100):
        assert not watch.doubtful(name)
    assert watch._harmless == {"d"}
    assert watch.doubtful("Email")


@table("name", [b"first[name", b"first%5Bname", b"First[name", b" first%5bname"])
def test_a_bracket_that_nothing_closes_is_an_underscore_to_php(name):
    with pytest.raises(VaultError) as caught:
        form_members(name + b"=Ann", 9, ("first_name",))
    assert caught.value.code is Code.AMBIGUOUS_JSON


# ---- globs


PATTERN = st.text(alphabet="ab*", max_size=5)
WORDS = ["".join(letters) for size in range(7) for letters in itertools.product("ab", repeat=size)]


def test_a_star_stands_for_anything_and_brackets_for_themselves():
    fits = form.compiled("filter[*][email]").fullmatch
    assert fits("filter[0][email]")
    assert fits("filter[][email]")
    assert not fits("filter0email")
    assert not fits("filter[0][email]x")


def test_a_plain_name_weighs_more_than_any_pattern_and_a_longer_pattern_more_than_a_shorter():
    names = ["*", "email_*", "email", "email_home_*"]
    assert sorted(names, key=form.pattern_weight, reverse=True) == [
        "email",
        "email_home_*",
        "email_*",
        "*",
    ]


@given(PATTERN, PATTERN)
def test_patterns_overlap_exactly_when_some_word_fits_both(one, other):
    common = any(
        form.compiled(one).fullmatch(word) and form.compiled(other).fullmatch(word)
        for word in WORDS
    )
    if len(one) + len(other) <= 6 or "*" not in one + other:
        assert form.patterns_overlap(one, other) == common
    elif common:
        assert form.patterns_overlap(one, other)


@given(PATTERN)
def test_a_pattern_fits_what_a_plain_expression_fits(pattern):
    plain = re.compile(".*".join(pattern.split("*")))
    for word in WORDS:
        assert (form.compiled(pattern).fullmatch(word) is None) == (plain.fullmatch(word) is None)


def test_many_stars_take_no_longer_on_a_long_name_that_does_not_fit():
    assert form.compiled("*a*a*a*a*a*a*a*b").fullmatch("a" * 10_000) is None
