from proxy.api.openapi.exporting import DESCRIBED


def test_the_cursor_is_there_on_every_page():
    answer = DESCRIBED["export_records"].answer
    assert answer is not None
    assert "next" in answer["properties"]["meta"]["required"]
