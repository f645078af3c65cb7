"""A tokenizer whose ids can be read, and a runner."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from prep_assets.extensions.preprocess.astrai import parse_pipeline
from prep_assets.extensions.preprocess.astrai_run import Outcome, load_tokenizer, preprocess

SPECIAL = ("<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<pad>")
WORDS = ("system", "user", "assistant", *"abcdefghijklmnopqrstuvwxyz", *"0123456789", "None", "tool")
VOCABULARY = {word: number for number, word in enumerate((*SPECIAL, *WORDS))}
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }} {{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant {% endif %}"
)
DECLARED = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}


def ids(text: str) -> list[int]:
    """Ids of words that are separated by spaces, from the vocabulary above and nothing else."""
    return [VOCABULARY[word] for word in text.split()]


def write_tokenizer(
    folder: Path, *, template: str | None = TEMPLATE, declared: Mapping[str, str] | None = None, post_processor: bool = False
) -> Path:
    """A word-level tokenizer in AstrAI's form. With `post_processor`, special tokens are ``<s> … </s>``."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    tokenizer = Tokenizer(models.WordLevel(dict(VOCABULARY), unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(list(SPECIAL))
    if post_processor:
        ends = [(token, VOCABULARY[token]) for token in ("<s>", "</s>")]
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ends)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config: dict[str, Any] = {"special_tokens": DECLARED if declared is None else declared}
    if template is not None:
        config["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    return folder


def write_rows(path: Path, rows: Sequence[Any]) -> Path:
    """JSON lines; a string is written as it is."""
    lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="session")
def post_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("post"), post_processor=True)


Run = Callable[..., Outcome]


@pytest.fixture
def run(tmp_path: Path, tokenizer: Path) -> Run:
    """Run a pipeline over rows; the output is ``tmp_path / "out"``."""

    def run(rows: Sequence[Any], pipeline: Any, *, directory: Path | None = None, **options: Any) -> Outcome:
        source = write_rows(tmp_path / "rows.jsonl", rows)
        parsed = parse_pipeline(pipeline, "pipeline.json")
        return preprocess([str(source)], tmp_path / "out", parsed, load_tokenizer(directory or tokenizer), **options)

    return run


def message(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


def chat(*pairs: tuple[str, str], **more: Any) -> dict[str, Any]:
    return {"messages": [message(role, content) for role, content in pairs], **more}
