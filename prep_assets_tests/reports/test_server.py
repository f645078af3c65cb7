"""The server of pages: what it answers, and to whom."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from prep_assets.assets.workspace import Workspace
from prep_assets.errors import PrepAssetsError
from prep_assets.reports.server import HOST, server
from prep_assets.stores.published import Published
from prep_assets_tests.reports.hostile import Read

Hostile = tuple[Workspace, dict[str, Published]]


@pytest.fixture
def port(hostile: Hostile) -> Iterator[int]:
    workspace, stores = hostile
    serving = server(lambda: workspace, lambda _: {name: [store] for name, store in stores.items()}, 0, rows=5)
    thread = threading.Thread(target=serving.serve_forever, daemon=True)
    thread.start()
    yield serving.server_port
    serving.shutdown()
    serving.server_close()
    thread.join()


def _get(port: int, address: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(HOST, port)
    connection.request(method, address, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_pages(port: int) -> None:
    status, first = _get(port, "/")
    assert status == 200
    assert "/stores/sft_packed" in Read(first).addresses
    status, page = _get(port, "/stores/sft_tokens")
    assert (status, len(Read(page).rows())) == (200, 5)


def test_search_covers_the_whole_store(port: int) -> None:
    found = Read(_get(port, f"/stores/sft_tokens?find={quote('rows.jsonl:8')}&in=id")[1])
    assert found.held("index")["number"] == [8]
    found = Read(_get(port, f"/stores/sft_tokens?find={quote('TYPED by a user')}")[1])
    assert found.held("index")["number"] == [9]
    assert Read(_get(port, "/stores/sft_tokens?domain=other")[1]).rows() == []
    assert len(Read(_get(port, "/stores/sft_tokens?domain=evil")[1]).rows()) == 5


def test_what_is_asked_for_stays_text(port: int) -> None:
    asked = '"><script>window.pwned = 1</script>\u202e'
    plain = Read(_get(port, "/stores/sft_tokens?find=nothing%20has%20this")[1])
    assert Read(_get(port, f"/stores/sft_tokens?find={quote(asked)}")[1]).tags == plain.tags


@pytest.mark.parametrize("address", ["/stores/other", "/stores/../../etc/passwd", "/stores/%2e%2e/x", "//evil/x", "/x"])
def test_nothing_else_is_there(port: int, address: str) -> None:
    assert _get(port, address)[0] == 404


def test_only_reading_and_only_this_machine(port: int) -> None:
    assert _get(port, "/", "POST")[0] == 501
    assert _get(port, "/", Host="evil.example")[0] == 403
    assert _get(port, "/", Host=f"localhost:{port}")[0] == 200


def test_a_port_that_is_taken(port: int, hostile: Hostile) -> None:
    with pytest.raises(PrepAssetsError, match="--port"):
        server(lambda: hostile[0], lambda _: {}, port, rows=1)


def test_a_damaged_store_is_said(tmp_path: Path) -> None:
    def broken() -> Workspace:
        raise ValueError("damaged")

    serving = server(broken, lambda _: {}, 0, rows=1)
    threading.Thread(target=serving.handle_request, daemon=True).start()
    assert _get(serving.server_port, "/") == (500, "ValueError: damaged")
    serving.server_close()
