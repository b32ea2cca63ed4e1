"""Who may talk to the server: the page that it served, to a person who was given its address.

Any page in the browser can send requests to this machine, so each must carry a token (from the
printed address once, from a cookie afterwards), name this server as its host (against DNS
rebinding) and, where it says which page sent it, one of this server (against other pages, of the
same machine too, whose requests carry the cookie). All else is refused before a handler sees it.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
