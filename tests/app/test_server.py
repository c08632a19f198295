"""Serving: ports, addresses, downloads, and nothing heavy in the process."""

from __future__ import annotations

import csv
import io
import json
import os
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from ampscope.app.runs import RunStore
from ampscope.app.server import Server, bind, create_app
from ampscope.errors import AmpscopeError
from tests.app.tracekit import RunKit

HOST = {"Host": "localhost"}


@pytest.fixture(scope="module")
def client(store: RunStore) -> Iterator[FlaskClient]:
    with create_app(store).server.test_client() as client:
        yield client


def test_a_taken_port_is_refused_and_otherwise_the_next_is_taken() -> None:
    with bind("127.0.0.1", None) as first, bind("127.0.0.1", None) as second:
        port = first.getsockname()[1]
        assert second.getsockname()[1] != port
        with pytest.raises(AmpscopeError, match=f"Cannot serve on 127.0.0.1:{port}: .*choose another --port"):
            bind("127.0.0.1", port)


@pytest.mark.parametrize("host", ["no.such.host.invalid", "256.1.1.1", "192.0.2.1"])
def test_an_impossible_address_is_one_sentence(host: str) -> None:
    with pytest.raises(AmpscopeError, match=f"Cannot serve on {host}: .*; choose another --port or --host"):
        bind(host, None)


@pytest.mark.parametrize("port", [-1, 70000])
def test_an_impossible_port_is_one_sentence(port: int) -> None:
    with pytest.raises(AmpscopeError, match=f"There is no port {port}"):
        bind("127.0.0.1", port)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "0.0.0.0"])
def test_it_serves_where_it_says(store: RunStore, host: str) -> None:
    if ":" in host and not socket.has_ipv6:
        pytest.skip("no IPv6 on this machine")
    server = Server(create_app(store, ["0.0.0.0"] if host == "0.0.0.0" else ()), host)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    with urllib.request.urlopen(server.url, timeout=10) as answer:
        assert answer.status == 200
    server.stop()
    thread.join(10)
    assert not thread.is_alive()


def test_downloads(client: FlaskClient) -> None:
    answer = client.get("/download/steps.csv?run=first", headers=HOST)
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert len(rows) == 40
    assert rows[0]["skipped"] == "True"
    assert float(rows[0]["loss"]) == 4.2
    assert answer.headers["Content-Disposition"] == 'attachment; filename="steps.csv"'
    found = json.loads(client.get("/download/diagnosis.json?run=first", headers=HOST).text)
    assert found["schema"] == 1
    assert "coverage" in found


def test_reports_are_redacted(tmp_path: Path) -> None:
    kit = RunKit().build()
    kit.rows["calls"][0]["file"] = "/home/ada/secret-project/train.py"
    kit.rows["events"][0]["message"] = "read /home/ada/secret-project/data.bin"
    path = kit.write(tmp_path / "r")
    with create_app(RunStore([path])).server.test_client() as client:
        text = client.get("/download/report.md", headers=HOST)
        page = client.get("/download/report.html", headers=HOST)
        raw = client.get("/download/calls.csv", headers=HOST)
    assert text.mimetype == "text/markdown"
    assert text.text.startswith("# ")
    assert page.text.lstrip().lower().startswith("<!doctype html>")
    assert page.headers["Content-Disposition"] == 'attachment; filename="report.html"'
    for answer in (text, page):
        assert "secret-project/" not in answer.text
        assert str(tmp_path) not in answer.text
    assert "secret-project/" in raw.text


@pytest.mark.parametrize("name", ["tensors.csv", "run.json", "steps.csv%00", "%2e%2e"])
def test_nothing_else_can_be_downloaded(client: FlaskClient, name: str) -> None:
    assert client.get(f"/download/{name}", headers=HOST).status_code == 404


@pytest.mark.parametrize(
    "path", ["/download/..%2Frun.json", "/assets/..%2Fserver.py", "/assets/../server.py"]
)
def test_no_path_leads_out(client: FlaskClient, path: str) -> None:
    answer = client.get(path, headers=HOST)
    assert answer.status_code == 404 or answer.text.startswith("<!DOCTYPE html>")


def test_the_process_needs_no_torch(run_dir: Path) -> None:
    code = (
        "import sys, pathlib\n"
        "from ampscope.app.server import create_app\n"
        "from ampscope.app.runs import RunStore\n"
        "store = RunStore([pathlib.Path(sys.argv[1])])\n"
        "create_app(store)\n"
        "store.get(store.names[0]).diagnosis()\n"
        "store.warm()\n"
        "bad = [m for m in ('torch', 'ampscope.hooks', 'ampscope.launch') if m in sys.modules]\n"
        "assert not bad, bad\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code, str(run_dir)], capture_output=True, text=True, env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")
