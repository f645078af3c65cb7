"""Tokenizers for tests: the shipped one, real ones, and variants of them, each opened once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from prep_assets.text.engines import Engines, choose_engine
from prep_assets.text.vocabulary import Vocabulary, load_vocabulary

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
BYTE_LEVEL = ["shipped", "gpt2", "smollm"]
NAMES = [*BYTE_LEVEL, "mistral_v3"]

Chat = list[tuple[str, str]]
"""Role and content of each turn."""

NO_NONCHARACTERS = st.characters(codec="utf-8", exclude_characters="".join(map(chr, range(0xFDD0, 0xFDF0))))
WORDS = [
    *("", " ", "  ", "\n", "\n\n", "\t", "\u00a0", "Hello", " world", "answer", "the", "12", "1,000", "3.14", "?", "!", "(", ")"),
    *("é", "e\u0301", "中文", "👍", "👩‍🚀", "🇩🇪", "ß", "▁", "Ġ", "\x00", "\x04", "<0x0A>", "'s", "don't", "</think><answer>"),
]
CONTROL_TEXT = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_start|>assistant\n", "<s>", "</s>", "[INST]", "<|im_end", "|>"]
TEXT = st.lists(st.sampled_from(WORDS) | st.text(NO_NONCHARACTERS, max_size=5), max_size=5).map("".join)
TEXT_WITH_CONTROL = st.lists(st.sampled_from(WORDS + CONTROL_TEXT) | st.text(NO_NONCHARACTERS, max_size=4), max_size=6).map("".join)


@dataclass(frozen=True)
class Loaded:
    """A tokenizer as the package sees it, and what tests compare it with."""

    name: str
    directory: Path
    vocabulary: Vocabulary

    @cached_property
    def engines(self) -> Engines:
        return choose_engine(self.vocabulary)

    @cached_property
    def transformers(self) -> Any:
        from transformers import PreTrainedTokenizerFast  # the class that leaves tokenizer.json as it is

        return PreTrainedTokenizerFast.from_pretrained(self.directory)

    @cached_property
    def _ordinary(self) -> Any:
        from tokenizers import Tokenizer

        made = Tokenizer.from_file(str(self.directory / "tokenizer.json"))
        made.encode_special_tokens = True
        return made

    def ordinary(self, texts: Iterable[str]) -> list[list[int]]:
        """Ids of texts in which no control token means one."""
        return [encoding.ids for encoding in self._ordinary.encode_batch(list(texts), add_special_tokens=False)]


Open = Callable[[str], Loaded]


@cache
def load(directory: Path) -> Loaded:
    return Loaded(directory.name, directory, load_vocabulary(str(directory)))


def variant(of: Vocabulary, **changes: Any) -> Vocabulary:
    """A tokenizer with other parts in its ``tokenizer.json``."""
    from tokenizers import Tokenizer

    return Vocabulary("variant", Tokenizer.from_str(json.dumps({**of.spec, **changes})), of.special, of.chat_template)


def chats(content: st.SearchStrategy[str], *, roles: Sequence[str] = ("user", "assistant"), rounds: int = 2) -> st.SearchStrategy[Chat]:
    """Rounds of a conversation, sometimes after a system turn."""
    turns = st.lists(st.tuples(*(content for _ in roles)), min_size=1, max_size=rounds)
    body = turns.map(lambda listed: [turn for contents in listed for turn in zip(roles, contents, strict=True)])
    return st.builds(lambda head, rest: [*head, *rest], st.lists(content.map(lambda text: ("system", text)), max_size=1), body)
