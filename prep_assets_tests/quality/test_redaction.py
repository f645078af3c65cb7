"""Redaction of private data: nothing that is planted is left in a store of any family, every proof holds, and a value that is put back is noticed."""

from __future__ import annotations

import json
import random
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from prep_assets.checks.of_stores import stored_texts
from prep_assets.cli.main import app
from prep_assets.config import models as config
from prep_assets.config.family import Chat, PrivateKind
from prep_assets.config.loading import Tombstone, add_tombstones, payload_digest
from prep_assets.data import tables as cuts
from prep_assets.errors import CheckFailed, ConfigError, PrepAssetsError
from prep_assets.extensions.dagster.definitions import definitions
from prep_assets.extensions.dagster.io_manager import StoreIOManager
from prep_assets.extensions.dagster.site import Site, WorkspaceResource
from prep_assets.extensions.explain.streams import read_rows
from prep_assets.extensions.quality import redaction
from prep_assets.extensions.quality.redaction import FORMS, PLACEHOLDERS, Redactor, redacted, values_of
from prep_assets.extensions.quality.redaction_check import changed_beside, redaction_fault, redaction_holds
from prep_assets.extensions.selftest.stores import selftest
from prep_assets.graph.graph import EVERY, store_of
from prep_assets.pipeline import tokens
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.table import LINES
from prep_assets_tests.corpus.private_data import SENTENCES, planted
from prep_assets_tests.effort import SOAK
from prep_assets_tests.graph.families import FAMILIES as TRIED
from prep_assets_tests.graph.families import OF_TEXT, ROW
from prep_assets_tests.graph.workspaces import build, domain, jsonl, minimal, refusals, resealed, tree, verdicts, workspace_in
from prep_assets_tests.proofs.corruption import Ragged, lines

KINDS: tuple[PrivateKind, ...] = get_args(PrivateKind)


def planted_texts(count: int = 2000) -> tuple[list[str], list[str], list[str]]:
    """Texts in eight languages with a value each, the values, and their kinds: those of the test that finds them."""
    chance = random.Random(5)
    kinds = [chance.choice(list(FORMS)) for _ in range(count)]
    values = [planted(chance, kind) for kind in kinds]
    sentences = [*SENTENCES, *(sentence.replace(" ", "") for sentence in SENTENCES[6:])]  # Chinese and Japanese are written without spaces
    return [sentences[number % 10].format(value) for number, value in enumerate(values)], values, list(map(str, kinds))


ASSETS = [
    name for name, asset in EVERY.items() if asset.partitioned and asset.streams and (asset.family in OF_TEXT or not asset.holds(LINES))
]
"""The assets of a domain's texts, or of their tokens."""


def of(folder: Path, asset: str, texts: list[str], **options: Any) -> Workspace:
    """A workspace with one domain of the family of an asset, with a row for each text."""
    family = EVERY[asset].family
    schema = "group" if asset == "rl_groups_by_domain" else TRIED[family].schema
    folder.mkdir(parents=True, exist_ok=True)
    rows = [ROW[schema](f"{number}: {text}", f"Yes: {text}", f"No: {text}") for number, text in enumerate(texts)]
    source = domain(jsonl(folder / "rows.jsonl", rows), schema, **options)
    beside = {"template": "chatml"} if issubclass(config.FAMILIES[family], Chat) else {}
    output = {"output": {"storage_format": "bin"}} if asset == "pretrain_tokens" else {}
    return workspace_in(folder, minimal(family, {"rows": source}, test_fraction=0.1, **beside, **output))


FEW = ("sft_tokens", "preferences_by_domain", "pretrain_tokens")


