"""Whatever no rule names is as if the proxy were not there: every exchange of a long list, directly
and through the proxy.

A real ``domicile serve`` with a real rule file stands between a recording application and a raw
caller. Every byte that may not differ is compared (``tests.support.differing`` says which may).
nginx, set to be as transparent as it can be, runs the same list as a control.
"""

from pathlib import Path

import pytest

from bench import peers
from bench.processes import Unavailable
from tests.support.differing import Case, Recorder, Seen, differences, listing
from tests.support.differing_cases import cases
from tests.support.instance import running
from tests.support.people import rules
from tests.support.rawclient import get
from tests.support.unavailable import Unavailable as Lacking

#: What we change, and why it stays so. Nothing else may differ.
KNOWN = {
    "status 200": "a space must follow the status, also where no reason does (RFC 9112 section 4): it is added",
}  # fmt: skip

#: nginx as transparent as it can be made: nothing buffered, merged, hidden, rewritten or refused
#: that a setting can prevent.
NGINX = """\
daemon off;
worker_processes 1;
pid nginx.pid;
error_log stderr crit;
{user}
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    scgi_temp_path scgi;
    uwsgi_temp_path uwsgi;
    underscores_in_headers on;
    ignore_invalid_headers off;
    merge_slashes off;
    client_max_body_size 0;
    large_client_header_buffers 8 64k;
    map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}
    upstream application {{ server 127.0.0.1:{upstream}; keepalive 16; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://application;
            proxy_http_version 1.1;
            proxy_set_header Host $http_host;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection $connection_upgrade;
            proxy_pass_header Server;
            proxy_pass_header Date;
            proxy_pass_header X-Accel-Buffering;
            proxy_pass_header X-Accel-Expires;
            proxy_buffering off;
            proxy_request_buffering off;
            proxy_buffer_size 64k;
            proxy_buffers 8 64k;
            proxy_next_upstream off;
            proxy_redirect off;
        }}
    }}
}}
"""


async def through(recorder: Recorder, port: int, direct: dict[Case, Seen]) -> dict[str, list[str]]:
    """What differs through the proxy at that port, by the name of the case.

    A difference counts when it comes again: where a machine stalls for a second, a half-closed
    caller looks like one that left.
    """
    found: dict[str, list[str]] = {}
    for case, seen in direct.items():
        texts = differences(seen, await recorder.drive(case, port))
        for _ in range(2 if texts else 0):
            texts = texts and differences(
                await recorder.directly(case), await recorder.drive(case, port)
            )
        if texts:
            found[case.name] = texts
    return found


async def test_nothing_differs_that_may_not_and_nginx_changes_more(
    tmp_path: Path, unavailable: Lacking
) -> None:
    recorder = Recorder()
    async with recorder.server as server, running(tmp_path, rules(server.url)) as instance:
        direct = {case: await recorder.directly(case) for case in cases()}
        assert len(direct) >= 150
        ours = await through(recorder, int(instance.proxy.rpartition(":")[2]), direct)
        try:
            folder = tmp_path / "nginx"
            folder.mkdir()
            with peers.nginx(server.port, folder, install=True, template=NGINX) as control:
                theirs = await through(recorder, control.port, direct)
        except Unavailable as reason:
            unavailable.partly("the exchanges of the differential test through nginx", str(reason))
            theirs = None
    told = f"Of {len(direct)} exchanges, {len(ours)} differ through Domicile:\n{listing(ours)}"
    assert set(ours) == set(KNOWN), told
    if theirs is not None:
        told += f"\n{len(theirs)} differ through nginx:\n{listing(theirs)}"
        print(told)
        assert len(ours) <= len(theirs), told


CHANGES = [
    (b"200 OK", b"200 Ok"),
    (b"X-a: 1", b"x-a: 1"),
    (b"X-a: 1\r\nY: 2", b"Y: 2\r\nX-a: 1"),
    (b"Y: 2\r\n", b"Y: 2\r\nY: 2\r\n"),
    (b"Y: 2\r\n", b""),
    (b"\xe9", b"\xc3\xa9"),
    (b"body", b"bodY"),
    (b"HTTP/1.1 103 Early Hints\r\n\r\n", b""),
]


@pytest.mark.parametrize(("one", "other"), CHANGES)
async def test_the_comparison_sees_a_change(one: bytes, other: bytes) -> None:
    head = (
        b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nX-a: 1\r\nY: 2\r\nZ: "
        b"\xe9\r\nContent-Length: 4\r\n\r\n"
    )
    case = Case("x", (get(),), (head + b"body",))
    changed = case._replace(answers=(case.answers[0].replace(one, other),))
    recorder = Recorder()
    async with recorder.server:
        direct = await recorder.directly(case)
        assert differences(direct, await recorder.directly(case)) == []
        assert differences(direct, await recorder.directly(changed)) != []
