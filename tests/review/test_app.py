from __future__ import annotations

import gc
import http.client
import json
import socket
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from earmark.config import ReviewParams
from earmark.errors import EarmarkError
from earmark.review.server import app as server_app
from earmark.review.server import check_server
from earmark.review.server.app import (
    CONTENT_POLICY,
    MAX_BODY_BYTES,
    Place,
    make_app,
    make_server,
    make_tokens,
    open_socket,
)
from earmark.review.server.session import Posted, ReviewSession
from listening import open_tones
from store_troubles import store_trouble

PLACE = Place("127.0.0.1", 8321)
HOME = "http://127.0.0.1:8321"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReviewSession]:
    opened = open_tones(tmp_path_factory.mktemp("review"), raters=("ann", "bob"), n_clips=40)
    yield opened
    opened.judgements.close()


def sign_in(session: ReviewSession, rater: str = "ann") -> TestClient:
    tokens = make_tokens(session.raters)
    client = TestClient(make_app(session, tokens, PLACE), HOME, raise_server_exceptions=False)
    token = next(token for token, name in tokens.items() if name == rater)
    assert client.get("/", params={"token": token}).status_code == 200
    return client


@pytest.fixture
def client(session: ReviewSession) -> TestClient:
    return sign_in(session)


def said(session: ReviewSession, place: int = 0, **changes: object) -> dict[str, object]:
    posted = {
        "id": str(uuid.uuid4()),
        "at": "2026-03-01T12:00:00.000Z",
        "rater": "ann",
        "item": session.queue.items["item"][place],
        "answer": "present",
        "heard_seconds": 1.5,
        "whole_clip": False,
        "shown_score": False,
        "shown_picture": True,
        "retracts": None,
    }
    return posted | changes


def n_stored(session: ReviewSession) -> int:
    return len(session.judgements.rows())


# Who may come in


@pytest.mark.parametrize("path", ["/", "/api/session", "/static/review.js", "/clips/x.wav", "/no"])
def test_nobody_comes_in_without_the_token(session: ReviewSession, path: str) -> None:
    client = TestClient(make_app(session, make_tokens(["ann"]), PLACE), HOME)
    for token in (None, "", "guessed", "é"):
        params = None if token is None else {"token": token}
        assert client.get(path, params=params).status_code == 403


def test_the_token_becomes_a_cookie_that_scripts_and_other_sites_cannot_use(
    session: ReviewSession,
) -> None:
    tokens = make_tokens(["ann"])
    client = TestClient(make_app(session, tokens, PLACE), HOME)
    cookie = client.get("/", params={"token": next(iter(tokens))}).headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert client.get("/api/session").json()["rater"] == "ann"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8321", "127.0.0.1:80", "127.0.0.1", "192.168.1.2:8321"]
)
def test_another_host_is_refused(client: TestClient, host: str) -> None:
    assert client.get("/api/session", headers={"Host": host}).status_code == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9999"])
def test_another_origin_is_refused_and_nothing_is_stored(
    client: TestClient, session: ReviewSession, origin: str
) -> None:
    before = n_stored(session)
    answer = client.post("/api/judgements", json=said(session), headers={"Origin": origin})
    assert answer.status_code == 403
    assert n_stored(session) == before
    assert client.get("/api/session", headers={"Origin": HOME}).status_code == 200


@pytest.mark.parametrize(
    ("place", "host", "is_named"),
    [
        (PLACE, "localhost:8321", True),
        (PLACE, "[::1]:8321", True),
        (PLACE, "", False),
        (Place("0.0.0.0", 80), "192.168.1.2:80", True),
        (Place("0.0.0.0", 80), "evil.example:80", False),
        (Place("studio.local", 80), "Studio.local:80", True),
    ],
)
def test_a_server_knows_its_own_names(place: Place, host: str, is_named: bool) -> None:
    assert place.is_named(host) is is_named


def test_addresses_can_be_opened() -> None:
    assert Place("0.0.0.0", 80).url("t") == "http://127.0.0.1:80/?token=t"
    assert Place("::1", 80).url("t") == "http://[::1]:80/?token=t"
    assert not Place("0.0.0.0", 80).is_loopback


