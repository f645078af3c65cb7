"""The workspaces that are built: every family, schema and strategy of packing, on a few dozen rows each."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

from tokenizers import Tokenizer

from planted import rows
from prep_assets.config.family import PrivateKind
from prep_assets.errors import PrepAssetsError, Refused
from prep_assets.samples import DOCUMENT, IMAGE, PROMPT, Contrast, Group, Pair, Prompt, Sample
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import convert_with, schemas
from prep_assets_tests.corpus.rows import CASES
from prep_assets_tests.corpus.sessions import branches, chats, sessions, traces
from prep_assets_tests.extensions.encoders.written import HARMONY, K3, V4, tokenizer_with
from prep_assets_tests.graph.every_template import tokenizer
from prep_assets_tests.graph.exported import EXPORTS
from prep_assets_tests.graph.pictures import TOKEN, pictures_in, tokenizer_in
from prep_assets_tests.graph.workspaces import TOKENIZER, domain, jsonl, shipped, workspace_in

Families = dict[str, dict[str, Any]]
VENDOR = "encoder:prep_assets_tests.extensions.encoders.vendor_formats:chat"
DOMAINS = 12
"""Most domains of a workspace of schemas."""
UNREAD: Mapping[str, list[str]] = {
    "dolly": ["category"],
    "moss": ["meta_instruction", *(f"chat.*.{name}" for name in ("Commands", "Inner Thoughts", "Tool Responses"))],
    "arithmetic": ["level"],
    "preference": ["neg_answer.score", "pos_answer.score"],
    "rl_prompt": ["data_source", "reward_model.style"],
    "semantic_2": ["semantic_data_array.type"],
}
"""Fields of all examples of a schema, or of those with one of its options, that it does not read."""
KINDS = list(get_args(PrivateKind))
REJECTED = ("preference_3", "messages_1", "moss_1", "moss_2")
"""Examples that a schema takes and their family does not."""


@dataclass(frozen=True)
class Given:
    """A workspace.

    Attributes:
        configs: its configurations.
        share: of the trials that could use it.
        sharded: two workers build it in small shards.
    """

    configs: Path
    share: float = 1
    sharded: bool = False


class _Files:
    """Writes rows, and makes configurations of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def of(self, name: str, content: list[Any], schema: str, **more: Any) -> dict[str, Any]:
        return domain(jsonl(self.folder / f"{name}.jsonl", content), schema, **more)


def encode(text: str) -> list[int]:
    """The ids of a text."""
    ids: list[int] = Tokenizer.from_file(f"{TOKENIZER}/tokenizer.json").encode(text, add_special_tokens=False).ids
    return ids


def _sft(domains: Mapping[str, Any], template: str = "chatml", **options: Any) -> Families:
    packing = {"strategy": "bfd", "row_len": 700, "overlong": "drop"}
    return {
        "sft": {
            "tokenizer": TOKENIZER,
            "template": template,
            "packing": packing,
            "preprocessing": {"max_seq_len": 700},
            "domains": dict(domains),
            **options,
        }
    }


def workspaces(folder: Path, names: frozenset[str] | None = None) -> dict[str, Given]:
    """All of them, or those named."""
    files = _Files(folder / "rows")
    found: dict[str, Given] = {}

    def add(name: str, families: Families, share: float = 1, *, sharded: bool = False) -> None:
        if names is None or name in names:
            found[name] = Given(workspace_in(folder / name, families).configs, share, sharded)

    for make in (_chats, _lines, _pretrain, _exported):
        for name, (families, share) in make(files, folder).items():
            add(name, families, share)
    for name, families in _of_schemas(files).items():
        add(name, families)
    add("large", _sft({"chats": files.of("large", [rows.chat(n, 1 + n % 4) for n in range(5000)], "messages")}), 0.02)
    mixed = {"chats": files.of("shards", [*rows.chats(150), *rows.tool_chats(30)], "messages", max_items=170)}
    add("two workers", _sft(mixed, "qwen3", test_fraction=0.1), 0.05, sharded=True)
    return found


