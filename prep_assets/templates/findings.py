"""What a certificate has to say about a template and a tokenizer that is not wrong, and that people who serve the model have to know."""

from __future__ import annotations

from collections.abc import Iterator

from prep_assets.templates.chat_template import ChatTemplate
from prep_assets.templates.load import load_template
from prep_assets.tokenization.vocabulary import Vocabulary

_SHOWN = 8


def findings(template: ChatTemplate, vocabulary: Vocabulary) -> tuple[str, ...]:
    """Sentences; none where there is nothing to know."""
    return (*_stops(template, vocabulary), *_untaught(template, vocabulary))


def _stops(template: ChatTemplate, vocabulary: Vocabulary) -> Iterator[str]:
    stop, eos = template.stop_token, vocabulary.special.get("eos_token")
    if stop and stop != eos:
        yield (
            f"answers end with {stop!r}, and the tokenizer's eos_token is {eos!r}: a server that stops at eos_token only never stops. Serve "
            "the model with both as stop tokens"
        )


def _untaught(template: ChatTemplate, vocabulary: Vocabulary) -> Iterator[str]:
    """Control tokens that the base may never have seen: its own template writes no such token, so nobody trained their embeddings."""
    names = {vocabulary.special.get(name) for name in ("bos_token", "eos_token")}
    written = set(template.writes(template.control)) - names
    own = {text for each in _own_templates(vocabulary) for text in each.writes(template.control)}
    untaught = sorted(written - own)
    if untaught:
        why = "the tokenizer's own template never writes" if own else "the tokenizer has no template of its own that writes"
        more = f" and {len(untaught) - _SHOWN} more" if len(untaught) > _SHOWN else ""
        yield (
            f"control tokens that {why}: {', '.join(map(repr, untaught[:_SHOWN]))}{more}. Their embeddings may be untrained: train embeddings "
            "and the output layer as well, or use the model's own template"
        )


def _own_templates(vocabulary: Vocabulary) -> Iterator[ChatTemplate]:
    names = [*([""] if vocabulary.chat_template else []), *vocabulary.templates]
    for name in names:
        yield load_template(f"tokenizer:{name}", vocabulary)
