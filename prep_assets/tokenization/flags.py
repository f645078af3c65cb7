"""Flags of added tokens that reach beyond the token: ``lstrip`` and ``rstrip`` swallow white space, ``single_word`` and ``normalized`` decide
whether its text is the token at all.

The encoder cuts a render at its control tokens and tokenizes what lies between. Where a flag gives the reference other ids for the whole, no
cut can be right, and the tokenizer is refused before any data is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prep_assets.errors import ConfigError
from prep_assets.tokenization.engines import Engines, choose_engine
from prep_assets.tokenization.vocabulary import Vocabulary

FLAGS = ("lstrip", "rstrip", "single_word", "normalized")
_BEFORE, _AFTER = ("", "a", "a ", "a\n"), ("", "a", " a", "\na", "\n\na")


def refuse_flags(vocabulary: Vocabulary, written: Iterable[str]) -> None:
    """Stop where a token that is `written` between other text has a flag that changes the ids around it.

    Raises:
        ConfigError: names the token, its flags and a text.
    """
    wanted = frozenset(written)
    flagged = [token for token in vocabulary.spec["added_tokens"] if token["content"] in wanted and any(token[flag] for flag in FLAGS)]
    if not flagged:
        return
    engines = choose_engine(vocabulary, reference_only=True)
    for token in flagged:
        text = next(_differing(vocabulary, engines, token["content"], token["id"]), None)
        if text is not None:
            flags = ", ".join(f"{flag}: true" for flag in FLAGS if token[flag])
            raise ConfigError(
                f"tokenizer {vocabulary.name}: the template writes the added token {token['content']!r}, which has {flags}. So {text!r} has "
                "other ids as a whole than cut at its control tokens, and a mask cannot be placed on it. Set these flags to false in "
                "tokenizer.json, if the model is served like that, or use a template without this token"
            )


def _differing(vocabulary: Vocabulary, engines: Engines, token: str, number: int) -> Iterator[str]:
    """Texts around a token whose ids as a whole are not those of what stands before it, the token, and what stands after it."""
    vocabulary.backend.encode_special_tokens = False
    for before in _BEFORE:
        for after in _AFTER:
            whole = vocabulary.backend.encode(before + token + after, add_special_tokens=False).ids
            parts = engines.first.encode([before] * bool(before)), engines.rest.encode([after] * bool(after))
            if whole != [*parts[0].ids.tolist(), number, *parts[1].ids.tolist()]:
                yield before + token + after