def _chats(files: _Files, folder: Path) -> dict[str, tuple[Families, float]]:
    """Chats, instructions and packing in all their forms."""
    plain = {"chats": files.of("chats", rows.chats(24), "messages"), "odd": files.of("odd", rows.odd_chats(), "messages")}
    weighted = {"weighted": files.of("weighted", rows.weighted_chats(), "messages")}
    tools = {"tools": files.of("tools", rows.tool_chats(), "messages"), "thoughts": files.of("thoughts", rows.thoughts(), "messages")}
    said = {
        "alpaca": files.of("alpaca", rows.instructions(), "alpaca"),
        "shares": files.of("shares", rows.shares(), "sharegpt"),
        "gsm8k": files.of("gsm8k", rows.problems(), "gsm8k"),
        "dolly": domain("dolly.jsonl", "dolly", ignore=["category"], max_items=20),
    }
    control = str(tokenizer("bytes", folder / "control"))
    spaces = str(tokenizer("first", folder / "spaces"))
    long = {"preprocessing": {"max_seq_len": 60}}
    entries = {"teacher_ids_key": "token_ids", "logprobs_key": "top_values"}
    by_token = {
        "ids": files.of("ids", rows.ids_with_labels(encode), "tokenized", tokenized_by=TOKENIZER),
        "taught": files.of(
            "taught",
            rows.taught(encode),
            "distilled",
            tokenized_by=TOKENIZER,
            options=entries,
        ),
    }
    pictures = str(pictures_in(folder, "1.png", "sub/2.png"))
    seen = [
        {
            "messages": [rows.message("user", f"{TOKEN}What is it? {n} {TOKEN * (n % 2)}"), rows.message("assistant", rows.said(n))],
            "images": ["1.png", "sub/2.png"][: 1 + n % 2],
        }
        for n in range(14)
    ]
    llava = [
        {
            "image": "1.png",
            "conversations": [{"from": "human", "value": f"{rows.asked(n)}\n<image>"}, {"from": "gpt", "value": rows.said(n)}],
        }
        for n in range(12)
    ]
    looked = {
        "seen": files.of("seen", seen, "messages", image_dir=pictures),
        "llava": files.of("llava", llava, "llava", image_dir=pictures, options={"phase": 1}),
    }
    odd = [row for row in rows.odd_chats() if "Two?" not in str(row)]  # of two questions in a row one package makes one
    mask = {"mask": {"user": "train", "assistant": "train"}, "mask_default": "mask", "train_on_eos": "all"}
    blend = {"blend": {"weights": {"chats": 2, "odd": 1, "weighted": 1}, "epochs": {"odd": 2}}}
    return {
        "sft": (_sft({**plain, **weighted}), 1),
        "sft qwen3": (_sft({**tools, **weighted}, "qwen3", test_fraction=0.1), 1),
        "sft instructions": (_sft(said, "chatml", packing={"strategy": "concat", "row_len": 128}, test_fraction=0.2), 1),
        "sft simple": (
            _sft(
                {**plain, **weighted},
                "chatml",
                **long,
                **mask,
                truncation="end",
                packing={"strategy": "simple", "row_len": 64, "overlong": "truncate"},
                **blend,
            ),
            1,
        ),
        "sft ffd": (
            _sft(
                {**plain, **said},
                "llama3",
                tokenizer=control,
                **long,
                truncation="turns",
                train_turns="last",
                test_fraction=0.2,
                packing={
                    "strategy": "ffd",
                    "row_len": 64,
                    "buckets": [32],
                    "weights": {"chats": 1, "alpaca": 2, "shares": 1, "odd": 1, "gsm8k": 1, "dolly": 1},
                    "epochs": {"odd": 2.5},
                    "overlong": "drop",
                },
            ),
            1,
        ),
        "sft turns": (
            _sft(tools, "qwen3", expand="turns", reasoning="field", packing={"strategy": "bfd_split", "row_len": 64}, train_thinking=False),
            1,
        ),
        "sft prompts": (
            _sft(
                {**plain, **said},
                "gemma",
                tokenizer=control,
                **long,
                truncation="prompt",
                train_on_eos="last",
                special_in_content="strip",
                packing={"strategy": "concat", "row_len": 64, "tail": "drop", "shuffle": False},
            ),
            1,
        ),
        "sft glm4": (
            _sft(
                {**plain, **tools},
                "glm4",
                tokenizer=control,
                train_tool_calls=False,
                special_in_content="refuse",
                packing={"strategy": "bfd", "row_len": 400, "max_items": {"odd": 9}, "overlong": "split"},
            ),
            1,
        ),
        "sft topology": (
            _sft(
                {"chats": plain["chats"], **tools},
                "qwen3",
                packing={
                    "strategy": "bfd",
                    "row_len": 512,
                    "overlong": "drop",
                    "align": {"context_parallel": 2, "tensor_parallel": 4, "sequence_parallel": True},
                    "balance": 3,
                },
                exports={
                    "bridge": {"from": "sft_packed", "to": "aligned_parquet", "options": {"rows_per_file": 9}},
                    "megatron": {"from": "sft_packed", "to": "megatron_sft"},
                },
            ),
            1,
        ),
        "sft r1": (_sft({**plain, "thoughts": tools["thoughts"]}, "deepseek-r1", tokenizer=control, train_headers=True), 0.5),
        "sft llama2": (_sft({**plain, **said}, "llama2", tokenizer=spaces, reasoning="inline"), 0.5),
        "sft vicuna": (_sft({**plain, **weighted}, "vicuna", tokenizer=spaces, train_on_eos="none"), 0.5),
        "sft phi": (
            _sft(
                {**plain, **weighted, "opted": files.of("opted", rows.opted_chats(), "messages")},
                "phi",
                tokenizer=control,
                special_in_content="allow",
                template_options={"end_with_eos": False},
            ),
            0.5,
        ),
        **_written_by_code({**plain, **tools, "odd": files.of("odd_but_one", odd, "messages")}, folder),
        "sft ids": (
            _sft(by_token, "chatml", exports={"kd": {"from": "sft_tokens", "to": "hf_arrow", "options": {"layout": "axolotl"}}}),
            1,
        ),
        "sft sessions": (
            _sft(
                {
                    "whole": _folder(folder / "sessions", sessions(), "agent_session"),
                    "last": _folder(
                        folder / "branches", branches(), "agent_session", several="last", sidechains="leave_out", open_end="trim"
                    ),
                    "chats": _folder(folder / "chats", chats(), "atif"),
                    **{
                        name: files.of(name, rows.logged(name), name, options={"request_key": "request", "response_key": "response"})
                        for name in ("anthropic", "openai_responses")
                    },
                },
                "qwen3",
                exports={"traces": {"from": "sft_tokens", "to": "atif"}},
            ),
            1,
        ),
        "sft images": (_sft(looked, "chatml", tokenizer=tokenizer_in(folder), image_token=TOKEN, image_patches=3), 1),
        "sft redacted": (
            {
                **_sft(
                    {"chats": files.of("private", rows.private(), "messages", redact=KINDS, speaker_names="write")},
                    "qwen3",
                    test_fraction=0.1,
                ),
                "pretrain": {
                    "tokenizer": TOKENIZER,
                    "domains": {"notes": files.of("private_notes", rows.private_documents(), "text", redact=KINDS, countries=["DE"])},
                },
            },
            1,
        ),
        "sft quality": (
            {
                **_sft(
                    {**plain, "gsm8k": said["gsm8k"]},
                    quality={
                        "steps": {
                            "near_duplicates": {"action": "note"},
                            "gold_answers": {},
                            "private_data": {"action": "note"},
                            "gopher_repetition": {"action": "note"},
                            "language": {"keep": ["en", "de"], "action": "note"},
                        }
                    },
                ),
                "eval": {"domains": {"bench": files.of("bench", rows.problems(24)[3:6], "gsm8k")}, "policy": "drop"},
            },
            1,
        ),
    }


