from proxy.redactor.message import Spellings, header


def test_a_header_is_found_by_its_lower_case_name_and_the_first_wins():
    headers = ((b"X-A", b"1"), (b"CONTENT-type", b"text/html"), (b"content-type", b"text/plain"))
    assert header(headers, b"content-type") == b"text/html"
    assert header(headers, b"x-b") is None


def test_what_a_name_means_is_asked_once_for_each_spelling():
    asked: list[bytes] = []

    def meaning(name: bytes) -> int:
        asked.append(name)
        return len(name)

    names = Spellings(meaning)
    assert [names[b"A-b"], names[b"a-B"], names[b"A-b"], names[b""]] == [3, 3, 3, 0]
    assert asked == [b"a-b", b"a-b", b""]


def test_spellings_do_not_grow_beyond_their_bounds():
    names = Spellings(len)
    long = b"x" * (Spellings.LONGEST + 1)
    assert names[long] == len(long)
    assert long not in names
    for number in range(Spellings.MOST + 10):
        assert names[b"%07d" % number] == 7
    assert len(names) == 10
