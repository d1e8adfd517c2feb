"""A proxy that loses answers: the request arrives, the answer does not come back."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


class LossyProxy(ThreadingHTTPServer):
    """Forwards to `upstream`; `lose` more answers are dropped, of requests whose path contains `of`."""

    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Forward)
        self.upstream = urlsplit(upstream)
        self.lose = 0
        self.of = ""
        self.lost = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def lose_next(self, count: int, of: str) -> None:
        """Drop the next answers of such requests."""
        self.lose, self.of, self.lost = count, of, 0


class _Forward(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: LossyProxy

    def do_GET(self) -> None:
        self._forward()

    def do_POST(self) -> None:
        self._forward()

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        upstream = http.client.HTTPConnection(str(self.server.upstream.hostname), self.server.upstream.port, timeout=60)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
        upstream.request(self.command, self.path, body, headers)
        answer = upstream.getresponse()
        content = answer.read()
        upstream.close()
        with self.server.lock:
            drops = self.server.lose > 0 and self.server.of in self.path
            if drops:
                self.server.lose -= 1
                self.server.lost += 1
        if drops:
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() in ("content-type", "retry-after"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def lossy(upstream: str) -> Iterator[LossyProxy]:
    """A proxy that runs."""
    proxy = LossyProxy(upstream)
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()
