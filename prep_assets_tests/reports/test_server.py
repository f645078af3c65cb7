"""The server of pages: what it answers, and to whom."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest

from prep_assets.errors import PrepAssetsError
from prep_assets.extensions.explain.serve import home_page, server
from prep_assets.pipeline.workspace import HOST, Workspace, page_address
from prep_assets.stores.table import open_stream
from prep_assets.stores.version_folders import Published, point
from prep_assets_tests.reports.hostile import Read, hostile_workspace

Hostile = tuple[Workspace, dict[str, Published]]


def _trace(workspace: Workspace, asset: str, partition: str, asked: Mapping[str, str]) -> str:
    return f"{asset} {partition} {dict(asked)} <b>\nline two"


@pytest.fixture
def port(hostile: Hostile) -> Iterator[int]:
    serving = server(lambda: hostile[0], 0, rows=5, trace=_trace)
    thread = threading.Thread(target=serving.serve_forever, args=(0.01,), daemon=True)
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


def test_the_first_page_has_the_state_and_the_time_of_each_store(port: int, hostile: Hostile) -> None:
    workspace, stores = hostile
    read = Read(_get(port, "/")[1])
    assert "/stores/sft_tokens/evil" in read.addresses
    assert read.texts.count("current") == len(stores) + sum(bool(store.manifest.partition) for store in stores.values())
    for store in stores.values():
        written = (store.directory / "manifest.json").stat().st_mtime
        assert time.strftime("%Y-%m-%d %H:%M", time.gmtime(written)) in read.texts
    tokens = workspace.place("sft_tokens", "evil").directory / "current"
    target = tokens.readlink()
    tokens.unlink()
    try:
        read = Read(_get(port, "/")[1])
    finally:
        tokens.symlink_to(target)
    assert ("missing" in read.texts, "stale" in read.texts, "sft_tokens[evil] is missing" in read.texts) == (True, True, True)
    assert "/stores/sft_tokens/evil" not in read.addresses


def test_a_family_that_cannot_be_read_is_named_on_the_first_page(tmp_path: Path) -> None:
    workspace = hostile_workspace(tmp_path)
    (workspace.configs / "rl.yaml").write_text("tokenizers: x\n", "utf-8")
    read = Read(home_page(workspace))
    assert any("rl.yaml" in text for text in read.texts) and "sft_packed" in read.texts


def test_search_covers_the_whole_store(port: int) -> None:
    found = Read(_get(port, f"/stores/sft_tokens?find={quote('rows.jsonl:9')}&in=id")[1])
    assert found.held("index")["number"] == [8]
    found = Read(_get(port, f"/stores/sft_tokens?find={quote('TYPED by a user')}")[1])
    assert found.held("index")["number"] == [9]
    assert Read(_get(port, "/stores/sft_tokens?domain=other")[1]).rows() == []
    assert len(Read(_get(port, "/stores/sft_tokens?domain=evil")[1]).rows()) == 5


def test_text_is_found_where_it_is_trained_and_where_it_is_masked(port: int) -> None:
    for text, trained in {"q6": False, "a6": True}.items():
        for where, found in {"text": True, "trained": trained, "masked": not trained}.items():
            assert Read(_get(port, f"/stores/sft_tokens?find={text}&in={where}")[1]).held("index")["number"] == [6] * found, (text, where)
    status, said = _get(port, "/stores/sft_tokens?find=q6&in=title")
    assert (status, "title" in said) == (500, True)


def test_refused_records_are_found_by_reason(port: int) -> None:
    every = Read(_get(port, "/stores/sft_tokens")[1]).held("refused")
    chosen = Read(_get(port, "/stores/sft_tokens?reason=no_assistant")[1]).held("refused")
    assert (len(every), len(chosen), {row[2] for row in chosen}) == (4, 4, {"schema/no_assistant_turn"})
    page = _get(port, "/stores/sft_tokens?reason=duplicate")[1]
    assert (Read(page).held("refused"), "4 records were refused; 0 of that reason are here" in page) == ([], True)


def test_rows_are_found_by_length_and_trained_share(port: int, hostile: Hostile) -> None:
    store = open_stream(hostile[1]["sft_tokens"].directory, "train")
    rows = [(len(store.record(number, "tokens")), int(np.count_nonzero(store.record(number, "loss_mask")))) for number in range(len(store))]
    lengths = sorted(length for length, _ in rows)
    middle, share = lengths[len(lengths) // 2], 100 * rows[0][1] // rows[0][0]
    for asked, fits in {
        f"longest={middle}": lambda length, trained: length <= middle,
        f"shortest={middle}": lambda length, trained: length >= middle,
        f"least_trained={share + 1}": lambda length, trained: 100 * trained >= (share + 1) * length,
        f"most_trained={share}&longest={middle}": lambda length, trained: 100 * trained <= share * length and length <= middle,
    }.items():
        expected = [number for number, row in enumerate(rows) if fits(*row)]
        assert Read(_get(port, f"/stores/sft_tokens?{asked}")[1]).held("index")["number"] == expected[:5]
        assert len(expected) < len(rows)
    status, said = _get(port, "/stores/sft_tokens?shortest=-1")
    assert (status, "whole numbers" in said) == (500, True)


def test_what_is_asked_for_stays_text(port: int) -> None:
    asked = '"><script>window.pwned = 1</script>\u202e'
    plain = Read(_get(port, "/stores/sft_tokens?find=nothing%20has%20this")[1])
    assert Read(_get(port, f"/stores/sft_tokens?find={quote(asked)}")[1]).tags == plain.tags


def test_one_store_of_an_asset(port: int, hostile: Hostile) -> None:
    partition = hostile[1]["sft_tokens"].manifest.partition
    address = page_address("sft_tokens", partition).partition(":8899")[2]
    assert (_get(port, address)[0], len(Read(_get(port, address)[1]).rows())) == (200, 5)


def test_a_store_that_waits_for_its_checks_has_a_page_without_traces(port: int, hostile: Hostile) -> None:
    address = page_address("sft_packed", candidate=True).partition(":8899")[2]
    assert _get(port, address) == (404, "no store at /candidates/sft_packed, so none fails its checks")
    workspace, stores = hostile
    store = stores["sft_packed"].directory.resolve()
    point(workspace.place("sft_packed").directory, "candidate", store)
    try:
        status, page = _get(port, address)
    finally:
        (workspace.place("sft_packed").directory / "candidate").unlink()
    assert status == 200
    assert "traced" not in Read(page).held("streams")[0] and "trace" not in Read(page).held("streams")[0]


def test_a_trace_is_asked_for_by_row_and_token_and_stays_text(port: int) -> None:
    traced = Read(_get(port, "/stores/sft_packed")[1]).held("streams")[0]["traced"]
    status, page = _get(port, f"{traced}&row=3&token=40")
    assert status == 200
    assert (
        "sft_packed  {&#39;stream&#39;: &#39;sft_packed&#39;, &#39;row&#39;: &#39;3&#39;, &#39;token&#39;: &#39;40&#39;} &lt;b&gt;\nline two"
        in page
    )


@pytest.mark.parametrize(
    "address",
    [
        *("/stores/other", "/candidates/other", "/traces/other", "/stores/sft_tokens/other", "/stores/../../etc/passwd"),
        *("/stores/%2e%2e/x", "//evil/x", "/x"),
    ],
)
def test_nothing_else_is_there(port: int, address: str) -> None:
    assert _get(port, address)[0] == 404


def test_only_reading_and_only_this_machine(port: int) -> None:
    assert _get(port, "/", "POST")[0] == 501
    assert _get(port, "/", Host="evil.example")[0] == 403
    assert _get(port, "/", Host=f"localhost:{port}")[0] == 200


def test_a_port_that_is_taken(port: int, hostile: Hostile) -> None:
    with pytest.raises(PrepAssetsError, match="--port"):
        server(lambda: hostile[0], port, rows=1, trace=_trace)


def test_a_damaged_store_is_said(tmp_path: Path) -> None:
    def broken() -> Workspace:
        raise ValueError("damaged")

    serving = server(broken, 0, rows=1, trace=_trace)
    threading.Thread(target=serving.handle_request, daemon=True).start()
    assert _get(serving.server_port, "/") == (500, "ValueError: damaged")
    serving.server_close()
