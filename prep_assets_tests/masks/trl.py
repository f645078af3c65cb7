"""The chat templates that TRL trains with, each bound to one real tokenizer that is given its control tokens, and TRL's labels.

TRL takes its labels from transformers' ``return_assistant_tokens_mask`` with these templates, so they are had without TRL.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from prep_assets.config.family import REASONING_TAGS
from prep_assets.extensions.datasets.gsm8k import gsm8k
from prep_assets.samples import THINKING, TOOL_CALL, Region, Sample, Turn
from prep_assets.schemas.messages import messages
from prep_assets.text.environment import FROZEN_CLOCK, MessageForm
from prep_assets.text.render import InlineReasoning
from prep_assets.text.template import ChatTemplate

CONTROL = re.compile(
    r"<\|[^|<>\n]{1,40}\|>|<｜[^｜\n]{1,40}｜>|<\|?[a-z_]{3,20}\|>|<\|[a-z_]{3,20}>|<(?:start|end)_of_\w+>|\[/?[A-Z_]{3,20}\]|\[gMASK\]|<sop>"
)
"""Control tokens as templates write them. Tags such as ``<think>`` stay text, which changes no label's place."""
EOS = {
    "cohere": "<|END_OF_TURN_TOKEN|>",
    "deepseek": "<｜end▁of▁sentence｜>",
    "gptoss": "<|return|>",
    "llama3": "<|eot_id|>",
    "llava": "</s>",
}
"""The tokenizer's end-of-text token where it is not ``<|im_end|>`` of the ChatML families or the base tokenizer's own."""


def names(real_data: Path) -> list[str]:
    """The templates that TRL trains with."""
    return sorted(path.stem for path in (real_data / "chat_templates" / "trl").glob("*_training.jinja"))


def tokenizer_folder(real_data: Path, name: str, out: Path, base: str = "smollm") -> Path:
    """A published tokenizer, SmolLM's if left out, with the control tokens of a template and with that template."""
    from tokenizers import Tokenizer

    source = (real_data / "chat_templates" / "trl" / f"{name}.jinja").read_text("utf-8")
    backend = Tokenizer.from_file(str(real_data / "tokenizers" / base / "tokenizer.json"))
    begins, ends = ("<s>", "</s>") if base == "mistral_v3" else ("<|endoftext|>",) * 2
    control = sorted({*CONTROL.findall(source), *(token for family, token in EOS.items() if name.startswith(family))})
    backend.add_special_tokens(control)
    eos = next((token for family, token in EOS.items() if name.startswith(family)), "<|im_end|>" if "<|im_end|>" in source else ends)
    out.mkdir(parents=True, exist_ok=True)
    backend.save(str(out / "tokenizer.json"))
    special = {"bos_token": begins, "eos_token": eos, "pad_token": ends}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **special, "additional_special_tokens": control, "chat_template": source}
    (out / "tokenizer_config.json").write_text(json.dumps(config, ensure_ascii=False), "utf-8")
    return out


@dataclass(frozen=True)
class Rows:
    """Real conversations of one kind."""

    kind: str
    samples: tuple[Sample, ...]


def rows(real_data: Path, each: int = 50) -> list[Rows]:
    """Plain answers, reasoning, and reasoning with tools: the first rows of three data sets."""
    folder = real_data / "llama_factory"
    alpaca = json.loads((folder / "alpaca_en_demo.json").read_text("utf-8"))[:each]
    plain = [
        {"messages": [_said("user", f"{row['instruction']} {row['input']}".strip()), _said("assistant", row["output"])]} for row in alpaca
    ]
    grade = (real_data / "gsm8k" / "train.jsonl").read_text("utf-8").splitlines()[:each]
    tools = (folder / "reason_tool_use_demo_50.jsonl").read_text("utf-8").splitlines()[:each]
    read, solved = messages(), gsm8k()
    return [
        Rows("plain", tuple(_sample(read(row)) for row in plain)),
        Rows("reasoning", tuple(_sample(solved(json.loads(line))) for line in grade)),
        Rows("reasoning and tools", tuple(_sample(read(json.loads(line))) for line in tools)),
    ]


def _said(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _sample(example: object) -> Sample:
    assert isinstance(example, Sample)
    return example


def as_read(sample: Sample, template: ChatTemplate) -> Sample:
    """Reasoning in the text of answers as a build reads it."""
    return InlineReasoning("auto", REASONING_TAGS, template.form.shows_reasoning).read(sample)


def trl_labels(tokenizer: Any, form: MessageForm, sample: Sample) -> tuple[list[int], npt.NDArray[np.bool_]]:
    """Ids of a conversation, and which of them TRL trains."""
    with patch("transformers.utils.chat_template_utils.datetime") as clock:
        clock.now.return_value = FROZEN_CLOCK
        found: Mapping[str, Any] = tokenizer.apply_chat_template(
            [_message(turn, form) for turn in sample.turns],
            tools=list(sample.tools) or None,
            tokenize=True,
            return_dict=True,
            return_assistant_tokens_mask=True,
        )
    return list(found["input_ids"]), np.array(found["assistant_masks"], bool)


def _message(turn: Turn, form: MessageForm) -> dict[str, Any]:
    def text(thinks: bool) -> str:
        return "".join(region.text for region in turn.regions if region.kind != TOOL_CALL and (region.kind == THINKING) == thinks)

    content: Any = [{"type": "text", "text": text(False)}] if form.content == "parts" else text(False)
    message = {"role": turn.role, "content": content}
    if text(True):
        message[form.reasoning] = text(True)
    calls = [_call(region, form) for region in turn.regions if region.kind == TOOL_CALL]
    if calls:
        message["tool_calls"] = calls
    named = {"name": turn.name, "tool_call_id": turn.tool_call_id}
    return message | {key: value for key, value in named.items() if value is not None}


def _call(region: Region, form: MessageForm) -> dict[str, Any]:
    call = json.loads(region.text)
    arguments = call["arguments"] if form.arguments == "mapping" else json.dumps(call["arguments"], ensure_ascii=False)
    identity = {"id": call["id"]} if "id" in call else {}
    return {"type": "function", **identity, "function": {"name": call["name"], "arguments": arguments}}


def runs(chosen: Sequence[bool] | npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Start and end of each run of true values."""
    edges = np.flatnonzero(np.diff(np.asarray(chosen).astype(np.int8), prepend=0, append=0))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
