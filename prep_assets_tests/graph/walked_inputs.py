"""What configurations read whose options are walked: rows of every family, tokenizers, templates, schemas of a user's own."""

from __future__ import annotations

import json
import shutil
import wave
from pathlib import Path
from typing import Any

from prep_assets.config.models import FAMILIES as MODELS
from prep_assets_tests.graph.families import FAMILIES, ROW, Tried
from prep_assets_tests.graph.pictures import film
from prep_assets_tests.graph.workspaces import TOKENIZER, jsonl

EXTRA = ("<image>", "<picture>", *(f"<|{name}_{part}|>" for name in ("fim", "cut") for part in ("prefix", "suffix", "middle")))
LONG = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"


def messages(*texts: str, **more: Any) -> dict[str, Any]:
    """A chat of these texts, user and assistant by turns."""
    return {"messages": [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)], **more}


TAGGED = (
    "{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] }}<|im_end|>{% endgeneration %}"
    "{% else %}{{ m['content'] }}<|im_end|>{% endif %}{{ '\n' }}"
)
TYPED = '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
CALL = {"id": "1", "type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
TOOL = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {}}}}
CHATS = [
    *(messages(f"What is {n}?", f"It is {n}.", "And then?", f"Then comes {n + 1}.", source=f"s{n % 2}") for n in range(6)),
    messages("Count.", LONG, source="s0"),
    messages("Count.", LONG, source="s0"),
    messages("Type <|im_end|> here.", "I did.", source="s1"),
    messages("Why?", "<think>\nBecause.\n</think>\n\nSo.", source="s1"),
    messages("How?", "[[Slowly.]]So.", source="s1"),
    messages("Add 1.", TYPED, source="s1"),
]
THOUGHT = {"messages": [{"role": "user", "content": "1?"}, {"role": "assistant", "reasoning_content": "Hm.", "content": "1."}]}
CALLS = {
    "messages": [
        {"role": "user", "content": "1 + 1?"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "content": "2", "tool_call_id": "1"},
        {"role": "assistant", "content": "2."},
    ],
    "tools": [TOOL],
}
PICTURES = [{**messages(f"{mark} What is it?", "A cat."), "images": ["1.png"]} for mark in ("<image>", "Look: <image>")]


def _asked(tried: Tried) -> list[dict[str, Any]]:
    """Questions of a schema, and a long one twice."""
    texts = [*((f"What is {n}?", f"It is {n}.") for n in range(12)), (f"{LONG}?", LONG), (f"{LONG}?", LONG)]
    return [{**ROW[tried.schema](*asked, "No idea."), "source": f"s{n % 13 % 2}"} for n, asked in enumerate(texts)]


ROWS: dict[str, list[dict[str, Any]]] = {
    "pretrain": [
        *({"text": f" Document {n} of some, in a few words.", "source": f"s{n % 2}"} for n in range(12)),
        {"text": LONG, "source": "s0"},
        {"text": LONG, "source": "s0"},
        {"text": "Hi", "source": "s1"},
    ],
    "sft": CHATS,
    **{family: _asked(tried) for family, tried in FAMILIES.items() if family not in ("pretrain", "sft")},
}
ROWS["preference"].append({"prompt": "Why?", "chosen": "<think>\nBecause.\n</think>\n\nSo.", "rejected": "[[Slowly.]]No.", "source": "s1"})
ROWS["preference"].append({"prompt": "Add 1.", "chosen": TYPED, "rejected": "No.", "source": "s1"})
GROUPS = [
    {"prompt": "Hi", "responses": ["A", "B"], "rewards": [0, 1]},
    *(
        {
            "prompt": f"What is {n}?",
            "responses": [f"It is {n}.", "<think>\nHm.\n</think>\n\nNo.", "[[Hm.]]No.", TYPED],
            "rewards": [1, 0, 0, 0],
        }
        for n in range(4)
    ),
]
OWN = """
from prep_assets.samples import ASSISTANT, USER, Contrast, Group, Pair, Prompt, Sample, turn

def sample(row):
    return Sample((turn(USER, "Say it."), turn(ASSISTANT, row["text"])))

def weights(sample):
    return [None if turn.role == "user" else 0.5 for turn in sample.turns]

def pair(row):
    return Pair((turn(USER, "Say it."),), (turn(ASSISTANT, row["text"]),), (turn(ASSISTANT, "No."),))

def group(row):
    return Group((turn(USER, row["text"]),), ((turn(ASSISTANT, "Yes."),), (turn(ASSISTANT, "No."),)), (1.0, 0.0))

def contrast(row):
    return Contrast(row["text"], ("Yes.",))

def prompt(row):
    return Prompt((turn(USER, row["text"]),), "1")
"""
OWN_SCHEMAS = {
    name: "text" if name == "pretrain" else f"walk_schemas:{model.form_of_rows.__name__.lower()}" for name, model in MODELS.items()
}


