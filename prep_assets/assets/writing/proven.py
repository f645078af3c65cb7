"""A conversation rendered, with its mask derived a second time and compared before anything is tokenized: for answers that carry their own weights."""

from __future__ import annotations

from dataclasses import dataclass

from prep_assets.errors import CheckFailed, Refused
from prep_assets.proofs.agreement import disagreement
from prep_assets.proofs.plain_forms import PlainDerivation, answers_derivation
from prep_assets.samples import Sample
from prep_assets.templates.chat_template import ChatTemplate
from prep_assets.templates.rendering import Rendered, render
from prep_assets.tokenization.encode import Encoder


@dataclass(frozen=True)
class Proven:
    """Renders conversations of one template.

    Attributes:
        encoder: what makes their masks.
        derivation: what derives these a second time.
    """

    template: ChatTemplate
    encoder: Encoder
    derivation: PlainDerivation

    @classmethod
    def of(cls, template: ChatTemplate, encoder: Encoder) -> Proven:
        """With a derivation of its own."""
        return cls(template, encoder, answers_derivation(template))

    def render(self, sample: Sample) -> Rendered:
        """Its render.

        Raises:
            Refused: as rendering says; ``mask_not_provable``, where the two derivations of its mask differ or the second has no answer.
        """
        rendered = render(sample, self.template)
        try:
            derived = self.derivation(sample)
        except CheckFailed as error:
            raise Refused("mask_not_provable", str(error), stage="render") from error
        differs = disagreement(derived, rendered.text, self.encoder.trained(rendered))
        if differs is not None:
            raise Refused("mask_not_provable", differs, stage="render")
        return rendered
