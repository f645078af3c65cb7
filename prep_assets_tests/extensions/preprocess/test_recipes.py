"""Every recipe is valid, and runs on small data sets of the same shape, which lie where the hub's own code looks for them."""

from __future__ import annotations

import gzip
import io
import json
import re
import shutil
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from tokenizers import Tokenizer

from prep_assets.config.loading import load_family
from prep_assets.config.models import FAMILIES
from prep_assets.extensions.preprocess.astrai import load_pipeline, migrate_pipeline
from prep_assets.extensions.remote.hub import hub_address
from prep_assets.graph.graph import ASSETS, EVERY, assets_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.corpus.agents import of_rllm, of_verifiers, run, trace
from prep_assets_tests.extensions.preprocess import handler_rows
from prep_assets_tests.extensions.preprocess.pipelines import CHAT, DPO, GRPO, INSTRUCTION, SECTIONS_CHAT, TEXT
from prep_assets_tests.graph.families import LAST
from prep_assets_tests.graph.pictures import film, png
from prep_assets_tests.graph.workspaces import make, out_of_date

CONFIGS = Path(__file__).resolve().parents[3] / "configs"
RECIPES = CONFIGS / "recipes"
FILES = sorted(path.relative_to(RECIPES).as_posix() for path in RECIPES.rglob("*.yaml"))
ALPACA = [{"instruction": f"Add {n} and 1.", "input": "", "output": f"{n + 1}"} for n in range(6)]
CHATS = [{"messages": [{"role": "user", "content": f"Hi {n}"}, {"role": "assistant", "content": f"Hello {n}!"}]} for n in range(6)]
GSM8K = [{"question": f"What is {n} plus 1?", "answer": f"It is {n}+1.\n#### {n + 1}"} for n in range(6)]
HH = [{"chosen": f"\n\nHuman: Q{n}?\n\nAssistant: Yes {n}.", "rejected": f"\n\nHuman: Q{n}?\n\nAssistant: No."} for n in range(6)]
ULTRAFEEDBACK = [
    {
        "prompt": f"Q{n}?",
        "chosen": [{"role": "user", "content": f"Q{n}?"}, {"role": "assistant", "content": f"Good {n}"}],
        "rejected": [{"role": "user", "content": f"Q{n}?"}, {"role": "assistant", "content": "Bad"}],
        "score_chosen": 8.0,
        "score_rejected": 2.0,
    }
    for n in range(6)
]
LLAVA = [
    {
        "id": f"{n}",
        "image": f"{n}.jpg",
        "conversations": [{"from": "human", "value": "<image>\nColour?"}, {"from": "gpt", "value": f"Red {n}."}],
    }
    for n in range(6)
]
SHAREGPT = [
    {
        "id": f"chat_{n}",
        "conversations": [
            {"from": "human", "value": f"Weather in {n}?"},
            {"from": "function_call", "value": '{"name": "weather", "arguments": {"city": "X"}}'},
            {"from": "observation", "value": '{"sky": "clear"}'},
            {"from": "gpt", "value": f"Clear in {n}."},
        ],
        "tools": '[{"name": "weather", "description": "w", "parameters": {"type": "object", "properties": {}}}]',
    }
    for n in range(6)
]
SAMPLE_TOKENIZER = Tokenizer.from_file(str(CONFIGS / "tokenizer" / "tokenizer.json"))


def ids(text: str) -> list[int]:
    return list(SAMPLE_TOKENIZER.encode(text, add_special_tokens=False).ids)


ASKED = [ids(f"<|im_start|>user\nWhat is {n}?<|im_end|>\n<|im_start|>assistant\n") for n in range(6)]
SAID = [ids(f"It is {n}.<|im_end|>") for n in range(6)]
RANKED = [{"prompt": f"R{n}?", "responses": [f"{n}", "No.", "Well."], "rewards": [1, 0, 0.25]} for n in range(6)]
PAIRS, PROBLEMS = ("helpful", "harmless", "code"), ("sums", "words")


def calls_of(number: int) -> list[dict[str, Any]]:
    return [{key: call[key] for key in ("prompt", "completion", "tokens")} for call in run(number, 0.0)["trajectory"]]