@pytest.mark.parametrize("asset", [name if name in FEW else pytest.param(name, marks=pytest.mark.soak) for name in ASSETS])
def test_nothing_planted_is_left_and_every_proof_holds(tmp_path: Path, asset: str) -> None:
    """2,000 values in eight languages in every text of a row; in `make test` 200, and 80 where several texts of a row hold each."""
    texts, values, kinds = planted_texts(2000 if SOAK else 80 if asset in ("rl_groups_by_domain", "preference_tokens_by_domain") else 200)
    workspace = of(tmp_path, asset, texts, redact=list(KINDS))
    published = build(workspace, asset, "rows")
    stored = "\n".join(text for _, text in stored_texts(store_of(workspace, published)))
    left = [value for value in values if value in stored]
    assert len(left) <= 0.01 * len(values) and not any([*values_of([value], KINDS)] for value in left), left
    assert not [*values_of([stored], KINDS)]
    if asset == "sft_tokens":
        build(workspace, "sft_packed")
    numbers = verdicts(workspace, published)["accounting"].numbers
    kept = published.manifest.counts["kept"]
    for kind in KINDS:
        of_kind = stored.count(PLACEHOLDERS[kind])
        assert numbers[f"redacted_{kind}"] == of_kind
        assert of_kind >= 0.95 * kinds.count(kind) * kept / len(texts)
    for refusal in refusals(published):
        assert refusal.reason == "duplicate" and not [*values_of([str(refusal.payload)], KINDS)]


def test_rows_that_differ_in_private_data_alone_are_duplicates(tmp_path: Path) -> None:
    rows = [{"text": f"Write to {name}@mail.ru about the rent."} for name in ("anna", "olga", "ivan")]
    for kinds, kept in ((["email"], 1), (["phone"], 3), ([], 3)):
        source = domain(jsonl(tmp_path / "rows.jsonl", rows), "text", redact=kinds)
        workspace = workspace_in(tmp_path / f"{kinds}", minimal("pretrain", {"rows": source}))
        published = build(workspace, "pretrain_tokens", "rows")
        assert published.manifest.counts["kept"] == kept


@pytest.mark.parametrize(("countries", "kept"), [(["DE"], 1), (["FR"], 3), (None, 3)])
def test_the_countries_of_a_domain_decide_which_national_numbers_are_phones(tmp_path: Path, countries: list[str] | None, kept: int) -> None:
    rows = [{"text": f"Tel. 030 90182{number}"} for number in (901, 902, 903)]
    source = domain(jsonl(tmp_path / "rows.jsonl", rows), "text", redact=["phone"], **({"countries": countries} if countries else {}))
    workspace = workspace_in(tmp_path / "here", minimal("pretrain", {"rows": source}))
    published = build(workspace, "pretrain_tokens", "rows")
    assert published.manifest.counts["kept"] == kept


def test_dates_are_no_national_phone_numbers() -> None:
    """The library takes a fifth of German dates for numbers of Germany."""
    forms = ("{:02}.{:02}.{}", "{}.{}.{}", "{:02}/{:02}/{}", "{:02}-{:02}-{}")
    dates = [form.format(day, month, year) for form in forms for day in range(1, 29, 3) for month in range(1, 13) for year in (1987, 2018)]
    text = ", ".join(f"am {date} um 12:30" for date in dates)
    assert redacted(text, KINDS, ("DE", "IT", "CN")) == text
    assert redacted("am 03.09.2018 unter 030 901820", KINDS, ("DE",)) == "am 03.09.2018 unter <PHONE_NUMBER>"


def test_texts_with_known_values_are_redacted_before_a_store_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert redaction_fault() == ""
    monkeypatch.setattr(redaction, "_DATE", re.compile("(?!)"))
    redaction_fault.cache_clear()
    verdict = redaction_holds([], KINDS)
    redaction_fault.cache_clear()
    assert not verdict.passed and "nicht am <PHONE_NUMBER> um 12:30 Uhr.' of" in verdict.summary


