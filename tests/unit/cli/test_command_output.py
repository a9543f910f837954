import json

from proxy.cli import command
from proxy.errors import Code, Detail, VaultError


def test_a_result_is_text_or_one_line_of_json(capsys):
    command.show({"name": "Åsa"}, "for people", as_json=False)
    command.show({"name": "Åsa"}, "for people", as_json=True)
    assert capsys.readouterr().out == 'for people\n{"name": "Åsa"}\n'


def test_what_is_counted_is_one_or_several():
    assert [command.count_noun(count, "line") for count in (0, 1, 2)] == [
        "0 lines",
        "1 line",
        "2 lines",
    ]


def test_each_detail_is_a_line_of_its_own():
    details = (Detail("a:1", "one"), Detail("b:2", "two"))
    assert command.detail_lines(details) == ["  a:1: one", "  b:2: two"]


def test_a_fault_without_details_is_its_message_alone(capsys):
    command.complain(VaultError(Code.PORT_IN_USE, "Choose another port."), as_json=False)
    assert capsys.readouterr().err == "domicile: Choose another port.\n"


def test_a_fault_as_json_holds_its_code():
    told = command.fault(VaultError(Code.BAD_KEYS, "Mend."))
    assert json.loads(json.dumps(told)) == {"code": "bad_keys", "message": "Mend.", "details": []}
