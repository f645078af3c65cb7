"""Small workspaces, and every token of every store, for tests that look at stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prep_assets.errors import ConfigError
from prep_assets.extensions.changes.changes import Effect
from prep_assets.extensions.explain.streams import Place
from prep_assets.extensions.explain.trace import Tracer
from prep_assets.graph.graph import assets_of, streams
from prep_assets_tests.explain.conftest import entry
from prep_assets_tests.graph.workspaces import domain, jsonl, minimal


def chat(question: str, answer: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


def rows(name: str, count: int) -> list[dict[str, Any]]:
    return [chat(f"{name} {number}?" * (1 + number % 3), f"It is {number}.") for number in range(count)]


def small(folder: Path) -> dict[str, dict[str, Any]]:
    """All four families, with a handful of records each."""
    folder.mkdir(parents=True)
    one, two = (domain(jsonl(folder / f"{name}.jsonl", rows(name, 6)), "messages") for name in ("one", "two"))
    thought = {**chat("Why?", "Because."), "id": 1}
    thought["messages"][1]["reasoning_content"] = "Let me see."
    three = domain(jsonl(folder / "three.jsonl", [thought, chat("Yes?", "Yes."), chat("Yes?", "Yes.")]), "messages")
    pair = [{"prompt": f"P {number}?", "chosen": f"Good {number}.", "rejected": "Bad."} for number in range(6)]
    sums = [{"question": f"{number} + 1?", "answer": f"#### {number + 1}"} for number in range(6)]
    return {
        **minimal("pretrain", {"docs": domain(jsonl(folder / "docs.jsonl", [{"text": f"A text, number {n}."} for n in range(6)]), "text")}),
        **minimal(
            "sft",
            {"one": one, "two": two, "three": three},
            packing={"row_len": 32},
            exports={"trl": entry("sft_packed", "hf_arrow", layout="trl"), "tlfs": entry("sft_packed", "tlfs")},
        ),
        **minimal("preference", {"pairs": domain(jsonl(folder / "pairs.jsonl", pair), "preference")}),
        **minimal("rl", {"sums": domain(jsonl(folder / "sums.jsonl", sums), "gsm8k")}, arithmetic={"n": 4}),
    }


def one(effects: list[Effect], label: str) -> Effect:
    return next(each for each in effects if each.label == label)


def every_place(tracer: Tracer, asset: str) -> list[Place]:
    found = []
    for partition in assets_of(tracer.workspace)[asset].partitions(tracer.workspace):
        published = tracer.opened.published(asset, partition)
        names = [None] if "_export_" in asset else streams(published)
        for stream in names:
            first = tracer.place(asset, 0, partition, stream)
            found += [Place(first.asset, first.partition, first.stream, row) for row in range(_count(tracer, first))]
    return found


def _count(tracer: Tracer, place: Place) -> int:
    try:
        return tracer.row(place).count
    except ConfigError as error:  # a stream may be empty
        assert "there are 0" in str(error)
        return 0


WITH_TOKENS = (
    *("pretrain_tokens", "sft_tokens", "sft_packed"),
    *(f"{name}{suffix}" for name in ("preference_tokens", "rl_tokens", "rl_groups") for suffix in ("_by_domain", "")),
    "arithmetic_tokens",
)


EXPORTS = (
    "pretrain_export_text",
    "sft_export_trl",
    "sft_export_axolotl",
    "sft_export_by_domain",
    "preference_export_reward",
    "rl_export_groups",
)
