"""Published files that are known to be wrong. They open, they decode, and they split words where the model never saw them split.

Known by what is wrong in them, not by their hashes: a fault comes from a converter, so many files have it, and each copy that was saved again
has another hash.

Tekken with the default pattern: files of Mistral's Tekken vocabulary that were converted with the pattern of GPT-4 or Llama 3 (transformers
pull request 42131; the discussion of Mistral-Small-3.1). ``eBay``, ``pH`` and ``NaOH`` come out in other pieces than in training. transformers
warns in its log.
"""

from __future__ import annotations

from pathlib import Path

from prep_assets.errors import ConfigError
from prep_assets.tokenization.vocabulary import Vocabulary

_TEKKEN_BEGINS = ("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]")
_TEKKEN_SIZE = 131_072
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
"""What the default patterns begin with. Tekken's own pattern splits no contractions; it tells upper from lower case."""


def refuse_known_faults(vocabulary: Vocabulary, path: Path) -> None:
    """Stop at a tokenizer that is known to be wrong.

    Raises:
        ConfigError: says what is wrong, and what to use.
    """
    added = {token["id"]: token["content"] for token in vocabulary.spec["added_tokens"]}
    is_tekken = vocabulary.size == _TEKKEN_SIZE and all(added.get(number) == text for number, text in enumerate(_TEKKEN_BEGINS))
    if is_tekken and any(_CONTRACTIONS in pattern for pattern in vocabulary.patterns):
        raise ConfigError(
            f"tokenizer {vocabulary.name!r}: {path} has Mistral's Tekken vocabulary and the pattern of another tokenizer "
            f"({_CONTRACTIONS}…), as a faulty conversion wrote it: words such as eBay and NaOH get other ids than in training "
            "(huggingface/transformers pull request 42131). Use the model's own tekken.json, or a tokenizer.json that was published after the fix"
        )
