from proxy.redactor.path_template import Trie, parse_template


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
