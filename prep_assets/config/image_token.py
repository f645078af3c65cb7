"""What stands for an image among the tokens, as a configuration says it."""

from __future__ import annotations

from prep_assets.config.image_rules import Fixed, ImageRule
from prep_assets.config.models import Family, Pretrain, Sft
from prep_assets.errors import ConfigError


def image_token(family: Family) -> str | None:
    """The control token that stands for an image; `None` where the family refuses images. ``template_options.image_token`` counts as well.

    Raises:
        ConfigError: two different ones.
    """
    if not isinstance(family, Pretrain | Sft):
        return None
    older = family.template_options.get("image_token") if isinstance(family, Sft) else None
    if family.image_token and older and family.image_token != older:
        raise ConfigError(f"image_token is {family.image_token!r}, template_options.image_token {older!r}. Leave the second one out")
    return family.image_token or older


def image_placeholder(family: Family, rule: ImageRule | None) -> str:
    """What stands in a text for an image: its token, once for each patch; where a `rule` says how many, the one token that the template itself
    writes. ``""`` where the family refuses images."""
    token = image_token(family) or ""
    if rule is not None:
        return rule.mark or token if isinstance(rule, Fixed) else token
    return token * (family.image_patches if isinstance(family, Pretrain | Sft) else 1)
