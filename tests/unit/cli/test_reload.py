from proxy.cli import main


def test_without_credentials_it_says_which_are_missing(told):
    refused = told("reload", status=1)
    assert refused["code"] == "bad_settings"
    assert "DOMICILE_CLIENT_ID" in refused["message"]


def test_an_address_that_is_none_is_wrong_usage(capsys):
    assert main(["reload", "--url", "vault"]) == 2
    assert "write scheme, host and port" in capsys.readouterr().err
