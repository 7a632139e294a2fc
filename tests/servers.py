"""Servers on this machine that answer as a test wants."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Answering(BaseHTTPRequestHandler):
    """Reads JSON, sends text or JSON, and logs nothing."""

    def posted(self) -> dict:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def send(self, body: bytes | str | dict = b"", status: int = 200, **headers: str) -> None:
        if isinstance(body, dict):
            body = json.dumps(body)
        body = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def says(self, text: str) -> None:
        """What a chat model says, as OpenAI's servers send it."""
        self.send({"choices": [{"message": {"content": text}}]})

    def log_message(self, *words: object) -> None:
        pass


@contextmanager
def serving(handler: type[Answering], **known: object) -> Iterator[ThreadingHTTPServer]:
    """A server with an `address`, and with what its handler finds in it."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        vars(server).update(known, address=f"http://127.0.0.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()