def test_a_store_without_redaction_is_as_it_was(tmp_path: Path) -> None:
    texts = planted_texts(40)[0]
    plain, empty, redacts = (
        of(tmp_path / name, "sft_tokens", texts, **options)
        for name, options in (("a", {}), ("b", {"redact": []}), ("c", {"redact": ["iban"]}))
    )
    stores = [build(workspace, "sft_tokens", "rows") for workspace in (plain, empty, redacts)]
    assert tree(stores[0].directory) == tree(stores[1].directory)
    assert "redact" not in stores[0].manifest.recipe and stores[2].manifest.recipe["redact"].keys() == {"iban"}
    assert len({store.manifest.build_key for store in stores}) == 2


@pytest.mark.parametrize("asset", ["pretrain_tokens", "sft_tokens", "contrastive"])
def test_a_value_that_is_put_back_is_noticed(tmp_path: Path, asset: str) -> None:
    workspace = of(tmp_path, asset, planted_texts(80)[0], redact=list(KINDS))
    published = build(workspace, asset, "rows")
    value = "anna.7@mail.ru"
    if asset == "contrastive":
        lines(published, "contrastive", lambda rows: [{**rows[0], "query": f"Ask {value}"}, *rows[1:]])
    else:
        family = workspace.family(config.FAMILIES[EVERY[asset].family])
        ids = workspace.vocabulary(family).backend.encode(f" {value} ", add_special_tokens=False).ids
        stream = Ragged(published, next(iter(store_of(workspace, published).streams())))
        span = stream.span(3)
        assert stream.tokens is not None and span.stop - span.start > len(ids) + 2
        stream.tokens[span.start + 1 : span.start + 1 + len(ids)] = ids
        stream.tokens.flush()
    verdict = verdicts(workspace, resealed(published))["accounting"]
    assert not verdict.passed and "1 × email" in verdict.summary and value not in verdict.summary


@given(st.lists(st.sampled_from(["anna@mail.ru", "+49 30 1234567", "8.8.8.8", "4111 1111 1111 1111", "1", "-", " ", ".", "+", "x", "@"])))
def test_what_is_redacted_has_no_value_and_stays(parts: list[str]) -> None:
    text = redacted("".join(parts), KINDS)
    assert not [*values_of([text], KINDS)]
    assert redacted(text, KINDS) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4\n\nAbC+/=\n-----END RSA PRIVATE KEY-----\nDone", "<SECRET>\nDone"),
        (f"-----BEGIN PRIVATE KEY-----\n{'Ab+/' * 16}\n{'Ab+/' * 16}\nand so on", "<SECRET>\nand so on"),
        ("请联系anna@mail.ru或+49 30 1234567。", "请联系<EMAIL_ADDRESS>或<PHONE_NUMBER>。"),
        (
            "<a href='mailto:a@b.org'>a@b.org</a>, http://8.8.8.8/x",
            "<a href='mailto:<EMAIL_ADDRESS>'><EMAIL_ADDRESS></a>, http://<IP_ADDRESS>/x",
        ),
    ],
)
def test_the_whole_value_is_replaced(text: str, expected: str) -> None:
    assert redacted(text, KINDS) == expected


def test_a_row_keeps_its_shape() -> None:
    row = {
        "a@b.org": 1,
        "text": "Call a@b.org",
        "deep": [{"x": ["8.8.8.8", None, True, 1.5]}],
        "card": 4111111111111111,
        "id": 1234567890123,
    }
    kept = {
        "<EMAIL_ADDRESS>": 1,
        "text": "Call <EMAIL_ADDRESS>",
        "deep": [{"x": ["<IP_ADDRESS>", None, True, 1.5]}],
        "card": "<CREDIT_CARD>",
    }
    assert Redactor(KINDS)(row) == {**kept, "id": 1234567890123}
    assert Redactor(KINDS, frozenset([payload_digest(row)]))(row) == row
    assert Redactor(("email",))(row)["card"] == 4111111111111111
    keys = {"a@b.org": 1, "<EMAIL_ADDRESS>_": 2, "c@d.org": 3}
    assert Redactor(("email",))(keys) == {"<EMAIL_ADDRESS>": 1, "<EMAIL_ADDRESS>_": 2, "<EMAIL_ADDRESS>__": 3}
    others = MappingProxyType({7: ("a@b.org", None), "b": MappingProxyType({"to": "c@d.org"})})
    assert Redactor(("email",))(others) == {7: ["<EMAIL_ADDRESS>", None], "b": {"to": "<EMAIL_ADDRESS>"}}