def _folder(folder: Path, records: Sequence[Any], schema: str, **options: Any) -> dict[str, Any]:
    """A domain of files that are a record each: lines of a session, or an object."""
    folder.mkdir(exist_ok=True)
    for number, record in enumerate(records):
        lines = [json.dumps(line) for line in (record if isinstance(record, list) else [record])]
        (folder / f"{number:02}.{'jsonl' if isinstance(record, list) else 'json'}").write_text("\n".join(lines), "utf-8")
    whole = {"txt": "file"} if isinstance(records[0], list) else {}
    return {"files": [str(folder)], "schema": schema, "options": options, **whole}


def _written_by_code(chats: Mapping[str, Any], folder: Path) -> dict[str, tuple[Families, float]]:
    """Chats in formats without a chat template: all but the first need packages."""
    long = {"preprocessing": {"max_seq_len": 1500}, "packing": {"strategy": "bfd", "row_len": 1500, "overlong": "drop"}}
    thinking = {"template_options": {"enable_thinking": True}, "expand": "turns"}
    formats = {"vendor": (VENDOR, K3, {}), "deepseek v4": ("encoder:deepseek-v4", V4, thinking)}
    formats |= {"deepseek v4 chat": ("encoder:deepseek-v4", V4, {}), "gpt-oss": ("encoder:gpt-oss", HARMONY, {})}
    there = all(map(find_spec, ("renderers", "openai_harmony", "tml_renderers")))
    return {
        f"sft {name}": (_sft(chats, template, tokenizer=tokenizer_with(tokens, folder / name), **long, **options), 0.5)
        for name, (template, tokens, options) in formats.items()
        if there or name == "vendor"
    }


