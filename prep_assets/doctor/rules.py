"""Trainers' rules for what is trained of a chat, read from their code and written anew: which ids a trainer gets, and which of them are labels.

Each rule is given the messages and the tokenizer as transformers opens it, and shares no code with what makes our masks. Where a project is installed,
its own code is used instead (see `trl`); what a version of it does otherwise than here is that version's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prep_assets.config.family import REASONING_TAGS
from prep_assets.errors import PrepAssetsError
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

Messages = Sequence[Mapping[str, Any]]
Labelled = tuple[list[int], list[bool]]
"""Token ids, and which of them are labels, before the shift by one."""
_DUMMY = "[[dummy_message]]"


class Stops(PrepAssetsError):
    """The trainer itself refuses the row, or cannot mask with this template."""


@dataclass(frozen=True, slots=True)
class Chat:
    """A tokenizer with its chat template, as transformers has it."""

    tokenizer: Any

    def text(self, messages: Messages, tools: Any = None, *, prompt: bool = False) -> str:
        """The render.

        Raises:
            Stops: the template refuses these messages.
        """
        try:
            found: str = self.tokenizer.apply_chat_template(list(messages), tools=tools, tokenize=False, add_generation_prompt=prompt)
        except Exception as error:  # a template raises whatever it likes
            raise Stops(f"the chat template refuses these messages: {error}") from error
        return found

    def ids(self, text: str) -> list[int]:
        """The ids of a text, no special token added."""
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def rendered(self, messages: Messages, tools: Any = None, *, prompt: bool = False) -> list[int]:
        """The ids of a render."""
        return self.ids(self.text(messages, tools, prompt=prompt))


Rule = Callable[[Chat, Messages, Any], Labelled]


def trl(chat: Chat, messages: Messages, tools: Any) -> Labelled:
    """`SFTTrainer` with ``assistant_only_loss=True``: what stands between the template's ``{% generation %}`` tags."""
    if "{% generation %}" not in chat.tokenizer.chat_template.replace("{%- ", "{% ").replace(" -%}", " %}"):
        raise Stops(
            "the chat template has no {% generation %} tags, so that TRL cannot tell what the assistant says; it stops, or takes its own template"
        )
    found = chat.tokenizer.apply_chat_template(
        list(messages), tools=tools, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
    )
    return list(found["input_ids"]), [bool(each) for each in found["assistant_masks"]]


def axolotl(chat: Chat, messages: Messages, tools: Any) -> Labelled:
    """``type: chat_template`` with ``roles_to_train: [assistant]``, ``train_on_eos: turn``: where a render parts from one with a dummy in its place."""
    ids = chat.rendered(messages, tools)
    labels = [False] * len(ids)
    eos = chat.tokenizer.eos_token_id
    for at, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        dummy = chat.rendered([*messages[:at], {"role": "assistant", "content": _DUMMY}], tools)
        full = chat.rendered(messages[: at + 1], tools)
        start, end = _parting(dummy, full)
        if start < 0:
            continue
        labels[start:end] = [True] * (min(end, len(ids)) - start)
        stop = next((place for place in range(end, len(ids)) if ids[place] == eos), -1)
        if 0 <= stop - end <= 3:
            labels[stop] = True
    return ids, labels


def _parting(dummy: Sequence[int], full: Sequence[int]) -> tuple[int, int]:
    """Where two renders part from the front, and from the back, in the second; -1 where one is the beginning of the other."""
    shortest = min(len(dummy), len(full))
    start = next((at for at in range(shortest) if dummy[at] != full[at]), -1)
    end = next((len(full) - at for at in range(shortest) if dummy[-1 - at] != full[-1 - at]), -1)
    return (start, end) if start >= 0 and end >= start else (-1, -1)


def llamafactory(chat: Chat, messages: Messages, tools: Any) -> Labelled:
    """A template taken from the tokenizer: prompts and answers are tokenized one by one, and a whole answer slot is trained."""
    ids: list[int] = []
    labels: list[bool] = []
    done = ""
    for at, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        before, after = chat.text(messages[:at], tools, prompt=True), chat.text(messages[: at + 1], tools)
        if not (before.startswith(done) and after.startswith(before)):
            raise Stops("the template writes earlier turns otherwise when more follow, which slots for questions and answers cannot say")
        for text, trained in ((before[len(done) :], False), (after[len(before) :], True)):
            part = chat.ids(text)
            ids += part
            labels += [trained] * len(part)
        done = after
    return ids, labels


def torchtune(chat: Chat, messages: Messages, tools: Any) -> Labelled:
    """``train_on_input: false``: whole messages are trained or masked, an answer with its header."""
    ids: list[int] = []
    labels: list[bool] = []
    for at, message in enumerate(messages):
        grown = chat.rendered(messages[: at + 1], tools)
        if grown[: len(ids)] != ids:
            raise Stops("the template writes earlier turns otherwise when more follow, so that messages have no tokens of their own")
        labels += [message["role"] == "assistant"] * (len(grown) - len(ids))
        ids = grown
    return ids, labels


def open_instruct(chat: Chat, messages: Messages, tools: Any) -> Labelled:
    """``sft_tulu_tokenize_and_truncate``: everything is trained but the messages of others, which are masked by the lengths of growing renders."""
    ids = chat.rendered(messages, tools)
    labels = [True] * len(ids)
    for at, message in enumerate(messages):
        if message["role"] == "assistant":
            continue
        start = len(chat.rendered(messages[:at], tools)) if at else 0
        answered = at + 1 < len(messages) and messages[at + 1]["role"] == "assistant"
        end = len(chat.rendered(messages[: at + 1], tools, prompt=answered))
        labels[start:end] = [False] * (min(end, len(ids)) - start)
    return ids, labels


def verl(chat: Chat, messages: Messages, tools: Any) -> Labelled:
    """`MultiTurnSFTDataset`: each message is rendered alone; of an answer, as many tokens as the generation prompt has are masked."""
    system = _system_prompt(chat)
    probe = [{"role": "user", "content": ""}]
    header = len(chat.rendered(probe, prompt=True)) - len(chat.rendered(probe))
    ids: list[int] = []
    labels: list[bool] = []
    for at, message in enumerate(messages):
        own = chat.rendered([message], tools if at == 0 else None)
        own = own if at == 0 or message["role"] == "system" else own[len(system) :]
        ids += own
        trained = message["role"] == "assistant"
        labels += [trained and place >= header for place in range(len(own))]
    return ids, labels


def _system_prompt(chat: Chat) -> list[int]:
    """What the template writes before a lone message: one message less than two messages say twice."""
    probe = {"role": "user", "content": ""}
    one, two = chat.rendered([probe]), chat.rendered([probe, probe])
    return one[: len(one) - (len(two) - len(one))]


RULES: Mapping[str, tuple[str, Rule]] = {
    "trl": ("TRL, SFTTrainer with assistant_only_loss", trl),
    "llamafactory": ("LLaMA-Factory, with the template that it takes from the tokenizer", llamafactory),
    "axolotl": ("axolotl, type: chat_template, train_on_eos: turn", axolotl),
    "torchtune": ("torchtune, train_on_input: false", torchtune),
    "open-instruct": ("open-instruct, sft_tulu_tokenize_and_truncate", open_instruct),
    "verl": ("verl, MultiTurnSFTDataset", verl),
}
"""Trainer → what is meant, and its rule."""


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