def test_a_port_that_is_taken_is_named_with_a_way_out() -> None:
    with open_socket("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(EarmarkError, match=f"port {port}.*--port 0"):
            open_socket("127.0.0.1", port)


@pytest.mark.parametrize("path", ["/", "/api/session", "/no/such/page"])
def test_every_response_forbids_scripts_and_requests_from_elsewhere(
    client: TestClient, path: str
) -> None:
    headers = client.get(path).headers
    assert headers["content-security-policy"] == CONTENT_POLICY
    assert "unsafe" not in CONTENT_POLICY
    assert headers["x-content-type-options"] == "nosniff"


def test_the_page_obeys_its_own_policy(client: TestClient) -> None:
    page = client.get("/").text
    for forbidden in ("<style", "style=", "onclick", "http://", "https://", "<script>"):
        assert forbidden not in page


# What is served


def test_a_clip_can_be_had_whole_and_in_parts(client: TestClient, session: ReviewSession) -> None:
    address = f"/clips/{session.queue.items['item'][0]}.wav"
    whole = client.get(address)
    assert whole.headers["content-type"] == "audio/wav"
    part = client.get(address, headers={"Range": "bytes=10-19"})
    assert part.status_code == 206
    assert part.content == whole.content[10:20]
    assert part.headers["content-range"] == f"bytes 10-19/{len(whole.content)}"
    assert client.get(address, headers={"Range": "bytes=99999999-"}).status_code == 416


def test_pictures_and_examples_are_served(client: TestClient) -> None:
    card = client.get("/api/blocks/0").json()["cards"][0]
    for clip in (*card["examples"], card["decoy"]):
        assert client.get(f"/clips/{clip['id']}.wav").status_code == 200
        assert client.get(f"/pictures/{clip['id']}.png").headers["content-type"] == "image/png"


@pytest.mark.parametrize(
    "path",
    [
        "/clips/../../etc/passwd.wav", "/clips/..%2f..%2fclip000.wav", "/clips/clip000.wav",
        "/clips/%00.wav", "/static/../server.py", "/static/..%2fserver.py", "/static/__init__.py",
        "/static/", "/pictures/x.png", "/api/blocks/999", "/api/blocks/-1", "/api/blocks/x",
        "/api/items/x/score", "/api/blocks/99/summary", "//etc/passwd", "/audio/clip000.wav",
        "/api/blocks/99999999999999999999999999",
    ],
)  # fmt: skip
def test_nothing_else_is_served(client: TestClient, path: str) -> None:
    assert 400 <= client.get(path).status_code < 500
    assert client.get("/api/session").status_code == 200


def test_a_clip_that_cannot_be_read_says_why_and_not_where(tmp_path: Path) -> None:
    session = open_tones(tmp_path, n_clips=20)
    client = sign_in(session)
    item, clip_id = session.queue.items.select("item", "clip_id").row(0)
    (tmp_path / "audio" / f"{clip_id}.wav").unlink()
    answer = client.get(f"/clips/{item}.wav")
    assert answer.status_code == 404
    assert answer.json() == {"error": "no such file or directory"}
    session.judgements.close()


# What is stored


def test_a_judgement_is_stored_once_however_often_it_is_sent(
    client: TestClient, session: ReviewSession
) -> None:
    posted, before = said(session), n_stored(session)
    assert client.post("/api/judgements", json=posted).status_code == 201
    assert client.post("/api/judgements", json=posted).status_code == 200
    assert n_stored(session) == before + 1
    changed = posted | {"answer": "unsure"}
    assert client.post("/api/judgements", json=changed).status_code == 409
    assert n_stored(session) == before + 1


@pytest.mark.parametrize("retracts", [None, "3b241101-e2bb-4255-8caf-4136c566a962"])
def test_a_post_with_both_or_neither_answer_and_retraction_is_malformed(
    client: TestClient, session: ReviewSession, retracts: str | None
) -> None:
    posted = said(session) | {"retracts": retracts, "answer": retracts and "present"}
    before, answer = n_stored(session), client.post("/api/judgements", json=posted)
    assert answer.status_code == 422
    assert "either an answer or the id that it retracts" in answer.json()["error"]
    assert n_stored(session) == before


@pytest.fixture
def own_session(tmp_path: Path) -> Iterator[ReviewSession]:
    opened = open_tones(tmp_path, raters=("ann", "bob"), n_clips=40)
    yield opened
    opened.judgements.close()


@pytest.mark.parametrize("trouble", ["full", "locked", "readonly"])
def test_trouble_of_the_store_is_no_fault_of_the_answer(
    own_session: ReviewSession, trouble: str
) -> None:
    client, store = sign_in(own_session), own_session.judgements
    with store_trouble(store, trouble) as reason:
        posted = said(own_session, 1)
        for _ in range(2):
            answer = client.post("/api/judgements", json=posted)
            assert (answer.status_code, reason in answer.json()["error"]) == (503, True)
            assert str(own_session.workspace.root) not in answer.text
    assert posted["id"] not in store.rows()["id"]
    assert client.post("/api/judgements", json=posted).status_code == 201


def test_clip_class_and_queue_are_added_by_the_server(
    client: TestClient, session: ReviewSession
) -> None:
    posted = said(session, 1, span_start=0.25, span_end=1.0)
    client.post("/api/judgements", json=posted)
    row = session.judgements.rows().row(by_predicate=pl.col("id") == posted["id"], named=True)
    item = session.queue.items.row(1, named=True)
    assert (row["clip_id"], row["class_id"]) == (item["clip_id"], item["class_id"])
    assert row["queue_digest"] == session.queue.digest
    assert row["heard_seconds"] == 1.5
    assert (row["span_start"], row["span_end"]) == (0.25, 1.0)


@pytest.mark.parametrize(
    "change",
    [
        {"item": "unknown"}, {"item": ".."}, {"rater": "bob"}, {"answer": "maybe"}, {"id": "1"},
        {"answer": None}, {"retracts": str(uuid.uuid4())}, {"at": "yesterday"},
        {"at": "2026-03-01T12:00:00"}, {"at": "0001-01-01T00:00:00+05:00"},
        {"heard_seconds": -1}, {"heard_seconds": 1e300},
        {"whole_clip": "yes"}, {"extra": 1}, {"answer": None, "retracts": str(uuid.uuid4())},
        {"item": "x" * 1_000}, {"span_start": 1.0}, {"span_start": 2.0, "span_end": 1.0},
        {"span_start": -1.0, "span_end": 1.0}, {"span_start": 1.0, "span_end": 1e300},
    ],
)  # fmt: skip
def test_a_judgement_that_makes_no_sense_is_refused(
    client: TestClient, session: ReviewSession, change: dict[str, object]
) -> None:
    before = n_stored(session)
    answer = client.post("/api/judgements", json=said(session, **change))
    assert 400 <= answer.status_code < 500
    assert answer.json()["error"]
    assert n_stored(session) == before


def test_oversized_bodies_and_other_types_are_refused(
    client: TestClient, session: ReviewSession
) -> None:
    before = n_stored(session)
    large = json.dumps(said(session)) + " " * MAX_BODY_BYTES
    as_json = {"Content-Type": "application/json"}
    assert client.post("/api/judgements", content=large, headers=as_json).status_code == 413
    form = {"Content-Type": "text/plain"}  # what another site's form could send
    body = json.dumps(said(session))
    assert client.post("/api/judgements", content=body, headers=form).status_code == 415
    assert client.get("/api/judgements").status_code == 405
    assert n_stored(session) == before


FUZZ = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


fields = st.sampled_from([*Posted.model_fields, "more"])


@FUZZ
@given(changes=st.dictionaries(fields, anything, min_size=1))
def test_whatever_is_posted_the_server_lives_and_stores_only_judgements(
    client: TestClient, session: ReviewSession, changes: dict[str, object]
) -> None:
    before = n_stored(session)
    body = json.dumps(said(session) | changes)
    answer = client.post(
        "/api/judgements", content=body, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code < 500
    assert n_stored(session) - before == (answer.status_code == 201)


@FUZZ
@given(body=st.binary(max_size=300) | st.integers(1, 2_000).map(lambda n: b"[" * n))
def test_bytes_that_are_no_judgement_are_refused(
    client: TestClient, session: ReviewSession, body: bytes
) -> None:
    before = n_stored(session)
    headers = {"Content-Type": "application/json"}
    assert client.post("/api/judgements", content=body, headers=headers).status_code == 422
    assert n_stored(session) == before


@FUZZ
@given(
    path=st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    area=st.sampled_from(["", "api/", "api/blocks/", "api/items/", "clips/", "static/"]),
    span=st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20),
)
def test_whatever_is_asked_for_the_server_lives(
    client: TestClient, path: str, area: str, span: str
) -> None:
    assert client.get(f"/{area}{quote(path)}", headers={"Range": span}).status_code < 500


def test_what_is_anothers_can_be_neither_heard_nor_judged(tmp_path: Path) -> None:
    params = ReviewParams(aim="measure", flags_per_block=3, blocks_per_class=1, overlap=0)
    session = open_tones(tmp_path, ("ann", "bob"), params, n_clips=40)
    (own, *_) = set(session.queue.plan_of("ann")["block"]) - set(
        session.queue.plan_of("bob")["block"]
    )
    item = session.queue.items.filter(block=own)["item"][0]
    ann, bob = sign_in(session), sign_in(session, "bob")
    for path in (f"/clips/{item}.wav", f"/pictures/{item}.png", f"/api/items/{item}/clip"):
        assert bob.get(path).status_code == 409
        assert ann.get(path).status_code == 200
    answer = bob.post("/api/judgements", json=said(session, rater="bob", item=item))
    assert answer.status_code == 409
    assert "another rater" in answer.json()["error"]
    assert n_stored(session) == 0
    session.judgements.close()


@contextmanager
def served(session: ReviewSession, send_bytes: int | None = None) -> Iterator[tuple[str, int, str]]:
    """Serve the page on a real address: its host, its port, and ann's cookie."""
    tokens = make_tokens(["ann"])
    with open_socket("127.0.0.1", 0) as listener:
        if send_bytes is not None:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_bytes)
        place = Place("127.0.0.1", listener.getsockname()[1])
        server = make_server(make_app(session, tokens, place))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield place.host, place.port, f"{place.cookie}={next(iter(tokens))}"
        server.should_exit = True
        thread.join()


