from proxy.cli import main


def test_a_file_has_to_be_named(capsys):
    assert main(["export", "--schema", "contact"]) == 2
    assert "FILE" in capsys.readouterr().err