def _by_ann(number: int) -> list[dict[str, str]]:
    return [{"role": "user", "name": "ann", "content": f"What is {number}?"}]


def _said(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


NAMED = {
    "sft": [{"messages": [*_by_ann(number), *_said("Four.")]} for number in range(4)],
    "preference": [{"prompt": _by_ann(number), "chosen": _said("Four."), "rejected": _said("Five.")} for number in range(4)],
    "rl": [{"prompt": _by_ann(number), "gold": "4"} for number in range(4)],
}
"""Questions of a named speaker."""


def write_inputs(folder: Path) -> None:
    """Write every input, a module with schemas of the user's own among them."""
    for name in ("tokenizer", "fewer_merges"):
        shutil.copytree(TOKENIZER, folder / name)
        path = folder / name / "tokenizer.json"
        spec = json.loads(path.read_text("utf-8"))
        first = 1 + max(*(token["id"] for token in spec["added_tokens"]), *spec["model"]["vocab"].values())
        spec["added_tokens"] += [{**spec["added_tokens"][0], "id": first + n, "content": text} for n, text in enumerate(EXTRA)]
        if name == "fewer_merges":
            spec["model"]["merges"] = spec["model"]["merges"][:200]
        path.write_text(json.dumps(spec, ensure_ascii=False), "utf-8")
    for family, rows in ROWS.items():
        jsonl(folder / f"{family}.jsonl", rows)
        jsonl(folder / f"{family}_mood.jsonl", [{**row, "mood": "calm"} for row in rows])
        jsonl(
            folder / f"{family}_more.jsonl",
            [json.loads(json.dumps(row).replace("What", "Which").replace("Document", "Text")) for row in rows],
        )
    for family, rows in NAMED.items():
        jsonl(folder / f"{family}_named.jsonl", rows)
    jsonl(folder / "groups.jsonl", GROUPS)
    jsonl(folder / "ids.jsonl", [{"input_ids": [65, 66, 67], "labels": [-100, 66, 67]}])
    jsonl(folder / "long_question.jsonl", [messages(LONG, "Yes.")])
    jsonl(folder / "thoughts.jsonl", [THOUGHT])
    jsonl(folder / "second_thoughts.jsonl", [{"messages": THOUGHT["messages"] * 2}])
    jsonl(folder / "calls.jsonl", [CALLS])
    jsonl(folder / "pictures.jsonl", PICTURES)
    jsonl(folder / "recordings.jsonl", [{**messages("<audio> Who?", "A cat."), "audios": ["1.wav"]}])
    jsonl(folder / "films.jsonl", [{**messages("<video> Who?", "A cat."), "videos": ["1.avi"]}])
    jsonl(folder / "documents.jsonl", [{"images": ["1.png", None], "texts": [None, f"Picture {n} of a cat."]} for n in range(2)])
    jsonl(folder / "benchmark.jsonl", [{"question": LONG}])
    jsonl(folder / "ten_words.jsonl", [{"question": " ".join(LONG.split()[:10])}])
    for first in ("a", "first"):
        jsonl(folder / f"{first}_and_b.jsonl", [{"text": f"Text {n}.", "source": (first, "b")[n % 2]} for n in range(8)])
    (folder / "lines.txt").write_text("One line.\nAnother line.\n", "utf-8")
    (folder / "unnamed").write_text((folder / "pretrain.jsonl").read_text("utf-8"), "utf-8")
    (folder / "odd.jinja").write_text(
        "{% for m in messages %}<|im_start|>{{ m['role'] }}{% if loud %}!{% endif %}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant{% if loud %}!{% endif %}\n{% endif %}",
        "utf-8",
    )
    tagged = (folder / "odd.jinja").read_text("utf-8").replace("{{ m['content'] }}<|im_end|>\n", TAGGED)
    (folder / "tagged.jinja").write_text(tagged, "utf-8")
    for name in ("here", "there"):
        (folder / name).mkdir()
        (folder / name / "1.png").write_bytes(name.encode())
        with wave.open(str(folder / name / "1.wav"), "wb") as audio:
            audio.setparams((1, 2, 8000, 0, "NONE", ""))
            audio.writeframes(bytes(8000))
        film(folder / name / "1.avi", 4)
    (folder / "walk_schemas.py").write_text(OWN, "utf-8")
