"""Hosts, origins and headers: a foreign page that points its name at this machine gets nothing."""

from __future__ import annotations

import pytest
from flask.testing import FlaskClient

from ampscope.app.runs import RunStore
from ampscope.app.security import host_of, is_loopback
from ampscope.app.server import create_app


@pytest.fixture(scope="module")
def client(store: RunStore) -> FlaskClient:
    found: FlaskClient = create_app(store).server.test_client()
    return found


@pytest.fixture(scope="module")
def open_client(store: RunStore) -> FlaskClient:
    found: FlaskClient = create_app(store, ["gpu-box"]).server.test_client()
    return found


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("localhost:80", "localhost"),
        ("[::1]:8265", "::1"),
        ("::1", "::1"),
        ("127.0.0.1", "127.0.0.1"),
        ("", ""),
    ],
)
def test_the_host_of_a_header(header: str, host: str) -> None:
    assert host_of(header) == host


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.1", "[::1]", "::1", "LOCALHOST"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["", "0.0.0.0", "192.168.1.2", "example.com", "127.0.0.1.example.com", "localhost.evil.com"]
)
def test_not_loopback(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize("host", ["localhost:8265", "127.0.0.1:8265", "[::1]:8265"])
def test_this_machine_is_served(client: FlaskClient, host: str) -> None:
    assert client.get("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.com", "evil.com:8265", "127.0.0.1.evil.com", "192.168.1.7", "gpu-box", " "]
)
def test_other_names_are_refused(client: FlaskClient, host: str) -> None:
    for path in ("/", "/_dash-layout", "/download/steps.csv"):
        assert client.get(path, headers={"Host": host}).status_code == 403


def test_foreign_origins_are_refused(client: FlaskClient) -> None:
    headers = {"Host": "127.0.0.1:8265", "Origin": "https://evil.com"}
    assert client.post("/_dash-update-component", headers=headers, json={}).status_code == 403
    cross = {"Host": "127.0.0.1:8265", "Sec-Fetch-Site": "cross-site"}
    assert client.post("/_dash-update-component", headers=cross, json={}).status_code == 403
    own = {"Host": "127.0.0.1:8265", "Origin": "http://127.0.0.1:8265"}
    assert client.get("/_dash-layout", headers=own).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"), [("gpu-box:80", 200), ("10.0.0.3", 200), ("[fe80::1]", 200), ("evil.com", 403)]
)
def test_an_open_server_knows_its_names_and_addresses(
    open_client: FlaskClient, host: str, status: int
) -> None:
    assert open_client.get("/", headers={"Host": host}).status_code == status


def test_browsers_are_told_to_stay_here(client: FlaskClient) -> None:
    answer = client.get("/", headers={"Host": "localhost"})
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "unsafe-eval" not in policy
    assert "script-src 'self' 'sha256-" in policy
    assert "script-src 'self' 'unsafe-inline'" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert "http://" not in answer.text.replace("http://www.w3.org", "")
    assert "https://" not in answer.text.split("_dash-config")[0]
