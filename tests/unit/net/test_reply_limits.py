from proxy.net.reply import CallLimits


def test_idle_connections_are_given_up_before_common_servers_close_them():
    # Node closes after 5 s, uvicorn after 5 s; who gives up first never writes into a connection
    # that just ended.
    assert CallLimits().keep < 5
