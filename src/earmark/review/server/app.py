"""The listening page on an address: routes, who may use them, and limits on connections.

Any page in the browser can send requests to this machine, so each request must carry a token (from
the printed address once, from a cookie afterwards), name this server as its host (against DNS
rebinding) and, where it says which page sent it, name a page of this server (against other pages of
the same machine, whose requests carry the cookie). :class:`Guard` refuses all other requests before
a handler sees them.

The server limits how many connections there are, how long each may stay open, and how much memory
it may take. All connections end with the server.
"""

from __future__ import annotations

import asyncio
import functools
import hmac
import ipaddress
import logging
import secrets
import socket
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal, TypeVar

import uvicorn
from h11 import LocalProtocolError
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from earmark.audio import BadRange, UnreadableAudio, byte_range
from earmark.config import Params
from earmark.errors import EarmarkError, told_briefly
from earmark.review.judgements import Conflict
from earmark.review.server.clips import Unknown
from earmark.review.server.figures import Figures
from earmark.review.server.session import Ahead, Only, Posted, ReviewSession, Wanted
from earmark.text import printable

HEAD_SECONDS = 10.0
"""How long a request may take to say what it wants; browsers open connections ahead of need."""

BODY_SECONDS = 30.0
"""How long a request may take to send what it posts."""

WRITE_SECONDS = 30.0
"""How long a client may leave its answer unread; a browser asks again for the rest of a sound."""

MAX_CONNECTIONS = 128
"""Open at once; well below the 256 files that macOS lets a process open."""

BACKLOG = 32
"""Connections that asyncio accepts in one turn, before any can be closed."""

MAX_PIPELINED_BYTES = 32_768
"""Requests that a client may send ahead of their turn; browsers send none."""


class ImpatientProtocol(H11Protocol):
    """uvicorn's HTTP with limits on what a connection may hold, and on how many there are.

    uvicorn itself counts the seconds between two requests alone.
    """

    _until_head: asyncio.TimerHandle | None = None
    _n_unsent = 0
    _opened_at = _progress_at = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request; make room for it where too many are open."""
        super().connection_made(transport)
        self._opened_at = self._progress_at = self.loop.time()
        self._until_head = self.loop.call_later(HEAD_SECONDS, self._close)
        if len(self.connections) > MAX_CONNECTIONS:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request; stop waiting when all of its head is there."""
        if self._until_head is None and self._is_idle:
            self._until_head = self.loop.call_later(HEAD_SECONDS, self._close)
        super().data_received(data)
        if not self._is_idle:
            self._stop_waiting()
        if len(self.conn.trailing_data[0]) > MAX_PIPELINED_BYTES:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP; just close where an answer was begun or sent before."""
        try:
            super().send_400_response(msg)
        except LocalProtocolError:
            self.transport.abort()

    def abort_if_unread(self) -> None:
        """Close a connection whose client has read nothing of its answer for too long."""
        n_unsent, now = self.transport.get_write_buffer_size(), self.loop.time()
        if n_unsent == 0 or n_unsent < self._n_unsent:
            self._progress_at = now
        self._n_unsent = n_unsent
        if now - self._progress_at > WRITE_SECONDS:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Leave the time between two requests to uvicorn."""
        self._stop_waiting()
        super().on_response_complete()

    @property
    def _is_idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def _has_rater(self) -> bool:
        """Whether the last request carried a token; the guard notes whose."""
        return self.scope is not None and "rater" in self.scope["state"]

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def _make_room(self) -> None:
        """Close the oldest connection of a stranger, of the address that holds the most."""
        connections = [
            connection
            for connection in self.connections
            if isinstance(connection, ImpatientProtocol) and not connection.transport.is_closing()
        ]
        n_open = Counter(connection._address for connection in connections)
        oldest = min(
            connections,
            key=lambda connection: (
                connection._has_rater,
                -n_open[connection._address],
                connection._opened_at,
            ),
        )
        oldest.transport.abort()

    def _stop_waiting(self) -> None:
        if self._until_head is not None:
            self._until_head.cancel()
            self._until_head = None

    def _close(self) -> None:
        self._until_head = None
        if self._is_idle:
            self.transport.close()


