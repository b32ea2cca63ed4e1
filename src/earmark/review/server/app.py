"""The listening page on an address: Starlette's routes over a desk, behind the guard."""

from __future__ import annotations

import asyncio
import functools
import logging
import secrets
import socket
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any, Literal, TypeVar

import uvicorn
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from earmark.audio import BadRange, UnreadableAudio, byte_range
from earmark.errors import EarmarkError
from earmark.review.server.connections import BODY_SECONDS, ClosingServer, ImpatientProtocol
from earmark.review.server.dealt import Conflict
from earmark.review.server.desk import Desk
from earmark.review.server.figures import Figures
from earmark.review.server.guard import Guard, Place
from earmark.review.server.posted import Ahead, Only, Posted, Wanted
from earmark.review.server.shelf import Unknown
from earmark.runs import Params

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


def make_app(desk: Desk, tokens: dict[str, str], place: Place) -> Starlette:
    """Return the page's application; ``tokens`` map each token to its rater."""
    figures = Figures(desk)
    routes = [
        Route("/", lambda _: _static("index.html")),
        Route("/static/{name}", lambda request: _static(request.path_params["name"])),
        Route("/api/session", _asked(lambda rater, _: desk.session(rater))),
        Route("/api/overview", _asked(lambda rater, _: figures.overview(rater))),
        Route("/api/blocks/{block:int}", _asked(lambda rater, at: desk.block(rater, at["block"]))),
        Route(
            "/api/blocks/{block:int}/summary",
            _asked(lambda rater, at: figures.summary(rater, at["block"])),
        ),
        Route("/api/items/{item}/score", _asked(lambda rater, at: desk.score(rater, at["item"]))),
        Route("/api/items/{item}/clip", _asked(lambda rater, at: desk.about(rater, at["item"]))),
        Route("/api/blocks/next", _next(desk), methods=["POST"]),
        Route(
            "/api/items/{item}/alike",
            _asked(lambda rater, at: desk.alike(rater, at["item"])),
            methods=["POST"],
        ),
        Route("/api/only", _limit(desk), methods=["POST"]),
        Route("/api/yield", _asked(lambda rater, _: desk.gained(rater))),
        Route("/api/classes", _search(desk)),
        Route("/api/clips/{clip}/offers", _offer(desk), methods=["POST"]),
        Route("/api/judgements", _record(desk), methods=["POST"]),
        Route("/clips/{item}.wav", _media(desk, "sound", "audio/wav")),
        Route("/pictures/{item}.png", _media(desk, "picture", "image/png")),
    ]
    refused = functools.partial(_refusal, f"{desk.workspace.root}/")
    refusals: dict[Any, Any] = {
        Unknown: refused(404),
        UnreadableAudio: refused(404),
        Conflict: refused(409),
        EarmarkError: refused(409),
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
        log_level="warning",
        access_log=False,
        ws="none",
        server_header=False,
        lifespan="off",
        http=ImpatientProtocol,
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


def _record(desk: Desk) -> Callable[[Request], Any]:
    async def handle(request: Request) -> Response:
        posted = await _posted(request, Posted, "a judgement")
        is_new = await run_in_threadpool(desk.record, request.state.rater, posted)
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


def _search(desk: Desk) -> Callable[[Request], Response]:
    def handle(request: Request) -> Response:
        found = desk.shelf.found_classes(request.query_params.get("q", "")[:MOST_TYPED])
        return JSONResponse({"classes": found}, headers={"Cache-Control": "no-store"})

    return handle


def _next(desk: Desk) -> Callable[[Request], Any]:
    async def handle(request: Request) -> Response:
        posted = await _posted(request, Ahead, "what comes next")
        told = await run_in_threadpool(desk.next_block, request.state.rater, posted.after)
        return JSONResponse(told, headers={"Cache-Control": "no-store"})

    return handle


def _limit(desk: Desk) -> Callable[[Request], Any]:
    async def handle(request: Request) -> Response:
        posted = await _posted(request, Only, "a choice of classes")
        told = await run_in_threadpool(desk.limit, request.state.rater, posted.class_ids)
        return JSONResponse(told, headers={"Cache-Control": "no-store"})

    return handle


def _offer(desk: Desk) -> Callable[[Request], Any]:
    async def handle(request: Request) -> Response:
        posted = await _posted(request, Wanted, "an offer")
        asked = (request.state.rater, request.path_params["clip"], posted.class_id)
        return JSONResponse(await run_in_threadpool(desk.offer, *asked), 201)

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
    desk: Desk, what: Literal["sound", "picture"], kind: str
) -> Callable[[Request], Response]:
    """Make a handler that sends a clip's sound or picture, whole or by byte range."""
    read: Callable[[str], bytes] = getattr(desk.shelf, what)

    def handle(request: Request) -> Response:
        asked_for = request.path_params["item"]
        desk.check_heard_by(request.state.rater, asked_for)
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


def _http_error(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, headers=error.headers)
