"""The pages of docs/templates say what the named templates do."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from prep_assets.text.load_template import named_templates
from prep_assets.text.template import ChatTemplate

PAGES = Path(__file__).resolve().parents[2] / "docs" / "templates"
SPECIAL = {
    "deepseek-r1": {"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<｜end▁of▁sentence｜>"},
    "gemma": {"bos_token": "<bos>", "eos_token": "<eos>"},
    "llama3": {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"},
    "phi": {"eos_token": "<|endoftext|>"},
    "plain": {"eos_token": "<|endoftext|>"},
}
OTHERS = {"bos_token": "<s>", "eos_token": "</s>"}
VARIABLES = {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"}


def page_of(name: str) -> str:
    return (PAGES / f"{name}.md").read_text("utf-8")


@pytest.mark.parametrize("name", named_templates())
def test_the_messages_of_a_page_render_to_the_text_of_the_page(name: str) -> None:
    (messages,) = re.findall(r"```json\n(.*?)\n```\n", page_of(name), re.DOTALL)
    (text,) = re.findall(r"```text\n(.*?)\n```\n", page_of(name), re.DOTALL)
    template = ChatTemplate(name, named_templates()[name], SPECIAL.get(name, OTHERS))
    assert template.render(json.loads(messages)).removesuffix("\n") == text


@pytest.mark.parametrize("name", named_templates())
def test_a_page_lists_exactly_the_options_that_the_template_reads(name: str) -> None:
    from jinja2 import nodes
    from transformers.utils.chat_template_utils import _compile_jinja_template

    environment = _compile_jinja_template("").environment
    tree = environment.parse(named_templates()[name])
    names = [(found.name, found.ctx) for found in tree.find_all(nodes.Name)]
    macros = {found.name for found in tree.find_all(nodes.Macro)}
    own = {name for name, context in names if context != "load"} | macros | {"loop", *environment.globals}
    with_default = {found.node.name for found in tree.find_all(nodes.Filter) if found.name == "default"}
    read = {name for name, _ in names} - VARIABLES - own | with_default
    assert read == set(re.findall(r"^- `(\w+)` \(", page_of(name), re.MULTILINE))


def test_the_index_links_every_template_and_nothing_else() -> None:
    index = (PAGES / "README.md").read_text("utf-8")
    assert re.findall(r"^\| \[(.+?)\]\(\1\.md\) \|", index, re.MULTILINE) == list(named_templates())
    assert {page.stem for page in PAGES.glob("*.md")} - {"README", "matrix", "prompt-types"} == set(named_templates())
