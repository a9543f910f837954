import sys

from proxy.cli.command import progress


def test_a_terminal_sees_how_far_it_is(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    bar = progress("import", 10, "records", done=2)
    bar.update(3)
    bar.close()
    assert "5/10" in capsys.readouterr().err


def test_a_pipe_sees_nothing(capsys):
    bar = progress("import", 10, "records")
    bar.update(10)
    bar.close()
    assert capsys.readouterr().err == ""
