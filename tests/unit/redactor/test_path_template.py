import pytest

from proxy.redactor.path_template import SegmentKind, Trie, covers, meet, overlaps, parse_template
from tests.support.table import table


def kinds(text: str) -> list[SegmentKind]:
    return [segment.kind for segment in parse_template(text).segments]


def test_segments_are_literal_mixed_one_or_rest():
    assert kinds("/a/{id}.json/{id2}/{rest*}") == [
        SegmentKind.LITERAL,
        SegmentKind.MIXED,
        SegmentKind.ONE,
        SegmentKind.REST,
    ]
    assert parse_template("/a/{x}.{y}").names == ("x", "y")
    assert kinds("/") == []


@table(
    "text, words",
    [
        ("a", "begins with"),
        ("/a b", "no spaces"),
        ("/a?b", "query:"),
        ("/a#b", "browsers do not send"),
        ("/a%20", "every spelling"),
        ("/a;v=1", "';' parameters"),
        ("/a\\b", "backslashes"),
        ("/{}", "not a placeholder"),
        ("/{a-b}", "not a placeholder"),
        ("/{a", "unmatched brace"),
        ("/a}", "unmatched brace"),
        ("/{a}{b}", "text between"),
        ("/a*", "text between"),
        ("/x{a*}", "whole segment"),
        ("/{a*}/b", "must stand last"),
        ("/{a}/{a}", "stands twice"),
        ("/a/./b", "without '.'"),
    ],
)
def test_what_is_no_template_is_refused_with_what_to_write(text, words):
    with pytest.raises(ValueError, match=words.replace("?", "\\?")):
        parse_template(text)


@table(
    ("wide", "narrow"),
    [
        ("/a/{x}", "/a/b"), ("/{x}", "/{x}.json"), ("/{x}b", "/{x}ab"), ("/a/{r*}", "/a/{x}"),
        ("/a/{r*}", "/a/{x}/b"), ("/{r*}", "/a/{r*}"), ("/{x}", "/{y}"), ("/a", "/a/"),
    ],
)  # fmt: skip
def test_a_template_covers_what_matches_a_part_of_it(wide, narrow):
    assert covers(parse_template(wide), parse_template(narrow))
    assert overlaps(parse_template(wide), parse_template(narrow))
    if parse_template(wide).shape != parse_template(narrow).shape:
        assert not covers(parse_template(narrow), parse_template(wide))


@table(
    ("one", "other", "common"),
    [
        ("/a/{x}", "/{y}/b", "/a/b"),
        ("/a/{x}/{r*}", "/{y}/b/{r*}", "/a/b/{r*}"),
        ("/{x}/{r*}", "/a/{y}/c", None),
        ("/a{x}", "/{y}b", None),
    ],
)
def test_templates_that_overlap_meet_in_a_template_or_in_none(one, other, common):
    first, second = parse_template(one), parse_template(other)
    assert overlaps(first, second)
    assert overlaps(second, first)
    if common is not None:
        assert meet(first, second) == meet(second, first) == parse_template(common).shape
    elif not covers(first, second):
        assert meet(first, second) is None


@table(
    ("one", "other"),
    [("/a", "/b"), ("/a/{x}", "/b/{x}"), ("/a", "/a/b"), ("/a/{r*}", "/a"), ("/{x}.a", "/{x}.b")],
)
def test_templates_without_a_common_path_do_not_overlap(one, other):
    assert not overlaps(parse_template(one), parse_template(other))
    assert not overlaps(parse_template(other), parse_template(one))


def test_a_mixed_segment_takes_at_least_one_character_for_each_placeholder():
    regex = parse_template("/{a}.{b}").segments[0].regex()
    found = regex.fullmatch(b"x.tar.gz")
    assert found is not None
    assert found.groups() == (b"x", b"tar.gz")
    assert regex.fullmatch(b".gz") is None