LOCAL: dict[str, list[dict[str, Any]]] = {
    "pile": [{"text": f"Page {n} of a document."} for n in range(6)],
    **dict.fromkeys(("alpaca", "instruction", "output"), ALPACA),
    # long enough for a whole row of 1,024, because that recipe drops the last short one
    "dolly": [{"instruction": f"Count {n}", "context": "", "response": f"one {n} two " * 100, "category": "qa"} for n in range(6)],
    "gsm8k": GSM8K,
    "hh_harmless_base": HH,
    **{
        f"hh_helpful_{part}": [{side: text.replace("Q", letter) for side, text in row.items()} for row in HH]
        for part, letter in (("base", "P"), ("online", "Qo"), ("rejection_sampled", "Qr"))
    },
    "ultrafeedback": ULTRAFEEDBACK,
    **dict.fromkeys(("ultrachat", "sample_chats"), CHATS),
    "trivia": [{"question": f"Is {n} odd?", "reply": f"{n % 2 == 1}, {n}."} for n in range(6)],
    "llava_instruct": LLAVA,
    "sharegpt": SHAREGPT,
    "trl": [{"input_ids": a + b, "labels": [-100] * len(a) + b} for a, b in zip(ASKED, SAID, strict=True)],
    "skyrl": [
        {"prompt_token_ids": a, "response_ids": b, "loss_masks": [1] * len(b), "rewards": 1.0}
        # other questions than those of the domain before
        for a, b in (
            (ids(f"<|im_start|>user\nIs {n} odd?<|im_end|>\n<|im_start|>assistant\n"), ids(f"{n % 2 == 1}<|im_end|>")) for n in range(6)
        )
    ],
    "replies": [
        {**CHATS[n], "target_token_ids": [[token, 7] for token in said], "logprobs": [[-0.5, -1.5] for _ in said]}
        for n, said in enumerate(ids(f"Hello {n}!<|im_end|>") for n in range(6))
    ],
    "captured": [
        {"input_ids": text, "token_ids": [[token, 7] for token in text[1:]], "top_values": [[-0.5, -1.5]] * (len(text) - 1)}
        for text in (ids(f"Document {n} says what number {n} is.") for n in range(6))
    ],
    "served": [
        {"prompt_token_ids": text, "prompt_logprobs": [None, *({str(token): {"logprob": -0.5, "rank": 1}} for token in text[1:])]}
        for text in (ids(f"Prompt {n} asks what number {n} is.") for n in range(6))
    ],
    "nlg": [{"context": a, "completion": b} for a, b in zip(ASKED, SAID, strict=True)],
    "training": [{"question": f"Q{n}?", "context_positive": f"Yes {n}.", "context_negative": f"No {n}."} for n in range(6)],
    **{
        kind: [{"prompt": f"Q{n} of {kind}?", "chosen": f"Yes {n}.", "rejected": "No.", "source": kind} for n in range(6)] for kind in PAIRS
    },
    **{kind: [{"prompt": f"Q{n} of {kind}?", "gold": f"{n}", "source": kind} for n in range(6)] for kind in PROBLEMS},
    "scored": [{"prompt": f"Q{n}?", "responses": [f"{n}", "No."], "rewards": [1, 0]} for n in range(6)],
    **dict.fromkeys(("ordered", "labelled"), RANKED),
    "nectar": [
        {"prompt": f"\n\nHuman: Q{n}? \n\nAssistant: ", "answers": [{"answer": f"{n} {rank}", "rank": rank} for rank in (2, 1)]}
        for n in range(6)
    ],
    "helpsteer": [
        {"context": [{"role": "user", "content": f"H{n}?"}], "response1": f"{n}", "response2": "No.", "overall_preference": n - 7}
        for n in range(6)
    ],
    "math": [{"problem": f"What is {n} times 2?", "solution": f"It is ${2 * n}$.", "answer": f"{2 * n}", "level": 1} for n in range(6)],
    "mmlu": [{"question": f"Which is {n}?", "choices": ["A", "B"], "answer": 1} for n in range(6)],
    "humaneval": [{"task_id": f"HumanEval/{n}", "prompt": f"def f{n}():\n", "canonical_solution": "    return 1\n"} for n in range(6)],
    **{name: [{"text": f"{name} {n}: a document of some words."} for n in range(6)] for name in ("web", "arxiv")},
    "stack": [{"content": f"def f{n}():\n    return {n}\n"} for n in range(6)],
    "recordings": [
        {
            "messages": [{"role": "user", "content": f"<audio>What says {n}?"}, {"role": "assistant", "content": f"Word {n}."}],
            "audios": [f"{n}.wav"],
        }
        for n in range(6)
    ],
    "clips": [
        {
            "messages": [{"role": "user", "content": f"<video>What does {n} do?"}, {"role": "assistant", "content": f"Deed {n}."}],
            "videos": [f"{n}.mp4"],
        }
        for n in range(6)
    ],
    "solver": [{"id": n, "ok": True, "traces": [{**trace(n), "agent": {"name": "solver"}}]} for n in range(6)],
    "rollouts": [
        {"example_id": n, "rollouts": [{"trajectory": [*map(of_verifiers, calls_of(10 + n))], "reward": reward} for reward in (1.0, 0.0)]}
        for n in range(6)
    ],
    "episodes": [
        {
            "id": f"{n}",
            "trajectories": [{"name": "solver", "steps": [*map(of_rllm, calls_of(20 + n))], "reward": reward} for reward in (1.0, 0.0)],
        }
        for n in range(6)
    ],
    "questions": [{"id": n, "ques": f"Q{n}?"} for n in range(6)],
    "contexts": [{"id": n, "ctx": f"Text {n}."} for n in range(6)],
    **handler_rows.MODELLINK,
    **handler_rows.CEREBRAS,
}
OF_RECIPES: dict[str, list[dict[str, Any]]] = {
    "topology": CHATS,
    "astrai/chat": [{**row, **source} for row, source in zip(CHATS, ({"source": "wiki"}, {"source": "code"}, {}) * 2, strict=True)],
    "astrai/instruction": ALPACA,
    "astrai/sections": CHATS,
    "astrai/dpo": [
        {side: [*row["messages"][:1], {"role": "assistant", "content": said}] for side, said in (("chosen", "Hello!"), ("rejected", "No."))}
        for row in CHATS
    ],
    "astrai/grpo": [{"prompt": row["messages"][:1], "responses": ["Hello!", "No."], "rewards": [0.8, -0.3]} for row in CHATS],
    "astrai/text": [{"content": f"A document of more than fifty characters, which is the least that is kept: {n}."} for n in range(6)],
}


