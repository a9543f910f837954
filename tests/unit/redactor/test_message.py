from proxy.redactor.message import Answer, Request, header


def test_a_header_is_found_by_its_lower_case_name_and_the_first_wins():
    headers = ((b"X-A", b"1"), (b"CONTENT-type", b"text/html"), (b"content-type", b"text/plain"))
    assert header(headers, b"content-type") == b"text/html"
    assert header(headers, b"x-b") is None


def test_messages_are_replaced_not_changed():
    request = Request("GET", b"/", (), b"a")
    answer = Answer(200, (), b"a")
    assert request._replace(body=b"b").body == b"b"
    assert answer._replace(status=404) == Answer(404, (), b"a")
    assert (request.body, answer.status) == (b"a", 200)