@pytest.fixture
def listening(session: ReviewSession) -> Iterator[tuple[str, int, str]]:
    with served(session) as address:
        yield address


def ask(host: str, port: int, cookie: str) -> int:
    connection = http.client.HTTPConnection(host, port, timeout=20)
    connection.request("GET", "/api/session", headers={"Cookie": cookie})
    status = connection.getresponse().status
    connection.close()
    return status


def test_slow_connections_are_closed_and_a_rater_is_served_meanwhile(
    listening: tuple[str, int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_app, "HEAD_SECONDS", 0.5)
    idle = [socket.create_connection(listening[:2], timeout=20) for _ in range(100)]
    for one in idle[50:]:
        one.sendall(b"GET / HTTP/1.1\r\nX-Slow: ")
    assert ask(*listening) == 200
    assert [one.recv(1) for one in idle] == [b""] * len(idle)
    for one in idle:
        one.close()
    assert ask(*listening) == 200


def test_no_connection_outlives_the_server(session: ReviewSession) -> None:
    with socket.socket() as deaf, served(session, send_bytes=4096) as (host, port, cookie):
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.settimeout(20)
        deaf.connect((host, port))
        head = f"GET /static/page.js HTTP/1.1\r\nHost: {host}:{port}\r\nCookie: {cookie}\r\n\r\n"
        deaf.sendall(head.encode() * 30)
        assert deaf.recv(12) == b"HTTP/1.1 200"
        assert ask(host, port, cookie) == 200
    gc.collect()  # what is left open warns now, and warnings are errors


def test_small_answers_are_sent_at_once() -> None:
    with open_socket("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP, "or asyncio does not set TCP_NODELAY"


@pytest.mark.parametrize("library", ["starlette", "uvicorn"])
def test_without_its_libraries_the_extra_is_named(library, monkeypatch) -> None:
    check_server()
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(EarmarkError, match=rf"listening page needs .*{library}.*earmark\[review\]"):
        check_server()