def rows_of(recipe: str, domain: str, test: bool) -> list[dict[str, Any]]:
    rows = LOCAL[domain] if domain in LOCAL else OF_RECIPES[recipe]
    # held-out files hold other records
    return json.loads(json.dumps(rows).replace("What is", "How much is").replace("Q", "R").replace("P", "S")) if test else rows


def with_tokens(folder: Path, recipe: dict[str, Any]) -> str:
    """The sample tokenizer, with the control tokens that a recipe needs beside its own."""
    fim = recipe.get("preprocessing", {}).get("fim", {})
    texts = [text for text in (recipe.get("image_token"), *(fim.get(f"{part}_token") for part in ("prefix", "suffix", "middle"))) if text]
    if not texts:
        return str(CONFIGS / "tokenizer")
    shutil.copytree(CONFIGS / "tokenizer", folder)
    spec = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    last = max(*(token["id"] for token in spec["added_tokens"]), *spec["model"]["vocab"].values())
    spec["added_tokens"] += [{**spec["added_tokens"][0], "id": last + at, "content": text} for at, text in enumerate(texts, 1)]
    (folder / "tokenizer.json").write_text(json.dumps(spec, ensure_ascii=False), "utf-8")
    if token := recipe.get("image_token"):  # a model of images has a template that writes parts
        config = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
        part = f"{{{{ '{token}' if part.type == 'image' else part.text }}}}"
        parts = f"{{% for part in content %}}{part}{{% endfor %}}"
        macro = f"{{% macro said(content) %}}{{% if content is string %}}{{{{ content }}}}{{% else %}}{parts}{{% endif %}}{{% endmacro %}}"
        config["chat_template"] = macro + config["chat_template"].replace("message['content'] +", "said(message['content']) +")
        (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    return str(folder)


def parquet(rows: list[dict[str, Any]]) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), out)
    return out.getvalue()


def lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


WRITE: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    ".parquet": parquet,
    ".jsonl": lines,
    ".jsonl.gz": lambda rows: gzip.compress(lines(rows)),
    ".jsonl.zst": lambda rows: bytes(pa.compress(lines(rows), codec="zstd", asbytes=True)),
    ".json": lambda rows: json.dumps(rows).encode(),
}


@pytest.fixture(autouse=True)
def _code_of_recipes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(RECIPES / "own-code")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, list[dict[str, Any]]], None]:
    """`hub(address, rows)` puts a file where `huggingface_hub` keeps that commit of that data set; there is no connection."""
    cache, real = tmp_path / "cache", huggingface_hub.snapshot_download

    def offline(*args: Any, **options: Any) -> str:
        return str(real(*args, **{**options, "cache_dir": cache, "local_files_only": True}))

    def put(text: str, rows: list[dict[str, Any]]) -> None:
        address = hub_address(text)
        assert address.path is not None
        path = cache / f"datasets--{address.repository.replace('/', '--')}" / "snapshots" / address.commit / address.path
        path = path.with_name(path.name.replace("*", "00000-of-00001"))
        path.parent.mkdir(parents=True, exist_ok=True)
        suffix = next(each for each in WRITE if path.name.endswith(each))
        path.write_bytes(WRITE[suffix](rows))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    return put


@pytest.fixture
def local(tmp_path: Path, hub: Callable[[str, list[dict[str, Any]]], None]) -> Any:
    """A recipe's folder. Its data sets have a few rows of the same shape, in the same files of the same commits; so has its arithmetic."""

    def local(name: str) -> Path:
        source = RECIPES / name
        values = yaml.safe_load(source.read_text("utf-8"))
        if "tokenizer" in values:
            values["tokenizer"] = with_tokens(tmp_path / "tokenizer", values)
        if Path(name).stem == "rl":
            values.setdefault("arithmetic", {})["n"] = 50
        for domain, entry in values["domains"].items():
            for key in ("files", "test_files"):
                for address in entry.get(key, []) if "hub://" in str(entry.get(key)) else []:
                    hub(address, rows_of(str(Path(name).parent), domain, key == "test_files"))
                if key in entry and "hub://" not in str(entry[key]):
                    suffix = next((each for each in WRITE if str(entry[key][0]).endswith(each)), ".jsonl")
                    file = tmp_path / "data" / f"{domain}-{key}{suffix}"
                    file.parent.mkdir(exist_ok=True)
                    file.write_bytes(WRITE[suffix](rows_of(str(Path(name).parent), domain, key == "test_files")))
                    entry[key] = [str(file)]
            if "tokenized_by" in entry:
                entry["tokenized_by"] = values["tokenizer"]
        folder = tmp_path / "configs"
        folder.mkdir()
        (folder / source.name).write_text(yaml.safe_dump(values, sort_keys=False), "utf-8")
        return folder

    return local


@pytest.mark.parametrize("name", FILES)
def test_a_recipe_is_valid_and_its_tokenizer_is_there(name: str) -> None:
    path = RECIPES / name
    found = load_family(path.stem, path.parent)
    assert path.stem == "eval" or (path.parent / found.tokenizer / "tokenizer.json").is_file()


def test_the_recipe_of_agents_runs_on_its_samples(tmp_path: Path) -> None:
    workspace = Workspace(RECIPES / "agents", tmp_path)
    expected = {"sft_tokens": {"sessions": (4, 1), "trajectories": (4, 1)}, "rl_groups_by_domain": {"trajectories": (3, 2)}}
    for name, domains in expected.items():
        for domain, counts in domains.items():
            for above, each, _ in out_of_date(workspace, EVERY[name], domain):
                make(workspace, above, each)
            found = make(workspace, EVERY[name], domain).manifest.counts
            assert (found["kept"], sum(found["refused"].values())) == counts
    exported = assets_of(workspace)["sft_export_traces"]
    assert sum(make(workspace, exported, each).manifest.counts["rows"] for each in exported.partitions(workspace)) == 8