class ClosingServer(uvicorn.Server):
    """uvicorn's server, but no connection outlives it.

    uvicorn leaves those open whose answer is not read to its end, as a browser leaves a sound that
    it has enough of.
    """

    _has_warned = False

    async def on_tick(self, counter: int) -> bool:
        """Abort connections that nobody reads, once a second; log once that there are too many."""
        if counter % 10 == 0:
            if len(self.server_state.connections) >= MAX_CONNECTIONS and not self._has_warned:
                self._has_warned = True
                logging.getLogger("uvicorn.error").error(
                    "%d connections are open at once, the most that are allowed: the oldest "
                    "without a token are closed. This is said once.",
                    MAX_CONNECTIONS,
                )
            for connection in list(self.server_state.connections):
                if isinstance(connection, ImpatientProtocol):
                    connection.abort_if_unread()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Say goodbye as uvicorn does, then close what is left."""
        await super().shutdown(sockets)
        while self.server_state.connections:
            for connection in list(self.server_state.connections):
                connection.transport.abort()
            await asyncio.sleep(0)  # the loop closes what was aborted in its next turn


CONTENT_POLICY = "; ".join(
    (
        "default-src 'none'",
        *(f"{kind}-src 'self'" for kind in ("script", "style", "img", "media", "connect")),
        *(f"{kind} 'none'" for kind in ("base-uri", "form-action", "frame-ancestors")),
    )
)
_HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_NO_TOKEN = "open the address that `earmark review` printed: it holds the key to this page"


@dataclass(frozen=True)
class Place:
    """Where the server listens."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host == "localhost" or _is_address(self.host, "is_loopback")

    @property
    def cookie(self) -> str:
        """The cookie's name: browsers do not tell the ports of a machine apart, names do."""
        return f"earmark_{self.port}"

    def url(self, token: str) -> str:
        """Return the address with a rater's token."""
        shown = "127.0.0.1" if _is_address(self.host, "is_unspecified") else self.host
        return f"http://{f'[{shown}]' if ':' in shown else shown}:{self.port}/?token={token}"

    def is_named(self, host: str) -> bool:
        """Tell whether a Host header names this server.

        On loopback, only loopback's names will do. Elsewhere any numeric address will, because a
        hostile page can point a name of its own at this machine, but not a number.
        """
        name, _, port = host.rpartition(":")
        name = name.removeprefix("[").removesuffix("]").lower()
        if port != str(self.port):
            return False
        if self.is_loopback:
            return name == "localhost" or _is_address(name, "is_loopback")
        return name == self.host.lower() or _is_address(name)


def _is_address(text: str, kind: str = "version") -> bool:
    try:
        return bool(getattr(ipaddress.ip_address(text), kind))
    except ValueError:
        return False


class Guard:
    """ASGI middleware that refuses strangers and adds the security headers to every response.

    The rater whose token came is put into ``scope["state"]["rater"]``.
    """

    def __init__(self, app: ASGIApp, *, raters: Mapping[str, str], place: Place) -> None:
        self._app, self._raters, self._place = app, raters, place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        token = request.query_params.get("token") or request.cookies.get(self._place.cookie, "")
        rater = self._rater(token)
        refusal = self._refusal(request.headers, scope["path"], rater)
        if refusal is not None:
            await refusal(scope, receive, _with_headers(send, _HEADERS))
            return
        scope.setdefault("state", {})["rater"] = rater
        headers = _HEADERS | ({"Set-Cookie": self._cookie(token)} if scope["path"] == "/" else {})
        await self._app(scope, receive, _with_headers(send, headers))

    def _rater(self, token: str) -> str | None:
        """Return whose token it is, in a time that does not depend on how much of it is right."""
        matches = [
            rater
            for known, rater in self._raters.items()
            if hmac.compare_digest(known.encode(), token.encode("utf-8", "replace"))
        ]
        return matches[0] if matches else None

    def _refusal(self, headers: Headers, path: str, rater: str | None) -> Response | None:
        host = headers.get("host", "")
        if not self._place.is_named(host):
            return JSONResponse({"error": "this server does not go by that name"}, 421)
        if _is_from_elsewhere(headers, f"http://{host}", is_link=path == "/"):
            return JSONResponse({"error": "requests from other pages are refused"}, 403)
        return PlainTextResponse(_NO_TOKEN, 403) if rater is None else None

    def _cookie(self, token: str) -> str:
        return f"{self._place.cookie}={token}; Path=/; HttpOnly; SameSite=Strict"


def _is_from_elsewhere(headers: Headers, home: str, *, is_link: bool) -> bool:
    """Tell whether a request says that another page sent it; any page may link to the first."""
    if headers.get("origin", home) != home:
        return True
    is_own = headers.get("sec-fetch-site", "none") in ("none", "same-origin")
    is_own &= headers.get("referer", f"{home}/").startswith(f"{home}/")
    return not (is_own or is_link)


def _with_headers(send: Send, headers: Mapping[str, str]) -> Send:
    async def send_more(message: Message) -> None:
        if message["type"] == "http.response.start":
            kept = MutableHeaders(scope=message)
            for name, value in headers.items():
                kept[name] = value
        await send(message)

    return send_more


