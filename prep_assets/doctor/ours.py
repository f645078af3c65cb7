"""What we make of a chat, and the messages that a trainer is given for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prep_assets.config.reasoning_tags import REASONING_TAGS
from prep_assets.samples import Sample
from prep_assets.templates.chat_template import ChatTemplate
from prep_assets.templates.conversation import messages, pieces
from prep_assets.templates.load import load_template
from prep_assets.templates.reasoning import InlineReasoning
from prep_assets.templates.rendered import Rendered
from prep_assets.templates.rendering import render
from prep_assets.templates.written import bind
from prep_assets.tokenization.encode import Encoder, Places
from prep_assets.tokenization.engines import choose_engine
from prep_assets.tokenization.load import load_vocabulary
from prep_assets.tokenization.policy import MaskPolicy


@dataclass(frozen=True, slots=True)
class Ours:
    """Our side: the answers of the assistant are trained, each with the token that ends it."""

    template: ChatTemplate
    encoder: Encoder

    @classmethod
    def open(cls, tokenizer: str, template: str, revision: str | None = None) -> Ours:
        """Raises:
        ConfigError: no such tokenizer.
        TemplateError: no such template, or one whose render does not show where answers are.
        """
        plain = load_vocabulary(tokenizer, base=Path.cwd(), revision=revision)
        loaded = load_template(template, plain, base=Path.cwd())
        vocabulary = bind(plain, loaded)
        return cls(loaded, Encoder(vocabulary, choose_engine(vocabulary, reference_only=True), MaskPolicy()))

    def row(self, sample: Sample) -> tuple[Rendered, Places]:
        """The render of a chat, its ids and their weights.

        Raises:
            Refused: why it is not used.
        """
        rendered = render(InlineReasoning("auto", REASONING_TAGS, self.template.shows_thinking).read(sample), self.template)
        for _, refusal in self.encoder.encode([rendered]).refused:
            raise refusal
        return rendered, self.encoder.places(rendered)

    def messages(self, sample: Sample) -> list[Mapping[str, Any]]:
        """The chat as messages, reasoning where the source has it."""
        form = self.template.form
        return [*messages(sample, pieces(sample, image=self.template.image_token, form=form), form=form)]
