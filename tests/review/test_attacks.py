"""A real server under attack: nobody gets in, nothing is lost, and a rater can always go on."""

from __future__ import annotations

import re
import socket
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from earmark.review.server.app import CONTENT_POLICY, HEAD_SECONDS, MAX_CONNECTIONS
from named_attacks import ATTACKS, CLOSED, Reply, Target
from served_reviews import Running, answers, make_workspace, running, taught

N_SLOW = 200
N_PIPELINING = 300
N_ANSWERS = 100
"""By each of two servers; benchmarks/attacks.py sends 10,000."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("attacked")
    make_workspace(folder / "work")
    with running(folder / "work", folder / "aside") as found:
        yield replace(found, target=taught(found.target))


@pytest.fixture(scope="module")
def target(server: Running) -> Target:
    return server.target


def is_refused(reply: Reply) -> bool:
    return reply.status == CLOSED or 400 <= reply.status < 500


@pytest.mark.parametrize("name", ATTACKS)
def test_it_is_refused_and_a_rater_goes_on(target: Target, name: str) -> None:
    before = answers(target.root)
    reply = ATTACKS[name](target)
    assert is_refused(reply), reply
    assert answers(target.root) == before
    told = f"{reply.headers} {reply.body!r}"
    assert not any(secret in told for secret in (*target.tokens.values(), str(target.root)))
    if reply.headers.get("server") is None and reply.status not in (CLOSED, 400):
        assert reply.headers["content-security-policy"] == CONTENT_POLICY
    said = target.said()
    assert target.post(said).status == 201
    assert answers(target.root) == {*before, said["id"]}


def test_as_many_attacks_as_promised() -> None:
    assert len(ATTACKS) >= 60
    told = (Path(__file__).parents[2] / "SECURITY.md").read_text()
    assert re.search(rf"\b{len(ATTACKS)} requests\b", told), f"SECURITY.md: {len(ATTACKS)} requests"
    load = re.sub(r"\s+", " ", told)
    assert f"At most {MAX_CONNECTIONS} connections are open" in load
    assert f"closed after {HEAD_SECONDS:g} seconds" in load
    assert f"while {N_PIPELINING} connections pipeline requests" in load


def slow(target: Target, place: int) -> socket.socket:
    """Open a connection that says nothing, half a head, or half of what it posts."""
    connection = socket.create_connection(("127.0.0.1", target.port), timeout=20)
    head = f"POST /api/judgements HTTP/1.1\r\nHost: {target.home}\r\n"
    whole = f"{head}Cookie: {target.cookie()['Cookie']}\r\nContent-Type: application/json\r\n"
    connection.sendall(
        (b"", head.encode(), f"{whole}Content-Length: 300\r\n\r\n{{".encode())[place % 3]
    )
    return connection


def test_slow_connections_do_not_stop_a_rater(target: Target) -> None:
    before = answers(target.root)
    held = [slow(target, place) for place in range(N_SLOW)]
    for place in range(0, N_SLOW, 2):  # half of them go, in the middle of a word
        held[place].close()
    said = [target.said() for _ in range(5)]
    assert [target.post(one).status for one in said] == [201] * 5
    assert answers(target.root) == {*before, *(one["id"] for one in said)}
    for one in held:
        one.close()
    assert target.ask().status == 200


def test_pipelining_connections_that_never_read_do_not_stop_a_rater(server: Running) -> None:
    """Each sends requests until the server takes no more, and reads none of the answers."""
    target = server.target
    n_lines = len(server.log.read_text().splitlines())
    request = f"GET /static/review.js HTTP/1.1\r\nHost: {target.home}\r\n\r\n".encode()
    with ExitStack() as connections:
        for _ in range(N_PIPELINING):
            connection = connections.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            connection.connect(("127.0.0.1", target.port))
            connection.setblocking(False)
            with suppress(OSError):  # its buffer is full, or it was closed to make room
                connection.sendall(30 * request)
        for _ in range(5):
            assert len(list(Path(f"/proc/{server.process.pid}/fd").iterdir())) < 256
            said = target.said()
            assert target.post(said).status == 201
            assert said["id"] in answers(target.root)
    assert len(server.log.read_text().splitlines()) <= n_lines + 1


def test_a_second_request_on_a_connection_is_looked_at_like_the_first(target: Target) -> None:
    """What a connection may was not settled by its first request."""
    first = f"GET /api/session HTTP/1.1\r\nHost: {target.home}\r\nCookie: "
    first += f"{target.cookie()['Cookie']}\r\n\r\n"
    second = f"GET /api/session HTTP/1.1\r\nHost: {target.home}\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", target.port), timeout=20) as connection:
        connection.sendall((first + second).encode())
        got = b""
        while more := connection.recv(65_536):
            got += more
    assert [int(code) for code in re.findall(rb"HTTP/1\.1 (\d+)", got)] == [200, 403]


def test_an_upgrade_is_not_taken(target: Target) -> None:
    asked = {"Upgrade": "websocket", "Connection": "Upgrade, close", "Sec-WebSocket-Key": "a" * 24}
    assert target.ask(headers={**asked, "Sec-WebSocket-Version": "13"}, rater=None).status == 403


def test_the_cookie_is_for_this_page_alone(target: Target) -> None:
    reply = target.ask(f"/?token={target.tokens['ann']}", rater=None)
    name, *flags = reply.headers["set-cookie"].split("; ")
    assert name == f"earmark_{target.port}={target.tokens['ann']}"
    assert set(flags) == {"Path=/", "HttpOnly", "SameSite=Strict"}
    assert "set-cookie" not in target.ask().headers


HEADERS = {
    "content-security-policy": CONTENT_POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


@pytest.mark.parametrize("path", ["/", "/static/review.js", "/api/session", "/api/overview", "/no"])
def test_every_answer_has_the_headers_that_keep_others_out(target: Target, path: str) -> None:
    told = target.ask(path).headers
    assert {name: told.get(name) for name in HEADERS} == HEADERS
    assert not [name for name in told if name.startswith("access-control-")]
    assert "server" not in told


def test_two_servers_keep_every_answer(server: Running, tmp_path: Path) -> None:
    before = answers(server.target.root)
    with running(server.target.root, tmp_path) as other, ThreadPoolExecutor(4) as threads:
        second = replace(other.target, item=server.target.item)
        sent = [(at, at.said()) for _ in range(N_ANSWERS) for at in (server.target, second)]
        done = list(threads.map(lambda one: one[0].post(one[1]).status, sent))
    assert done == [201] * len(sent)
    assert answers(server.target.root) == {*before, *(str(one["id"]) for _, one in sent)}


def test_the_token_is_in_no_log_and_in_no_list_of_processes(server: Running) -> None:
    tokens = server.target.tokens.values()
    log = server.log.read_text()
    assert "Traceback" not in log
    seen = server.seen_by_browser.read_text()
    assert f"open_page_{server.target.port}.html" in seen  # what the browser was told to open
    listed = [path.read_bytes() for path in _command_lines()]
    for token in tokens:
        assert token not in log
        assert token not in seen
        assert not [line for line in listed if token.encode() in line]


def _command_lines() -> Iterator[Path]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            path.read_bytes()
        except OSError:
            continue
        yield path


def test_the_file_that_leads_to_the_page_is_the_owners_alone(server: Running) -> None:
    path = server.target.root / "review" / f"open_page_{server.target.port}.html"
    assert server.target.tokens["ann"] in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