def _lines(files: _Files, folder: Path) -> dict[str, tuple[Families, float]]:
    """Pairs, prompts, groups and contrastive rows."""
    pairs = {
        "pairs": files.of("pairs", rows.pairs(), "preference"),
        "judged": files.of("judged", rows.judged(), "alpaca_pairwise"),
        "shared": files.of("shared_pairs", rows.shared_pairs(), "sharegpt_pairwise"),
        "compared": files.of("compared", rows.compared(), "compared", options={"margin": True}),
        "hh": domain("hh.jsonl.gz", "hh", max_items=20),
        "ultrafeedback": domain("ultrafeedback.jsonl", "ultrafeedback", max_items=20),
    }
    spoken = {"messages": files.of("pairs_of_messages", rows.pairs_of_messages(), "preference"), "shared": pairs["shared"]}
    ranked = {
        "lists": files.of("lists", rows.scored(), "group_list"),
        "labels": files.of("labels", rows.scored(), "group_kto"),
        "best": files.of("best", rows.scored(), "group", options={"margin": True}),
        "alone": files.of("alone", rows.labelled(), "kto"),
    }
    prompts = {
        "prompts": files.of("prompts", rows.prompts(), "rl_prompt", ignore=["source"]),
        "gsm8k": files.of("problems", rows.problems(), "gsm8k_prompt"),
    }
    groups = {"scored": files.of("scored", rows.scored(), "group")}
    runs = {
        "traces": files.of("traces", rows.traces(encode), "verifiers_trace"),
        "steps": files.of("runs", rows.runs(encode), "agent_steps", options={"runs_key": "runs", "agent_key": "extras.agent"}),
    }
    sums: dict[str, Any] = {"arithmetic": {"n": 40, "levels": ["add", "two_step"]}}
    base = {"tokenizer": TOKENIZER, "preprocessing": {"max_seq_len": 300}}
    few = {"arithmetic": {"n": 5}}
    return {
        "preference": ({"preference": {**base, "template": "chatml", "test_fraction": 0.15, "domains": pairs}}, 1),
        "preference messages": (
            {"preference": {**base, "template": "qwen3", "truncation": "end", "preprocessing": {"max_seq_len": 80}, "domains": spoken}},
            1,
        ),
        "preference ranked": ({"preference": {**base, "template": "chatml", "shuffle": False, "max_per_source": 14, "domains": ranked}}, 1),
        "rl": ({"rl": {**base, "template": "chatml", "test_fraction": 0.15, "domains": {**prompts, **groups}, **sums}}, 1),
        "preference quality": (
            {
                "preference": {
                    **base,
                    "template": "qwen3",
                    "domains": {"pairs": files.of("faulty_pairs", rows.faulty_pairs(), "preference")},
                    "quality": {"steps": {name: {"action": "note"} for name in ("pair_answers", "swapped_labels", "tool_calls")}},
                }
            },
            1,
        ),
        "rl quality": (
            {
                "rl": {
                    **base,
                    "template": "chatml",
                    "domains": {
                        "golds": files.of(
                            "golds", rows.golds(), "rl_prompt", options={"verifier_key": "verifier", "arguments_key": "told"}
                        ),
                        "sums": files.of("sums", rows.answered(), "rl_prompt", options={"verifier": "math"}, ignore=["answer"]),
                    },
                    "quality": {"steps": {"verified_golds": {"code_seconds": 20.0}}},
                    **few,
                },
                **_sft(
                    {"sums": files.of("sums", rows.answered(), "prompt_completion", options={"completion_key": "answer"}, ignore=["gold"])},
                    quality={"steps": {"rl_golds": {}}},
                ),
            },
            1,
        ),
        "rl runs": ({"rl": {**base, "domains": runs, **few}}, 1),
        "rl traces": (
            {"rl": {**base, "domains": {"traces": _folder(folder / "traces", traces(), "atif_group", subagents="train")}, **few}},
            1,
        ),
        "rl steps": ({"rl": {**base, "template": "qwen3", "domains": {"steps": files.of("stepwise", rows.steps(), "stepwise")}, **few}}, 1),
        "contrastive": (
            {
                "contrastive": {
                    "tokenizer": TOKENIZER,
                    "test_fraction": 0.15,
                    "preprocessing": {"max_seq_len": 60},
                    "domains": {"questions": files.of("contrasts", rows.contrasts(), "contrastive")},
                    "exports": {"flag": {"from": "contrastive", "to": "flag_embedding"}},
                }
            },
            1,
        ),
        "contrastive graded": (
            {
                "contrastive": {
                    "tokenizer": TOKENIZER,
                    "domains": {"questions": files.of("graded", rows.contrasts(14, graded_too=True), "contrastive")},
                    "exports": {
                        "sbert": {
                            "from": "contrastive",
                            "to": "sentence_transformers",
                            "options": {"negatives": 0, "leave_out": ["instruction", "positive_scores", "negative_scores"]},
                        }
                    },
                }
            },
            1,
        ),
    }


