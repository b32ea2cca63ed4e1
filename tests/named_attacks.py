"""Attacks on a listening page that is really served: a table of names, each with what it sends.

Every row is a request that a stranger, another page or another rater could send. Whoever sends it
must be refused (a status from 400 to 499, or a closed connection), and nothing may be stored.
"""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

AS_JSON = {"Content-Type": "application/json"}
CLOSED = 0
"""The status of a connection that was closed without an answer."""


@dataclass(frozen=True)
class Reply:
    """What a server answered."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Target:
    """A server in another process, and what its two raters know."""

    port: int
    tokens: Mapping[str, str]
    root: Path
    item: str = ""
    """An item that ann and bob may judge."""
    bobs_item: str = ""
    """An item of a block that is bob's alone."""
    bobs_block: int = -1
    bobs_answer: str = ""
    """The id of an answer of bob's to the item of both."""

    @property
    def home(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cookie(self, rater: str = "ann") -> dict[str, str]:
        return {"Cookie": f"earmark_{self.port}={self.tokens[rater]}"}

    def raw(self, request: bytes, *, most_bytes: int = 10_000_000) -> Reply:
        """Send bytes; return the first answer, if one comes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as connection:
            with suppress(OSError):  # closed while we were still sending; the answer may be there
                connection.sendall(request)
            got = b""
            with suppress(OSError):
                while len(got) < most_bytes and (more := connection.recv(65_536)):
                    got += more
        return parsed(got)

    def ask(
        self,
        path: str = "/api/session",
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        rater: str | None = "ann",
    ) -> Reply:
        """Send a request as a browser would, signed by a rater's cookie unless there is none."""
        own = {"Host": self.home, "Connection": "close"}
        own |= self.cookie(rater) if rater else {}
        own |= {"Content-Length": str(len(body))} if method != "GET" else {}
        lines = [f"{name}: {value}" for name, value in (own | dict(headers or {})).items()]
        head = "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""])
        return self.raw(head.encode("utf-8", "surrogateescape") + body)

    def post(self, value: object, path: str = "/api/judgements", **options: Any) -> Reply:
        """Post a value as JSON."""
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        return self.ask(path, "POST", AS_JSON | options.pop("headers", {}), body, **options)

    def said(self, **changes: object) -> dict[str, object]:
        """Return an answer of ann's that would be stored, with some changes."""
        posted: dict[str, object] = {
            "id": str(uuid.uuid4()),
            "at": "2026-03-01T12:00:00.000Z",
            "rater": "ann",
            "item": self.item,
            "answer": "present",
            "heard_seconds": 1.5,
            "retracts": None,
        }
        return posted | changes


def parsed(answer: bytes) -> Reply:
    """Return the first answer in some bytes."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if not head:
        return Reply(CLOSED)
    first, *lines = head.decode("latin-1").split("\r\n")
    named = (line.partition(":") for line in lines)
    return Reply(
        int(first.split()[1]), {name.lower(): value.strip() for name, _, value in named}, body
    )


Attack = Callable[[Target], Reply]


def with_token(change: Callable[[str], str]) -> Attack:
    return lambda at: at.ask(f"/?token={quote(change(at.tokens['ann']), safe='')}", rater=None)


TOKENS: dict[str, Attack] = {
    "no token": lambda at: at.ask(rater=None),
    "no token, posted": lambda at: at.post(at.said(), rater=None),
    "no token, a sound": lambda at: at.ask(f"/clips/{at.item}.wav", rater=None),
    "no token, a script of the page": lambda at: at.ask("/static/review.js", rater=None),
    "an empty token": with_token(lambda _: ""),
    "a guessed token": with_token(lambda token: "A" * len(token)),
    "a token without its last letter": with_token(lambda token: token[:-1]),
    "a token with a letter more": with_token(lambda token: token + "A"),
    "a token in other cases": with_token(str.swapcase),
    "a token after a NUL": with_token(lambda token: f"\0{token}"),
    "a token that is not ASCII": with_token(lambda token: f"{token}é"),
    "a token of a megabyte": with_token(lambda token: token * 40_000),
    "a right token, then a wrong one": lambda at: at.ask(
        f"/?token={at.tokens['ann']}&token=x", rater=None
    ),
    "a token in the path": lambda at: at.ask(f"/{at.tokens['ann']}", rater=None),
    "a token in Authorization": lambda at: at.ask(
        headers={"Authorization": f"Bearer {at.tokens['ann']}"}, rater=None
    ),
    "a token in Referer": lambda at: at.ask(
        headers={"Referer": f"http://{at.home}/?token={at.tokens['ann']}"}, rater=None
    ),
    "a token in the body": lambda at: at.post(at.said(token=at.tokens["ann"]), rater=None),
    "a token in another port's cookie": lambda at: at.ask(
        headers={"Cookie": f"earmark_1={at.tokens['ann']}"}, rater=None
    ),
    "a line break in the token": lambda at: at.ask(
        f"/?token={at.tokens['ann']}%0d%0aSet-Cookie:%20a=b", rater=None
    ),
    "an answer in another rater's name": lambda at: at.post(at.said(rater="bob")),
}

PLACES: dict[str, Attack] = {
    "another host": lambda at: at.ask(headers={"Host": "evil.example"}),
    "DNS rebinding": lambda at: at.ask(headers={"Host": f"evil.example:{at.port}"}),
    "DNS rebinding, posted": lambda at: at.post(
        at.said(), headers={"Host": f"evil.example:{at.port}"}
    ),
    "a name that begins like ours": lambda at: at.ask(
        headers={"Host": f"127.0.0.1.evil.example:{at.port}"}
    ),
    "a name of a user at ours": lambda at: at.ask(headers={"Host": f"evil@{at.home}"}),
    "another port in Host": lambda at: at.ask(headers={"Host": "127.0.0.1:1"}),
    "another host behind a proxy": lambda at: at.ask(
        headers={
            "Host": "evil.example",
            "X-Forwarded-Host": at.home,
            "Forwarded": f"host={at.home}",
        }
    ),
    "no host at all": lambda at: at.raw(
        f"GET /api/session HTTP/1.0\r\nCookie: {at.cookie()['Cookie']}\r\n\r\n".encode()
    ),
    "two hosts": lambda at: at.raw(
        f"GET /api/session HTTP/1.1\r\nHost: {at.home}\r\nHost: evil.example\r\n"
        f"Cookie: {at.cookie()['Cookie']}\r\nConnection: close\r\n\r\n".encode()
    ),
    "an address as the path": lambda at: at.ask(f"http://{at.home}/api/session"),
    "another origin": lambda at: at.post(at.said(), headers={"Origin": "http://evil.example"}),
    "no origin to speak of": lambda at: at.post(at.said(), headers={"Origin": "null"}),
    "the origin of another port": lambda at: at.post(
        at.said(), headers={"Origin": "http://127.0.0.1:1"}
    ),
    "the origin with https": lambda at: at.post(
        at.said(), headers={"Origin": f"https://{at.home}"}
    ),
    "an origin that begins like ours": lambda at: at.post(
        at.said(), headers={"Origin": f"http://{at.home}.evil.example"}
    ),
    "a read from another origin": lambda at: at.ask(headers={"Origin": "http://evil.example"}),
    "another page in Referer": lambda at: at.post(
        at.said(), headers={"Referer": "http://evil.example/"}
    ),
    "a Referer that begins like ours": lambda at: at.ask(
        headers={"Referer": f"http://{at.home}.evil.example/"}
    ),
    "a sound for another site's page": lambda at: at.ask(
        f"/clips/{at.item}.wav", headers={"Sec-Fetch-Site": "cross-site"}
    ),
    "a sound for another port's page": lambda at: at.ask(
        f"/clips/{at.item}.wav", headers={"Sec-Fetch-Site": "same-site"}
    ),
    "a preflight from elsewhere": lambda at: at.ask(
        "/api/judgements",
        "OPTIONS",
        {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"},
    ),
    "a form of another page": lambda at: at.post(at.said(), headers={"Content-Type": "text/plain"}),
    "a form with fields": lambda at: at.post(
        b"answer=present", headers={"Content-Type": "application/x-www-form-urlencoded"}
    ),
    "TRACE": lambda at: at.ask(method="TRACE"),
    "CONNECT": lambda at: at.ask("127.0.0.1:22", "CONNECT"),
    "PUT": lambda at: at.ask("/api/judgements", "PUT", AS_JSON, json.dumps(at.said()).encode()),
    "DELETE": lambda at: at.ask(f"/api/judgements/{at.bobs_answer}", "DELETE"),
    "another method in a header": lambda at: at.ask(
        "/api/judgements", headers={"X-HTTP-Method-Override": "POST"}
    ),
}

UP = "../" * 8 + "etc/passwd"
UPWARDS = {
    "plain": UP,
    "encoded": quote(UP, safe=""),
    "encoded twice": quote(quote(UP, safe=""), safe=""),
    "with backslashes": quote(UP.replace("/", "\\"), safe=""),
    "absolute": quote("/etc/passwd", safe=""),
    "with a NUL": quote(f"{UP}\0", safe=""),
    "in wide letters": quote(UP.replace(".", "．").replace("/", "／"), safe=""),
}

GETS = {
    "a file of the page": "/static/{}",
    "a sound": "/clips/{}.wav",
    "a picture": "/pictures/{}.png",
    "a score": "/api/items/{}/score",
    "a clip's name": "/api/items/{}/clip",
    "a block": "/api/blocks/{}",
    "a summary": "/api/blocks/{}/summary",
}


def got(path: str) -> Attack:
    return lambda at: at.ask(path)


def posted(path: str, value: object) -> Attack:
    return lambda at: at.post(value, path)


PATHS: dict[str, Attack] = {
    **{
        f"{way} way up in {what}": got(path.format(up))
        for what, path in GETS.items()
        for way, up in (
            UPWARDS.items() if what == "a file of the page" else [*UPWARDS.items()][1:2]
        )
    },
    "a way up to more like a clip": posted(f"/api/items/{UPWARDS['encoded']}/alike", {}),
    "a way up in an offer's clip": posted(
        f"/api/clips/{UPWARDS['encoded']}/offers", {"class_id": "hum"}
    ),
    "a way up in an offer's class": lambda at: at.post(
        {"class_id": UP}, f"/api/clips/{at.item}/offers"
    ),
    "a way up in a choice of classes": posted("/api/only", {"class_ids": [UP]}),
    "a way up in an answer's item": lambda at: at.post(at.said(item=UP)),
    "SQL in an answer's item": lambda at: at.post(at.said(item="'; DROP TABLE judgement; --")),
    "a clip by its own name": got("/clips/clip000.wav"),
    "a file of the package": got("/static/__init__.py"),
    "a file of the workspace": got("/audio/clip000.wav"),
    "the store of answers": got("/review/judgements.sqlite"),
}

FOREIGN: dict[str, Attack] = {
    "another's block": lambda at: at.ask(f"/api/blocks/{at.bobs_block}"),
    "another's summary": lambda at: at.ask(f"/api/blocks/{at.bobs_block}/summary"),
    "another's sound": lambda at: at.ask(f"/clips/{at.bobs_item}.wav"),
    "another's picture": lambda at: at.ask(f"/pictures/{at.bobs_item}.png"),
    "another's score": lambda at: at.ask(f"/api/items/{at.bobs_item}/score"),
    "the name of another's clip": lambda at: at.ask(f"/api/items/{at.bobs_item}/clip"),
    "more like another's clip": lambda at: at.post({}, f"/api/items/{at.bobs_item}/alike"),
    "an answer to another's item": lambda at: at.post(at.said(item=at.bobs_item)),
    "taking back another's answer": lambda at: at.post(
        at.said(answer=None, retracts=at.bobs_answer)
    ),
    "an answer under another's id": lambda at: at.post(at.said(id=at.bobs_answer)),
    "a block that nobody has": got("/api/blocks/987654321"),
    "a block below the first": got("/api/blocks/-1"),
    "a block of 30 digits": got(f"/api/blocks/{'9' * 30}"),
    "an item that nobody has": got(f"/api/items/{'0' * 16}/score"),
}


def ranged(span: str) -> Attack:
    return lambda at: at.ask(f"/clips/{at.item}.wav", headers={"Range": span})


RANGES: dict[str, Attack] = {
    "a range beyond the end": ranged("bytes=99999999-"),
    "a range backwards": ranged("bytes=9-3"),
    "an empty range": ranged("bytes=-"),
    "a range of no bytes": ranged("bytes=-0"),
    "a range of 300 digits": ranged(f"bytes={'9' * 300}-"),
    "a range that is no number": ranged("bytes=a-b"),
    "a thousand ranges": ranged("bytes=" + ",".join(f"{n}-{n}" for n in range(1_000))),
    "a range of another unit": ranged("clips=0-1"),
    "a range in other digits": ranged("bytes=٠-٩"),
}


def length(told: str, body: bytes = b"{}") -> Attack:
    """Post a body whose length is told otherwise."""
    return lambda at: at.raw(
        f"POST /api/judgements HTTP/1.1\r\nHost: {at.home}\r\nCookie: {at.cookie()['Cookie']}\r\n"
        f"Content-Type: application/json\r\nConnection: close\r\n{told}\r\n\r\n".encode()
        + body
    )


LARGE = b" " * 5_000_000
BODIES: dict[str, Attack] = {
    "a body of 5 MB": lambda at: at.post(LARGE),
    "a body of 5 MB in chunks": length(
        "Transfer-Encoding: chunked", b"4c4b40\r\n" + LARGE + b"\r\n0\r\n\r\n"
    ),
    "a length below zero": length("Content-Length: -1"),
    "a length that is no number": length("Content-Length: ten"),
    "a length of 30 digits": length(f"Content-Length: {'9' * 30}"),
    "two lengths": length("Content-Length: 2\r\nContent-Length: 40"),
    "a length and chunks": length("Content-Length: 4\r\nTransfer-Encoding: chunked", b"0\r\n\r\n"),
    "chunks of a wrong size": length("Transfer-Encoding: chunked", b"zz\r\n{}\r\n0\r\n\r\n"),
    "nothing": posted("/api/judgements", b""),
    "no JSON": posted("/api/judgements", b"{'rater': ann}"),
    "bytes that are no text": posted("/api/judgements", b"\xff\xfe\x00" * 100),
    "half a letter": posted("/api/judgements", b'{"rater": "\\ud800"}'),
    "4,000 brackets": posted("/api/judgements", b"[" * 4_000),
    "1,000 nested objects": posted("/api/judgements", b'{"":' * 1_000),
    "100,000 brackets": posted("/api/judgements", b"[" * 100_000),
    "a number of 3,000 digits": lambda at: at.post(
        json.dumps(at.said()).replace("1.5", "9" * 3_000).encode()
    ),
    "not a number": lambda at: at.post(json.dumps(at.said()).replace("1.5", "NaN").encode()),
    "a list": lambda at: at.post([at.said()]),
    "a key more": lambda at: at.post(at.said(__proto__={"rater": "bob"})),
    "an answer that is none": lambda at: at.post(at.said(answer="<script>")),
    "an answer from the year 1": lambda at: at.post(at.said(at="0001-01-01T00:00:00+05:00")),
    "an id that is none": lambda at: at.post(at.said(id="' OR 1=1 --")),
    "a span beyond the day": lambda at: at.post(at.said(span_start=0.0, span_end=1e300)),
    "zipped JSON": lambda at: at.post(
        b"\x1f\x8b\x08" + b"\0" * 50, headers={"Content-Encoding": "gzip"}
    ),
    "a choice of 10,000 classes": posted("/api/only", {"class_ids": [""] * 10_000}),
    "an offer of a list": lambda at: at.post({"class_id": []}, f"/api/clips/{at.item}/offers"),
    "a next block of a text": posted("/api/blocks/next", {"after": "0; DROP TABLE"}),
}

HEADS: dict[str, Attack] = {
    "a header of a megabyte": lambda at: at.ask(headers={"X-Long": "x" * 1_000_000}),
    "20,000 headers": lambda at: at.ask(headers={f"X-{n}": "x" for n in range(20_000)}),
    "a path of a megabyte": got("/" + "x" * 1_000_000),
    "the hello of TLS": lambda at: at.raw(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20),
    "a version that is none": lambda at: at.raw(b"GET / HTTP/9.9\r\nConnection: close\r\n\r\n"),
    "a space before the colon": lambda at: at.raw(
        f"GET / HTTP/1.1\r\nHost : {at.home}\r\n\r\n".encode()
    ),
    "a header that is folded": lambda at: at.raw(
        f"GET / HTTP/1.1\r\nHost: evil.example\r\n {at.home}\r\nConnection: close\r\n\r\n".encode()
    ),
}

ATTACKS = {**TOKENS, **PLACES, **PATHS, **FOREIGN, **RANGES, **BODIES, **HEADS}
