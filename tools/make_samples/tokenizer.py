"""Training the sample tokenizer: a byte-level BPE in the manner of GPT-2, with the control tokens of ChatML."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ENTRIES = 4096
MODEL_MAX_LENGTH = 8192
END_OF_TEXT = "<|endoftext|>"
PAD = "<|pad|>"
SPECIAL_TOKENS = (END_OF_TEXT, "<|im_start|>", "<|im_end|>", PAD)

# A newline right after a block tag is lost, since transformers renders with trim_blocks; those that count are written as expressions.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' }}"
    "{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}"
    "{% else %}"
    "{{ message['content'] + '<|im_end|>' }}"
    "{% endif %}"
    "{{ '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def write_tokenizer(folder: Path, samples: Path) -> None:
    """Train on the texts in `samples` and write ``tokenizer.json`` and ``tokenizer_config.json`` into `folder`, made if it is missing.

    The vocabulary has `ENTRIES` entries: the special tokens first, then the 256 bytes, then the merges. Text is not normalized and
    nothing is added around it, so that decoding gives back every text. `transformers.AutoTokenizer.from_pretrained(folder)` opens it.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=ENTRIES,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts(samples), trainer)
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "tokenizer.json", tokenizer.to_str(pretty=True))
    _write(folder / "tokenizer_config.json", json.dumps(_config(), indent=2))


def _write(path: Path, content: str) -> None:
    path.write_bytes(content.encode() + b"\n")


def _config() -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END_OF_TEXT,
        "eos_token": END_OF_TEXT,
        "pad_token": PAD,
        "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
        "clean_up_tokenization_spaces": False,
        "model_max_length": MODEL_MAX_LENGTH,
        "chat_template": CHAT_TEMPLATE,
    }


def texts(samples: Path) -> Iterator[str]:
    """Every string of every sample file: each line of a text file, each string value at any depth of a JSON row; files by name."""
    for path in sorted(path for path in samples.iterdir() if path.is_file()):
        content = _decompressed(path)
        lines = content.rstrip("\n").split("\n")
        if path.suffix == ".txt":
            yield from lines
        elif path.suffix == ".json":
            yield from _strings(json.loads(content))
        else:
            yield from (text for line in lines for text in _strings(json.loads(line)))


def _decompressed(path: Path) -> str:
    content = path.read_bytes()
    if path.suffix == ".zst":
        content = zstd.decompress(content)
    elif path.suffix == ".gz":
        content = gzip.decompress(content)
    return content.decode()


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
