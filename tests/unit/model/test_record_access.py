from proxy.model.record import Principal


def test_a_client_is_no_administrator_unless_somebody_says_so():
    assert not Principal("c", "default").admin