WHOLE: dict[str, Any] = {
    "a@b.org": 1,
    "text": "Call anna@b.org or c@d.org!",
    "deep": ("8.8.8.8", None, 1.5, float("nan")),
    "card": 4111111111111111,
}
CLEAN: dict[str, Any] = {
    "<EMAIL_ADDRESS>": 1,
    "text": "Call <EMAIL_ADDRESS> or <EMAIL_ADDRESS>!",
    "deep": ["<IP_ADDRESS>", *WHOLE["deep"][1:]],
    "card": "<CREDIT_CARD>",
}


@pytest.mark.parametrize(
    ("redacted", "fault"),
    [
        (WHOLE, ""),  # one that is removed for good stays as it is
        (CLEAN, ""),
        ({"<EMAIL_ADDRESS>__": 1, **{key: CLEAN[key] for key in ("text", "deep", "card")}}, ""),
        *(({**CLEAN, "text": text}, "text") for text in ("", "Call", "Call <EMAIL_ADDRESS>?", "Call <EMAIL_ADDRESS> and <EMAIL_ADDRESS>!")),
        *(
            ({**CLEAN, "text": text}, "text")
            for text in ("Coll <EMAIL_ADDRESS>!", "Call anna@b.org or c@d.org!<EMAIL_ADDRESS>", None, 7, ["Call"])
        ),
        ({**CLEAN, "deep": CLEAN["deep"][:3]}, "deep"),
        ({**CLEAN, "deep": ["<IP_ADDRESS>", 1.5, None, 0]}, "deep[1]"),
        ({**CLEAN, "deep": ["8.8.8.9", *CLEAN["deep"][1:]]}, "deep[0]"),
        ({**CLEAN, "card": "4111"}, "card"),
        ({**CLEAN, "card": 4111111111111112}, "card"),
        ({**CLEAN, "<EMAIL_ADDRESS>": True}, "a@b.org"),
        ({"b@b.org": 1, **{key: CLEAN[key] for key in ("text", "deep", "card")}}, "a@b.org"),
        ({key: CLEAN[key] for key in ("text", "deep", "card")}, "all of it"),
        (None, "all of it"),
    ],
)
def test_of_a_row_nothing_but_values_is_replaced(redacted: Any, fault: str) -> None:
    assert changed_beside(WHOLE, redacted) == fault


@pytest.mark.parametrize(
    ("text", "redacted", "right"),
    [
        *((text, "<EMAIL_ADDRESS>", right) for text, right in (("a@b.org", True), ("<EMAIL_ADDRESS>", True), ("", False))),
        *(
            (text, "a<EMAIL_ADDRESS>a", right)
            for text, right in (("axa", True), ("aa", False), ("a", False), ("aaa", True), ("axb", False))
        ),
        *((text, "<IP_ADDRESS><IP_ADDRESS>", right) for text, right in (("1", False), ("12", True))),
        *((text, "<IP_ADDRESS> and <IP_ADDRESS> and", right) for text, right in (("1 and 2 and", True), ("1 and and", False))),
    ],
)
def test_each_placeholder_stands_for_something(text: str, redacted: str, right: bool) -> None:
    assert (changed_beside(text, redacted) == "") is right