MAX_BODY_BYTES = 4_096
"""A judgement takes about 350."""

MOST_TYPED = 100
"""Letters of a search that count."""

Sent = TypeVar("Sent", bound=Params)

_MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


def make_tokens(raters: Sequence[str]) -> dict[str, str]:
    """Return a random token for each rater, as token to rater."""
    return {secrets.token_urlsafe(24): rater for rater in raters}


def make_app(session: ReviewSession, tokens: dict[str, str], place: Place) -> Starlette:
    """Return the page's application; ``tokens`` map each token to its rater."""
    figures = Figures(session)
    routes = [
        Route("/", lambda _: _static("index.html")),
        Route("/static/{name}", lambda request: _static(request.path_params["name"])),
        Route("/api/session", _asked(lambda rater, _: session.describe(rater))),
        Route("/api/overview", _asked(lambda rater, _: figures.overview(rater))),
        Route(
            "/api/blocks/{block:int}", _asked(lambda rater, at: session.block(rater, at["block"]))
        ),
        Route(
            "/api/blocks/{block:int}/summary",
            _asked(lambda rater, at: figures.summary(rater, at["block"])),
        ),
        Route(
            "/api/items/{item}/score", _asked(lambda rater, at: session.score(rater, at["item"]))
        ),
        Route("/api/items/{item}/clip", _asked(lambda rater, at: session.about(rater, at["item"]))),
        Route("/api/blocks/next", _next(session), methods=["POST"]),
        Route(
            "/api/items/{item}/alike",
            _asked(lambda rater, at: session.alike(rater, at["item"])),
            methods=["POST"],
        ),
        Route("/api/only", _limit(session), methods=["POST"]),
        Route("/api/yield", _asked(lambda rater, _: session.gained(rater))),
        Route("/api/classes", _search(session)),
        Route("/api/clips/{clip}/offers", _offer(session), methods=["POST"]),
        Route("/api/judgements", _record(session), methods=["POST"]),
        Route("/clips/{item}.wav", _media(session, "sound", "audio/wav")),
        Route("/pictures/{item}.png", _media(session, "picture", "image/png")),
    ]
    refused = functools.partial(_refusal, f"{session.workspace.root}/")
    trouble = _trouble(f"{session.workspace.root}/")
    refusals: dict[Any, Any] = {
        Unknown: refused(404),
        UnreadableAudio: refused(404),
        Conflict: refused(409),
        EarmarkError: trouble,
        sqlite3.Error: trouble,
        OSError: trouble,
        ClientDisconnect: refused(400),  # nobody reads it, and nobody has to read of it in a log
        HTTPException: _http_error,
    }
    guard = Middleware(Guard, raters=tokens, place=place)
    return Starlette(routes=routes, middleware=[guard], exception_handlers=refusals)


def open_socket(host: str, port: int) -> socket.socket:
    """Listen on an address; port 0 takes any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends small answers at once (TCP_NODELAY) only where the protocol is named.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise EarmarkError(
            f"cannot listen on {host}, port {port}: {error.strerror or error}; is another review "
            "running? Give another --port, or --port 0 for any free one"
        ) from None
    listener.listen()
    return listener


def make_server(app: Starlette) -> uvicorn.Server:
    """Return a quiet server; ``run(sockets=[...])`` answers requests until it is interrupted."""
    config = uvicorn.Config(
        app,
        log_level="error",  # a warning for every malformed request lets strangers fill the log
        access_log=False,
        ws="none",
        server_header=False,
        lifespan="off",
        http=ImpatientProtocol,
        backlog=BACKLOG,
        timeout_graceful_shutdown=1,
    )
    logging.getLogger("uvicorn.error").addFilter(_is_no_farewell)
    return ClosingServer(config)


def _is_no_farewell(record: logging.LogRecord) -> bool:
    """Tell whether a message is about anything but requests that the end of the server cuts off."""
    is_cut_off = record.exc_info is not None and record.exc_info[0] is asyncio.CancelledError
    return not is_cut_off and "timeout graceful shutdown" not in str(record.msg)


def _static(name: str) -> Response:
    """Return a file of the page; nothing else in the package can be named."""
    folder = resources.files("earmark.review.server") / "static"
    known = {entry.name: entry for entry in folder.iterdir()}
    kind = _MEDIA_TYPES.get(name.rpartition(".")[2])
    if name not in known or kind is None:
        raise HTTPException(404, "there is no such page")
    headers = {"Cache-Control": "no-cache"}
    return Response(known[name].read_bytes(), media_type=kind, headers=headers)


def _asked(
    answer: Callable[[str, dict[str, Any]], dict[str, Any]],
) -> Callable[[Request], Response]:
    """Make a handler that answers with JSON; Starlette runs it in a thread."""

    def handle(request: Request) -> Response:
        told = answer(request.state.rater, request.path_params)
        return JSONResponse(told, headers={"Cache-Control": "no-store"})

    return handle


def _record(session: ReviewSession) -> Callable[[Request], Any]:
    async def handle(request: Request) -> Response:
        posted = await _posted(request, Posted, "a judgement")
        is_new = await run_in_threadpool(session.record, request.state.rater, posted)
        return JSONResponse({"stored": True, "is_new": is_new}, 201 if is_new else 200)

    return handle


async def _posted(request: Request, kind: type[Sent], told: str) -> Sent:
    """Read what was posted as JSON; say what is wrong with it."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise HTTPException(415, f"{told} is sent as application/json")
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await _body(request)
        return kind.model_validate_json(body)
    except TimeoutError:
        raise HTTPException(408, f"{told} took too long to arrive") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the body"
        raise HTTPException(422, f"{where}: {first['msg']}") from None


