from typing import Any

from proxy.functions.handle import Handle, RefusedError


def test_each_method_asks_one_operation():
    asked: list[tuple[str, Any]] = []

    def ask(operation: str, given: Any) -> Any:
        asked.append((operation, given))
        return {"data": [], "meta": {}}

    handle = Handle(ask)
    assert handle.get("contact", "c1") is None
    handle.aggregate("contact", {"metrics": {}})
    handle.create("contact", ({"id": "1"},))
    handle.update("contact", [{"id": "1"}])
    handle.delete("contact", "1")
    assert asked == [
        ("find", {"schema": "contact", "filter": {"record_key": "c1"}, "options": {"limit": 1}}),
        ("aggregate", {"schema": "contact", "request": {"metrics": {}}}),
        ("create", {"schema": "contact", "records": [{"id": "1"}]}),
        ("update", {"schema": "contact", "records": [{"id": "1"}]}),
        ("delete", {"schema": "contact", "key": "1"}),
    ]


def test_a_refusal_tells_status_and_code():
    assert str(RefusedError(404, "not_found")) == "404 not_found"
