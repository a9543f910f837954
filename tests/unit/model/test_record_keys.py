from proxy.model.record import KeyKind


def test_kinds_are_what_people_write():
    assert [str(kind) for kind in KeyKind] == ["data", "master", "signing"]
    assert KeyKind("data") is KeyKind.DATA