@table(
    ("text", "written"),
    [
        ("/contacts/:id", "/contacts/{id}"),
        ("/contacts/:id.json", "/contacts/{id}.json"),
        ("/contacts/<int:id>", "/contacts/{id}"),
        ("/contacts/<id>/photo", "/contacts/{id}/photo"),
        ("/contacts/{id:int}", "/contacts/{id}"),
        ("/contacts/{id:[0-9]{2}}", "/contacts/{id}"),
        (r"^/contacts/(?P<id>\d+)$", "/contacts/{id}"),
        (r"/contacts/(\d+)/x", "/contacts/{id}/x"),
        ("/contacts/[0-9]+", "/contacts/{id}"),
        ("/contacts/.*", "/contacts/{id}"),
        ("/files/*", "/files/{rest*}"),
        ("/a/{id}/(b|c)", "/a/{id}/{id2}"),
    ],
)
def test_placeholders_of_other_frameworks_are_told_in_the_right_spelling(text, written):
    with pytest.raises(ValueError, match="write") as caught:
        parse_template(text)
    assert str(caught.value).endswith(f"; write {written}")
    assert parse_template(written).names


@table(
    "text",
    ["/v1/foo:bar", "/a+b", "/odata/$metadata", "/Contacts(17)", "/{id}.json", "/a/b:c/{id}"],
)
def test_what_only_looks_like_one_is_a_path(text):
    assert parse_template(text).text == text


# ---- trie


def trie(*templates: str, fold: bool = False) -> Trie[str]:
    made: Trie[str] = Trie(fold=fold)
    for template in templates:
        made.add(parse_template(template), template)
    return made


def find(made: Trie[str], path: str) -> tuple[str, dict[str, bytes]] | None:
    found = made.find([part.encode() for part in path.split("/") if part])
    return None if found is None else (found[0], dict(zip(found[1], found[2], strict=True)))


def test_the_most_specific_template_wins_whatever_the_order():
    templates = ["/a/{rest*}", "/a/{x}", "/a/{x}.json", "/a/b.json", "/a/long{x}.json"]
    for order in (templates, templates[::-1]):
        made = trie(*order)
        assert find(made, "/a/b.json") == ("/a/b.json", {})
        assert find(made, "/a/c.json") == ("/a/{x}.json", {"x": b"c"})
        assert find(made, "/a/long7.json") == ("/a/long{x}.json", {"x": b"7"})
        assert find(made, "/a/c") == ("/a/{x}", {"x": b"c"})
        assert find(made, "/a/c/d") == ("/a/{rest*}", {"rest": b"c/d"})
        assert find(made, "/a") is None


def test_a_dead_end_below_a_specific_child_turns_back_to_a_wider_one():
    made = trie("/a/b/c", "/{x}/b/d", "/{x}/{y}.z/e", "/{r*}")
    assert find(made, "/a/b/c") == ("/a/b/c", {})
    assert find(made, "/a/b/d") == ("/{x}/b/d", {"x": b"a"})
    assert find(made, "/a/q.z/e") == ("/{x}/{y}.z/e", {"x": b"a", "y": b"q"})
    assert find(made, "/a/b/x") == ("/{r*}", {"r": b"a/b/x"})


def test_names_of_placeholders_are_those_of_the_template_that_matched():
    made = trie("/a/{one}/x", "/a/{two}/y")
    assert find(made, "/a/1/x") == ("/a/{one}/x", {"one": b"1"})
    assert find(made, "/a/1/y") == ("/a/{two}/y", {"two": b"1"})


def test_folding_ignores_letter_case_of_literals_and_keeps_that_of_values():
    made = trie("/Api/{id}", "/api/x-{id}", fold=True)
    assert find(made, "/aPI/AbC") == ("/Api/{id}", {"id": b"AbC"})
    assert find(made, "/API/X-AbC") == ("/api/x-{id}", {"id": b"AbC"})


def test_the_first_of_two_equal_templates_stays():
    assert find(trie("/a/{x}", "/a/{y}"), "/a/1") == ("/a/{x}", {"x": b"1"})


def test_the_root_is_a_template_too():
    assert find(trie("/"), "/") == ("/", {})
    assert find(trie("/a"), "/") is None
