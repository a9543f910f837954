from proxy.net.reply import CallLimits


def test_idle_connections_are_given_up_before_common_servers_close_them():
    # Node closes after 5 s, uvicorn after 5 s; who gives up first never writes into a connection
    # that just ended.
    assert CallLimits().keep < 5


def test_every_wait_but_the_whole_is_bounded_by_default():
    limits = CallLimits()
    assert all(
        (
            limits.connect,
            limits.head,
            limits.idle,
            limits.connections,
            limits.head_bytes,
            limits.buffer_bytes,
        )
    )
    assert limits.total == 0
