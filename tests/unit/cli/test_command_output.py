from proxy.cli import command


def test_a_result_is_text_or_one_line_of_json(capsys):
    command.show({"name": "Åsa"}, "for people", as_json=False)
    command.show({"name": "Åsa"}, "for people", as_json=True)
    assert capsys.readouterr().out == 'for people\n{"name": "Åsa"}\n'
