"""Hand-written copies of chat templates differ from the models' own by a space, a line break, a prefix.

Year: 2025 – 2026
Hit: LLaMA-Factory PR#10773, #10784, and 126 templates written by hand beside the models' own
Cost: Models trained on another layout than they are served with.
Stopped by: shipped templates are compared with the models' own; `prep-assets certify --against` compares any two
"""

from __future__ import annotations

from pathlib import Path

import pytest

from prep_assets.errors import Refused
from prep_assets.text.load_template import named_templates
from prep_assets.text.template import ChatTemplate
from prep_assets_tests.museum.gallery import CHAT, said

SPECIAL = {"bos_token": "<s>", "eos_token": "<|im_end|>"}
CHATS = [CHAT, [said("system", "Be brief."), *CHAT], CHAT[:2], CHAT[:1]]


def renders(name: str, source: str) -> list[str | None]:
    """What a template makes of each chat, asked for an answer and not; `None` where it refuses."""
    template = ChatTemplate(name, source, SPECIAL)
    found: list[str | None] = []
    for chat in CHATS:
        for asked in (False, True):
            try:
                found.append(template.render(chat, generation_prompt=asked))
            except Refused:
                found.append(None)
    return found


@pytest.mark.parametrize(("shipped", "own"), [("qwen3", "qwen3"), ("llama3", "llama3")])
def test_the_models_own(real_data: Path, shipped: str, own: str) -> None:
    source = (real_data / "chat_templates" / "trl" / f"{own}.jinja").read_text("utf-8")
    assert renders(shipped, named_templates()[shipped]) == renders(own, source)


def test_a_copy_with_one_space_more_is_another(tmp_path: Path) -> None:
    source = named_templates()["chatml"]
    drifted = source.replace("<|im_end|>", "<|im_end|> ")
    assert drifted != source
    assert renders("chatml", source) != renders("drifted", drifted)