@pytest.mark.parametrize("name", [name for name in FILES if not name.startswith("agents/")])
def test_a_recipe_runs_on_local_files(name: str, local: Any, tmp_path: Path) -> None:
    family = Path(name).stem
    workspace = Workspace(local(name), tmp_path / "stores")
    (workspace.configs / "images").mkdir(exist_ok=True)
    for row in LLAVA:
        (workspace.configs / "images" / str(row["image"])).write_bytes(png(640, 480))
    (workspace.configs / "recordings").mkdir()
    for row in LOCAL["recordings"]:
        with wave.open(str(workspace.configs / "recordings" / row["audios"][0]), "wb") as sound:
            sound.setparams((1, 2, 16_000, 0, "NONE", ""))
            sound.writeframes(bytes(2 * 16_000))
    (workspace.configs / "clips").mkdir()
    for row in LOCAL["clips"]:
        film(workspace.configs / "clips" / row["videos"][0], 8)
    groups = family == "rl" and any(domain.schema_name == "group" for domain in workspace.family(FAMILIES[family]).domains.values())
    exported = [asset for key, asset in assets_of(workspace).items() if key.startswith(f"{family}_export_")]
    for last in (ASSETS[{**LAST, "eval": "eval_passages"}[family]], *([EVERY["rl_groups"]] if groups else []), *exported):
        for partition in last.partitions(workspace):
            for above, each, _ in out_of_date(workspace, last, partition):
                make(workspace, above, each)
            store = make(workspace, last, partition)
            assert any(store.manifest.counts.get(key) for key in ("tokens", "kept", "rows", "texts"))
            store.verify()
    for name_of, domain in workspace.family(FAMILIES[family]).domains.items():
        raw = workspace.built(f"{family}_raw", name_of)
        # three domains that appear by themselves share their files
        shared = 1 if name_of in yaml.safe_load((RECIPES / name).read_text("utf-8"))["domains"] else 3
        assert raw.manifest.counts["kept"] * shared == 6 * (1 + bool(domain.test_files))


@pytest.mark.parametrize("family", ["preference", "rl"])
def test_the_partitions_that_a_recipe_by_domain_names_are_those_of_its_assets(family: str) -> None:
    workspace = Workspace(RECIPES / "by-domain", RECIPES)
    named = re.search(r"#   partitions: (.+?)  +merged: (.+)", (RECIPES / "by-domain" / f"{family}.yaml").read_text("utf-8"))
    assert named is not None
    partitioned, merged = (each.split(", ") for each in named.groups())
    found = {name: list(asset.partitions(workspace)) for name, asset in assets_of(workspace).items()}
    assert {name for name, asset in assets_of(workspace).items() if asset.family == family and asset.partitioned} == set(partitioned)
    assert all(found[name] == [""] for name in merged)
    domains = {"preference": [*PAIRS], "rl": [*PROBLEMS, "scored"]}[family]
    assert sorted({each for name in partitioned for each in found[name]}) == sorted(domains)


@pytest.mark.parametrize("name", FILES)
def test_every_hub_address_is_pinned(name: str) -> None:
    path = RECIPES / name
    for domain in load_family(path.stem, path.parent).domains.values():
        for pattern in (*domain.files, *domain.test_files):
            if "://" in pattern:
                assert re.fullmatch(r"[0-9a-f]{40}", hub_address(pattern).commit), pattern


@pytest.mark.parametrize(
    ("folder", "example"),
    [("chat", CHAT), ("instruction", INSTRUCTION), ("text", TEXT), ("sections", SECTIONS_CHAT), ("dpo", DPO), ("grpo", GRPO)],
)
def test_astrais_recipes_are_its_examples_and_their_migration(folder: str, example: dict[str, Any]) -> None:
    place = RECIPES / "astrai" / folder
    assert json.loads((place / "pipeline.json").read_text("utf-8")) == example
    (written,) = place.glob("*.yaml")
    text = migrate_pipeline(
        load_pipeline(place / "pipeline.json"), "pipeline.json", files=["data/*.jsonl"], tokenizer="../../../tokenizer", domain="data"
    )
    assert written.read_text("utf-8") == text


def test_the_readme_names_every_recipe() -> None:
    readme = (RECIPES / "README.md").read_text("utf-8")
    assert all(f"`{Path(name).parent.as_posix()}`" in readme for name in FILES)