def _search(session: ReviewSession) -> Callable[[Request], Response]:
    def handle(request: Request) -> Response:
        found = session.registry.found_classes(request.query_params.get("q", "")[:MOST_TYPED])
        return JSONResponse({"classes": found}, headers={"Cache-Control": "no-store"})

    return handle


def _next(session: ReviewSession) -> Callable[[Request], Any]:
    async def handle(request: Request) -> Response:
        posted = await _posted(request, Ahead, "what comes next")
        told = await run_in_threadpool(session.next_block, request.state.rater, posted.after)
        return JSONResponse(told, headers={"Cache-Control": "no-store"})

    return handle


def _limit(session: ReviewSession) -> Callable[[Request], Any]:
    async def handle(request: Request) -> Response:
        posted = await _posted(request, Only, "a choice of classes")
        told = await run_in_threadpool(session.limit, request.state.rater, posted.class_ids)
        return JSONResponse(told, headers={"Cache-Control": "no-store"})

    return handle


def _offer(session: ReviewSession) -> Callable[[Request], Any]:
    async def handle(request: Request) -> Response:
        posted = await _posted(request, Wanted, "an offer")
        asked = (request.state.rater, request.path_params["clip"], posted.class_id)
        return JSONResponse(await run_in_threadpool(session.offer, *asked), 201)

    return handle


async def _body(request: Request) -> bytes:
    """Read a body, but never more than a judgement can take."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise HTTPException(413, f"a judgement has at most {MAX_BODY_BYTES} bytes")
    return body


def _media(
    session: ReviewSession, what: Literal["sound", "picture"], kind: str
) -> Callable[[Request], Response]:
    """Make a handler that sends a clip's sound or picture, whole or by byte range."""
    read: Callable[[str], bytes] = getattr(session.registry, what)

    def handle(request: Request) -> Response:
        asked_for = request.path_params["item"]
        session.check_heard_by(request.state.rater, asked_for)
        content = read(asked_for)
        headers = {"Accept-Ranges": "bytes", "Cache-Control": "private, max-age=3600"}
        asked = request.headers.get("range")
        if asked is None:
            return Response(content, media_type=kind, headers=headers)
        try:
            start, end = byte_range(asked, len(content))
        except BadRange:
            headers = {"Content-Range": f"bytes */{len(content)}"}
            return JSONResponse({"error": "there are no such bytes"}, 416, headers=headers)
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(content)}"
        return Response(content[start:end], 206, media_type=kind, headers=headers)

    return handle


def _refusal(root: str, status: int) -> Callable[[Request, Exception], Response]:
    """Make a handler that says why, and not where on the disk: that is nobody's business."""

    def handle(request: Request, error: Exception) -> Response:
        del request
        told = error.reason if isinstance(error, UnreadableAudio) else str(error)
        return JSONResponse({"error": told.replace(root, "")}, status)

    return handle


def _trouble(root: str) -> Callable[[Request, Exception], Response]:
    """Make a handler for what is no fault of the request: the page keeps it and tries again."""
    logged: set[str] = set()

    def handle(request: Request, error: Exception) -> Response:
        del request
        reason = str(error) if isinstance(error, EarmarkError) else told_briefly(error)
        if reason not in logged:
            logged.add(reason)
            told = printable(reason)
            logging.getLogger("uvicorn.error").error("%s (this is logged once)", told)
        return JSONResponse({"error": reason.replace(root, "")}, 503)

    return handle


def _http_error(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, headers=error.headers)
