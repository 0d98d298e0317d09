"""Does the proxy keep its connections to a server's socket, so that none closes while it still writes?"""

import http.client
import os
import re
import socketserver
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import quote

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the hub on one machine is Linux's")


class Server(socketserver.ThreadingUnixStreamServer):
    """A server on a Unix socket that counts its connections, and what each request asks of them."""

    daemon_threads = True
    connections, asked = 0, ()

    def process_request(self, request, client_address):
        self.connections += 1
        super().process_request(request, client_address)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        got = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked += (self.headers["Connection"],)
        self.send_response(200)
        self.send_header("Content-Length", str(len(got)))
        self.end_headers()
        self.wfile.write(got)

    def address_string(self):
        return "a socket"

    def log_message(self, *args):
        """Say nothing."""


@pytest.fixture
def server(tmp_path):
    with Server(str(tmp_path / "server"), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def proxy(server, tmp_path):
    """The port of configurable-http-proxy, started as the hub starts it."""
    config = (ROOT / "deploy" / "local" / "jupyterhub_config.py").read_text()
    assert re.search(r'"node", "--require", str\(HERE / "keep_alive.cjs"\)', config)
    target = f"http+unix://{quote(server.server_address, safe='')}"
    command = ["node", "--require", ROOT / "deploy/local/keep_alive.cjs"]
    command += [ROOT / "node_modules/.bin/configurable-http-proxy", "--port", "0", "--ip", "127.0.0.1"]
    command += ["--default-target", target, "--api-port", "0", "--log-level", "info"]
    environment = {**os.environ, "CONFIGPROXY_AUTH_TOKEN": "none"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    ports = listening(process.pid)
    yield ports
    process.kill()
    process.communicate()


def listening(pid, patience=60):
    """The ports of 127.0.0.1 on which a process listens, once there are two."""
    import psutil

    until = time.monotonic() + patience
    while time.monotonic() < until:
        ports = [c.laddr.port for c in psutil.Process(pid).net_connections("tcp") if c.status == "LISTEN"]
        if len(ports) == 2:
            return ports
        time.sleep(0.1)
    raise AssertionError(f"the proxy does not listen after {patience} s")


def post(port, form):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/hub/signup", body=form)
    answer = connection.getresponse()
    try:
        return answer.status, answer.read()
    finally:
        connection.close()


def test_forms_share_one_connection_to_the_socket(proxy, server):
    public = next(port for port in proxy if post(port, b"")[0] == 200)
    forms = [f"username={number}".encode() for number in range(20)]
    assert [post(public, form) for form in forms] == [(200, form) for form in forms]
    assert set(server.asked) == {"keep-alive"} and server.connections == 1
