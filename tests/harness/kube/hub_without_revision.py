"""A Hugging Face Hub in which every repository exists, and none has the revision that is asked for."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = 8080


class Handler(BaseHTTPRequestHandler):
    """Answers as the Hub does for an unknown branch, tag or commit."""

    def do_GET(self) -> None:
        self.send_response(404)
        self.send_header("X-Error-Code", "RevisionNotFound")
        self.send_header("X-Error-Message", "Invalid rev id")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET

    def log_message(self, format: str, *arguments: object) -> None:
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("0.0.0.0", PORT), Handler)
    print(json.dumps({"ready": True}), flush=True)
    server.serve_forever()
