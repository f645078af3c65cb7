"""The mask policy: which parts of a conversation are trained.

An option is one field here, with its rule, its reason, its words, and what it excludes; `proofs/derive.py` derives the same masks a second time, from the
same options, by other code. Configuration, recipes, builds, traces, pages and attestations follow from the field.

    mask: {assistant: train}      <|user|>2+2?<|end|><|assistant|>4<|end|>
    train_on_eos: turn                                            ^^^^^^^^     trained: the answer and the token that ends it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, Self

from pydantic import Field

from prep_assets.config.base import Model, Rule
from prep_assets.samples import MEDIA, THINKING, TOOL_CALL, UNATTENDED, Region

Action = Literal["train", "mask"]


class Part(Protocol):
    """A region of a rendered conversation, with the number and the role of its turn."""

    @property
    def turn(self) -> int: ...
    @property
    def role(self) -> str: ...
    @property
    def region(self) -> Region: ...


class MaskPolicy(Model):
    """The options that decide which tokens of a conversation are trained."""

    mask: dict[str, Action] = Field(default={"assistant": "train", "completion": "train"})
    """What is trained, by role."""
    mask_default: Action = "mask"
    """The same for roles that `mask` does not list."""
    train_on_eos: Literal["turn", "last", "all", "none"] = "turn"
    """Which stop tokens are trained: after trained turns, the last of them, every turn, or none."""
    train_turns: Literal["all", "last"] = "all"
    """Train all turns of `mask`, or only the last."""
    train_thinking: bool = True
    """Train reasoning inside a trained turn."""
    train_tool_calls: bool = True
    """Train tool calls inside a trained turn."""
    train_headers: bool = False
    """Train what the template writes before a trained turn, e.g. the role header."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """The policy of a recipe or a configuration; an option that is younger than a recipe has its default."""
        return cls(**{name: options[name] for name in MaskPolicy.model_fields if name in options})

    # Rules.

    def weight(self, role: str, region: Region) -> float:
        """Loss weight of a region in a turn of `role`, regardless of limits on turns and of attention."""
        if region.kind in MEDIA or self.option_against(region.kind):  # placeholders are not predicted
            return 0.0
        if region.loss_weight is not None:
            return float(region.loss_weight)
        return 1.0 if self.mask.get(role, self.mask_default) == "train" else 0.0

    def option_against(self, kind: str) -> str:
        """The option that leaves out a kind of regions; ``""`` if none does."""
        option = {THINKING: "train_thinking", TOOL_CALL: "train_tool_calls"}.get(kind, "")
        return option if option and not getattr(self, option) else ""

    def left_out(self, parts: Sequence[Part], weights: Sequence[float]) -> dict[int, str]:
        """Turn with a weight → the option that takes it away; `weights`: those of `weight`."""
        if self.train_turns == "all":
            return {}
        turns = sorted({part.turn for part, weight in zip(parts, weights, strict=True) if weight})
        return dict.fromkeys(turns[:-1], "train_turns")

    def loss_weights(self, parts: Sequence[Part]) -> list[float]:
        """Loss weights of the regions of a conversation, regardless of attention."""
        weights = [self.weight(part.role, part.region) for part in parts]
        out = self.left_out(parts, weights)
        return [0.0 if part.turn in out else weight for part, weight in zip(parts, weights, strict=True)] if out else weights

    def weights(self, parts: Sequence[Part]) -> list[float]:
        """Weights of the regions of a conversation: that of the source, else that of the role; `UNATTENDED` for unattended regions."""
        return [weight if part.region.attend else UNATTENDED for part, weight in zip(parts, self.loss_weights(parts), strict=True)]

    def stop_weights(self, parts: Sequence[Part], weights: Sequence[float]) -> dict[int, float]:
        """Turn → loss weight of its stop token: that of its last region other than an image, as the policy allows.
        The template writes the stop, so it is attended even if that region is not."""
        ends: dict[int, float] = {}
        for part, weight in zip(parts, weights, strict=True):
            if part.region.kind not in MEDIA or part.turn not in ends:
                ends[part.turn] = max(weight, 0.0)
        trained = [turn for turn, weight in ends.items() if weight]
        if self.train_on_eos == "all":
            return {turn: weight or 1.0 for turn, weight in ends.items()}
        turns = {"turn": trained, "last": trained[-1:], "none": []}[self.train_on_eos]
        return {turn: ends[turn] for turn in turns}

    # Reasons: why a token has its weight, and the option that decides.

    def reason(self, part: Part, left_out: str) -> tuple[str, str]:
        """Why a region is trained or not, and the option; `left_out`: the option that takes its turn away."""
        region, role = part.region, part.role
        of_turn = f"the {region.kind} of this {role} turn"
        if not region.attend:
            return f"{of_turn} is not attended to, and what is not is never trained", ""
        if option := self.option_against(region.kind):
            return f"{option} is false: {_KINDS[option]} {_are(_KINDS[option])} not trained", option
        if left_out:
            return f"{left_out}: {getattr(self, left_out)} leaves turn {part.turn} out", left_out
        if region.loss_weight is not None:
            return f"{of_turn} has the loss weight {region.loss_weight or 0:g}", ""
        if role in self.mask:
            return f"mask.{role}: {self.mask[role]}", f"mask.{role}"
        return f"mask_default: {self.mask_default}, and mask does not name the role {role!r}", "mask_default"

    def reason_of_stop(self, turn: int, weight: float) -> tuple[str, str]:
        """Why the stop token of a turn is trained or not, and the option."""
        because = {
            "turn": f"trains what ends trained turns, and turn {turn} is {'trained' if weight else 'not trained'}",
            "last": f"trains what ends the last trained turn, and turn {turn} is {'that one' if weight else 'another'}",
            "all": "trains what ends every turn",
            "none": "trains no stop token",
        }[self.train_on_eos]
        return f"train_on_eos: {self.train_on_eos} {because}", "train_on_eos"

    def reason_of_header(self, turn: int) -> tuple[str, str]:
        """Why the header of a trained turn is trained or not, and the option."""
        return f"the template writes it before turn {turn}, and train_headers is {str(self.train_headers).lower()}", "train_headers"

    # Words: the policy as a page and an attestation say it.

    def in_words(self) -> str:
        """The policy on one line."""
        by_action: dict[str, list[str]] = {"train": [], "mask": []}
        for role, action in sorted(self.mask.items()):
            by_action[action].append(role)
        by_action[self.mask_default].append("other roles")
        off = [name for option, name in _KINDS.items() if not getattr(self, option)]
        stops = {
            "turn": "with the stop token of each of these turns",
            "last": "with the stop token of the last of these turns",
            "all": "and the stop token of every turn",
            "none": "without stop tokens",
        }[self.train_on_eos]
        last = ", the last turn only" if self.train_turns == "last" else ""
        headers = " and their headers" if self.train_headers else ""
        masked = ", ".join([*by_action["mask"], *off]) or "nothing"
        return f"trained: {', '.join(by_action['train']) or 'no role'}{last}, {stops}{headers}; masked: {masked}"

    def sentences(self) -> list[str]:
        """The policy in sentences."""
        trained, masked = (", ".join(sorted(role for role, each in self.mask.items() if each == action)) for action in ("train", "mask"))
        rest = "trained" if self.mask_default == "train" else "not trained"
        stops = {
            "turn": "The stop token after each trained turn is trained.",
            "last": "Only the stop token after the last trained turn is trained.",
            "all": "The stop token after every turn is trained.",
            "none": "No stop token is trained.",
        }[self.train_on_eos]
        parts = {**_KINDS, "train_headers": "what the template writes before them"}
        return [
            f"Trained are turns of the roles {trained or '(none)'}; not trained are {masked or '(none)'}; other roles are {rest}.",
            "All of these turns are trained."
            if self.train_turns == "all"
            else "Of these turns only the last of a conversation is trained.",
            stops,
            *(f"In trained turns, {name} {_are(name)} {'' if getattr(self, option) else 'not '}trained." for option, name in parts.items()),
        ]


_KINDS: Mapping[str, str] = {"train_thinking": "reasoning", "train_tool_calls": "tool calls"}
"""Option → what it leaves out."""


def _are(name: str) -> str:
    return "are" if name.endswith("s") else "is"


MASK_RULES = (
    Rule(
        "expand",
        lambda family: family.train_turns == "last",
        "only the last answer is trained, so there is one example anyway. Leave it out, or set train_turns: all",
    ),
    Rule(
        "expand",
        lambda family: family.train_on_eos == "all",
        "train_on_eos: all would train the stop tokens of history again in each example. Leave it out, or set train_on_eos: turn",
    ),
)
"""Options that have no effect beside those above, or the other way round."""