@pytest.mark.parametrize("lost", ["answer", "words"])
def test_what_redaction_loses_stops_the_build(lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks read rows through it, too: they would take what it leaves for the row, and a chat without its answer for one that must be rejected."""
    whole = Redactor.__call__

    def losing(self: Redactor, value: Any) -> Any:
        row = whole(self, value)
        if "fine, 4" not in str(row):
            return row
        if lost == "answer":
            return {**row, "messages": [*row["messages"][:-1], row["messages"][0]]}
        return {**row, "messages": [{**each, "content": each["content"].replace("fine", "")} for each in row["messages"]]}

    rows = [
        {
            "messages": [
                {"role": "user", "content": f"I am {n}, anna{n}@b.org. And you?"},
                {"role": "assistant", "content": f"I am fine, {n}."},
            ]
        }
        for n in range(10)
    ]
    options = minimal("sft", {"d": {**domain(jsonl(tmp_path / "rows.jsonl", rows), "messages"), "redact": ["email"]}})
    workspace = workspace_in(tmp_path, options)
    monkeypatch.setattr(Redactor, "__call__", losing)
    with pytest.raises(PrepAssetsError, match=r"rows\.jsonl:5: redact changes 'messages\[1\]\.\w+' by more than placeholders"):
        build(workspace, "sft_tokens", "d")
    monkeypatch.undo()
    assert build(workspace, "sft_tokens", "d").manifest.counts["kept"] == 10


def test_selftest_puts_values_back(tmp_path: Path) -> None:
    workspace = of(tmp_path, "sft_tokens", planted_texts(40)[0], redact=["phone", "secret"])
    trials = selftest(workspace, build(workspace, "sft_tokens", "rows"))
    assert [trial.check for trial in trials if trial.mutation.endswith("is put back")] == ["accounting", "accounting"]
    assert all(trial.caught == trial.tried for trial in trials)


@pytest.mark.parametrize("workers", [1, pytest.param(3, marks=pytest.mark.soak)])
def test_whoever_reads_a_row_reads_the_same_redacted_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    """Tables and lines that cannot be read, shards, the quarantine, quality steps, rows as `trace` and `inspect` show them, and tools."""
    monkeypatch.setattr(cuts, "SHARD_BYTES", 400)
    monkeypatch.setattr(tokens, "FEWEST", 2)
    rows: list[dict[str, Any]] = [
        {"prompt": f"{number}: Who is a{number}@mail.ru?", "completion": f"Call +49 30 12345{number}, {number / 7}."}
        for number in range(60)
    ]
    rows[50]["completion"] = ""
    path = jsonl(tmp_path / "rows.jsonl", rows)
    path.write_text(path.read_text("utf-8") + '{"prompt": "x@mail.ru"\n', "utf-8")
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "table.parquet")
    options = {"template": "chatml", "workers": workers, "quality": {"steps": {"private_data": {"action": "note"}}}}
    stores = {}
    for name in ("rows.jsonl", "table.parquet"):
        source = domain(tmp_path / name, "prompt_completion", redact=["phone", "email"])
        workspace = workspace_in(tmp_path / f"of {name}", minimal("sft", {"rows": source}, **options))
        published = stores[name] = build(workspace, "sft_tokens", "rows")
        judged = workspace.built("sft_quality", "rows")
        assert judged.manifest.counts["found"] == {}
        assert not any("@" in str(refusal.payload) for refusal in refusals(published))
        assert read_rows(workspace, "sft_raw", "rows", [(0, 3)])[0, 3].payload == {
            "prompt": "3: Who is <EMAIL_ADDRESS>?",
            "completion": f"Call <PHONE_NUMBER>, {3 / 7}.",
        }
    assert [refusal.reason for refusal in refusals(stores["rows.jsonl"])] == ["empty_answer", "invalid_json"]


def test_a_forgotten_row_stays_away_when_its_domain_is_redacted(tmp_path: Path) -> None:
    rows = [{"text": f"{number}: Write to a{number}@mail.ru.", "score": number / 7} for number in range(5)]
    source = {**domain(jsonl(tmp_path / "rows.jsonl", rows), "text", ignore=["score"]), "redact": ["email"]}
    workspace = workspace_in(tmp_path, minimal("pretrain", {"rows": source}))
    add_tombstones(workspace.configs, [Tombstone("pretrain", "rows", "rows.jsonl:3", payload_digest(rows[2]), "asked")])
    workspace = Workspace(workspace.configs, workspace.stores)
    published = build(workspace, "pretrain_tokens", "rows")
    assert [(refusal.id, refusal.reason) for refusal in refusals(published)] == [("rows.jsonl:3", "forgotten")]


PLANTED = ("anna.b@mail.ru", "030 90186445", "4111 1111 1111 1111", "DE89 3704 0044 0532 0130 00", "12345678Z")


def in_parts(value: str) -> list[dict[str, str]]:
    """A value as the content of a turn that comes together from two parts."""
    name, _, host = value.partition("@")
    return [{"type": "text", "text": part} for part in (name, f"@{host}")]


def with_planted(folder: Path, is_clean: bool) -> Workspace:
    """A workspace whose rows hold a value of several kinds in turns, in what the schema rejects, in keys and in a field that it does not read; and one that
    comes together from two parts of a turn, which stops the build, unless it is clean."""
    said = "Bitte notieren Sie sich {} und geben Sie uns bis Freitag Bescheid, ob alles stimmt."
    turns = [({"role": "user", "content": said.format(value)}, {"role": "assistant", "content": f"Ja: {value}"}) for value in PLANTED]
    rows: list[dict[str, Any]] = [{"messages": [*each]} for each in turns]
    rows += [{"messages": [{"role": value, "content": said.format(value)}], "more": value} for value in PLANTED]
    calls = [{"type": "function", "function": {"name": "send", "arguments": {value: 1}}} for value in PLANTED]
    rows.append({"messages": [{"role": "user", "content": said.format("das")}, {"role": "assistant", "content": "", "tool_calls": calls}]})
    rows.append({"messages": [{"role": "user", "content": said.format("nichts")}], "tools": dict.fromkeys(PLANTED, 1)})
    hidden = [{"role": "user", "content": in_parts(PLANTED[0])}, {"role": "assistant", "content": "Done."}]
    folder.mkdir()
    source = domain(
        jsonl(folder / "rows.jsonl", [*rows, *([] if is_clean else [{"messages": hidden}])]),
        "messages",
        redact=list(KINDS),
        ignore=["more"],
    )
    return workspace_in(folder, minimal("sft", {"rows": source}, template="qwen3", quality={"steps": {"private_data": {"action": "note"}}}))


def written_under(folder: Path) -> dict[str, str]:
    """The text of each file but the source's: tables of Parquet and of databases are read."""
    found = {}
    for path in (path for path in folder.rglob("*") if path.is_file() and path.name != "rows.jsonl"):
        found[str(path)] = path.read_bytes().decode("utf-8", "replace")
        if path.suffix == ".parquet":
            found[str(path)] = str(pq.read_table(path).to_pydict())
        elif path.suffix == ".db":
            with closing(sqlite3.connect(path)) as database:
                found[str(path)] = "\n".join(database.iterdump())
    return found


BUILD = """
import json, os, sys
from typer.testing import CliRunner
from prep_assets.cli.main import app
for workspace in json.loads(sys.argv[1]):
    os.environ["PREP_ASSETS_CONFIG_DIR"], os.environ["PREP_ASSETS_STORE_DIR"] = workspace
    done = CliRunner().invoke(app, ["build", "sft_tokens"])
    print(json.dumps([done.exit_code, done.output]))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, tuple[Workspace, int, str]]:
    """A workspace whose rows are clean and one whose rows are not, with the exit code and the words of their builds: by a process of its own, since in
    that of the tests a store is held open until the next search for garbage."""
    folder = tmp_path_factory.mktemp("planted")
    made = {is_clean: with_planted(folder / str(is_clean), is_clean) for is_clean in (True, False)}
    asked = json.dumps([[str(each.configs), str(each.stores)] for each in made.values()])
    done = subprocess.run([sys.executable, "-c", BUILD, asked], capture_output=True, text=True, check=True)
    return {is_clean: (each, *json.loads(line)) for (is_clean, each), line in zip(made.items(), done.stdout.splitlines(), strict=True)}


@pytest.mark.parametrize("is_clean", [True, False])
def test_nothing_is_left_of_a_build(built: dict[bool, tuple[Workspace, int, str]], monkeypatch: pytest.MonkeyPatch, is_clean: bool) -> None:
    """Neither in stores, quarantine and failed candidates, nor in what commands print and pages show; national numbers of the language among them."""
    workspace, code, said = built[is_clean]
    folder = workspace.configs.parent
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", str(workspace.configs))
    monkeypatch.setenv("PREP_ASSETS_STORE_DIR", str(workspace.stores))
    commands = (["quarantine"], ["inspect"], ["status"], ["report", "-o", str(folder / "page.html")])
    assert (code == 0) is is_clean, said
    assert is_clean or ("1 × email" in said and "deleted, since its domain is redacted" in " ".join(said.split()))
    shown = [said, *(CliRunner().invoke(app, [*words, "sft_tokens"]).output for words in commands)]
    versions = [path for path in (workspace.stores / "sft_tokens" / "rows" / "versions").iterdir() if path.is_dir()]
    assert len(versions) == is_clean
    written = [*written_under(folder).values(), *shown]
    assert not [value for value in PLANTED for text in written if value in text]
    assert not is_clean or sum("<PHONE_NUMBER>" in text for text in written) > 1


@pytest.mark.parametrize("is_clean", [pytest.param(True, marks=pytest.mark.soak), False])
def test_nothing_is_left_of_a_run_of_dagster(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, is_clean: bool
) -> None:
    """Neither in events and logs of the run, nor in what it prints."""
    folder = tmp_path / "here"
    workspace = with_planted(folder, is_clean)
    site = Site(WorkspaceResource(configs=str(workspace.configs)), StoreIOManager(store_dir=str(workspace.stores)))
    (folder / "history").mkdir()
    with dg.DagsterInstance.local_temp(str(folder / "history")) as instance:
        job = definitions(site).resolve_implicit_global_asset_job_def()
        ended = job.execute_in_process(
            instance=instance, asset_selection=[dg.AssetKey("sft_tokens")], partition_key="rows", raise_on_error=False
        )
    assert ended.success is is_clean
    written = written_under(folder) | {"printed": "".join(capfd.readouterr()), "logged": caplog.text}
    assert not [(value, name) for value in PLANTED for name, text in written.items() if value in text]
    events = [text for name, text in written.items() if "history" in name]
    assert any("STEP_SUCCESS" in text if is_clean else "1 × email" in text or "1 \\u00d7 email" in text for text in events)


def test_values_that_redaction_cannot_see_block_the_store(tmp_path: Path) -> None:
    """Two parts of a turn, and token ids."""
    messages = [{"role": "user", "content": in_parts("a@mail.ru")}, {"role": "assistant", "content": "Done."}]
    source = domain(jsonl(tmp_path / "rows.jsonl", [{"messages": messages}]), "messages", redact=["email"])
    workspace = workspace_in(tmp_path, minimal("sft", {"rows": source}, template="qwen3"))
    with pytest.raises(CheckFailed, match=r"accounting: private data of 1 texts are left: 1 × email"):
        build(workspace, "sft_tokens", "rows")
    tokenized = domain(tmp_path / "rows.jsonl", "tokenized", redact=["email"], tokenized_by="x")
    with pytest.raises(ConfigError, match="redact: email cannot be replaced in token ids"):
        workspace_in(tmp_path, minimal("sft", {"rows": tokenized})).family(config.Sft)