def _pretrain(files: _Files, folder: Path) -> dict[str, tuple[Families, float]]:
    docs = files.of("docs", rows.documents(), "text", ignore=["source", "score"])
    chosen = files.of("docs", rows.documents(), "text", where={"score": {">=": 2}}, domain_key="source", ignore=[])
    (folder / "fim").mkdir(exist_ok=True)
    cut = str(tokenizer_in(folder / "fim", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"))
    pictures = str(pictures_in(folder, "1.png", "sub/2.png"))
    between = [{"images": ["1.png", None, "sub/2.png"][: 1 + n % 3], "texts": [None, rows.said(n), None][: 1 + n % 3]} for n in range(14)]
    notes = domain("notes.txt", "text")
    return {
        "pretrain": (
            {
                "pretrain": {
                    "tokenizer": TOKENIZER,
                    "test_fraction": 0.1,
                    "domains": {"docs": docs, "notes": notes},
                    "blend": {"window": 32, "weights": {"docs": 3, "notes": 1}},
                }
            },
            1,
        ),
        "pretrain fim": (
            {
                "pretrain": {
                    "tokenizer": cut,
                    "bos": "true",
                    "preprocessing": {"min_chars": 5, "max_chars": 400, "max_seq_len": 120, "fim": {"rate": 0.6}},
                    "domains": {"docs": docs},
                    "output": {"storage_format": "bin", "dtype": "auto", "max_tokens_per_shard": 900},
                    "decontaminate": {"files": [str(jsonl(files.folder / "held.jsonl", [{"q": rows.SAID[0]}]))], "words": 8},
                }
            },
            1,
        ),
        "pretrain fields": (
            {
                "pretrain": {
                    "tokenizer": TOKENIZER,
                    "domains": {"s0": chosen, "s1": chosen},
                    "quality": {
                        "steps": {
                            "c4_quality": {"action": "note"},
                            "fineweb_quality": {"action": "note"},
                            "gopher_quality": {"action": "note"},
                            "repeated_passages": {"words": 8},
                        }
                    },
                }
            },
            1,
        ),
        "pretrain images": (
            {
                "pretrain": {
                    "tokenizer": tokenizer_in(folder),
                    "image_token": TOKEN,
                    "image_patches": 2,
                    "domains": {"between": files.of("between", between, "interleaved", image_dir=pictures)},
                }
            },
            1,
        ),
    }


def _exported(files: _Files, folder: Path) -> dict[str, tuple[Families, float]]:
    """Every format of exports from the shipped rows."""
    found = {}
    for family, options in shipped().items():
        few = {name: {**each, "max_items": 30} for name, each in options["domains"].items()}
        sums = {"arithmetic": {"n": 20}} if family == "rl" else {}
        found[f"exports {family}"] = ({family: {**options, "domains": few, **sums, "exports": dict(EXPORTS[family])}}, 0.5)
    return found


def _of_schemas(files: _Files) -> dict[str, Families]:
    """Rows of every schema, each with the options of its examples, by what they become."""
    by_family = defaultdict[str, list[dict[str, Any]]](list)
    for name, schema in schemas().items():
        by_options = defaultdict[str, list[Any]](list)
        for row, *options, _ in CASES.get(name, ()):
            by_options[json.dumps(options[0] if options else {})].append(row)
        if name not in CASES:
            by_options["{}"].append(schema.example)
        for number, (text, cases) in enumerate([*by_options.items()][:4]):
            content = [rows.varied(row, 10 * n + at) for at, row in enumerate(cases) for n in range(max(1, 12 // len(cases)))]
            options = json.loads(text)
            if f"{name}_{number}" not in REJECTED and (family := _family_of(name, options, content, labels=schema.labels)):
                ignored = UNREAD.get(name) or UNREAD.get(f"{name}_{number}")
                more = {key: value for key, value in (("options", options), ("ignore", ignored)) if value}
                read = files.of(f"{name}_{number}", content, name, **more)
                by_family[family].append(read)
    found: dict[str, Families] = {}
    for kind, domains in by_family.items():
        family = kind.partition(" ")[0]
        for begin in range(0, len(domains), DOMAINS):
            part = {f"d{at}": each for at, each in enumerate(domains[begin : begin + DOMAINS])}
            own = {"rl": {"arithmetic": {"n": 5}}, "sft": {"packing": {"strategy": "bfd", "row_len": 512, "overlong": "drop"}}}.get(
                family, {}
            )
            template = {} if family in ("pretrain", "contrastive") else {"template": "qwen3"}
            found[f"schemas {kind} {begin // DOMAINS}"] = {family: {"tokenizer": TOKENIZER, **template, **own, "domains": part}}
    return found


def _family_of(name: str, options: dict[str, Any], content: list[Any], *, labels: bool) -> str:
    """The family that rows are tried in, with what tells stores of it apart; none for rows with images or ids, which have workspaces of their own."""
    try:
        json.dumps([options, content])
    except TypeError:  # values that only columns hold
        return ""
    for row in content:
        try:
            example = apply(convert_with(name, options), row)
        except Refused:
            continue
        except PrepAssetsError:
            return ""
        turns = getattr(example, "turns", ())
        if any(region.kind == IMAGE for turn in turns for region in turn.regions) or getattr(example, "tokenized", None):
            return ""
        if isinstance(example, Sample):
            return "pretrain" if turns[0].role == DOCUMENT else "preference" if labels and example.label is not None else "sft"
        if isinstance(example, Group):
            return "preference" if labels else "" if example.sampled else "rl steps" if example.steps else "rl groups"
        if isinstance(example, Pair) and example.prompt[0].role == PROMPT:
            return "preference texts"
        return {Pair: "preference", Prompt: "rl", Contrast: "contrastive"}[type(example)]
    return ""
