from __future__ import annotations

from pathlib import Path

import jinja2
import pytest

from prep_assets.astrai.masks import MessageTemplate
from prep_assets.astrai.preprocess import load_tokenizer
from prep_assets.errors import Refused, TemplateError
from prep_assets_tests.astrai.conftest import message, write_tokenizer

MESSAGE = message("user", "a\n")


def template(folder: Path, source: str) -> MessageTemplate:
    return MessageTemplate(load_tokenizer(write_tokenizer(folder, template=source)))


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages %}\n  {% if true %}\n{{ m['content'] }}\n  {% endif %}\n{% endfor %}\n",
        "{{ bos_token }}{{ messages[0]['role'] }}{{ eos_token }}",
        "{% if add_generation_prompt %}x{% endif %}{{ messages | tojson }}",
        "{{ messages | length }}{{ messages[0]['missing'] }}",
    ],
)
def test_rendering_is_that_of_a_bare_template(source: str, tmp_path: Path) -> None:
    expected = jinja2.Template(source).render(messages=[MESSAGE], add_generation_prompt=False)
    assert template(tmp_path, source).render(MESSAGE) == expected


def test_blocks_are_not_trimmed_and_special_tokens_are_undefined(tmp_path: Path) -> None:
    assert template(tmp_path, "{% if true %}\n{{ bos_token }}x\n{% endif %}\ny").render(MESSAGE) == "\nx\n\ny"


def test_the_generation_marks_of_transformers_print_nothing(tmp_path: Path) -> None:
    assert template(tmp_path, "a{% generation %}{{ messages[0]['role'] }}{% endgeneration %}b").render(MESSAGE) == "auserb"


@pytest.mark.parametrize(
    "source", ["{{ ''.__class__.__mro__[1].__subclasses__() }}", "{{ messages.append(1) }}", "{{ raise_exception('x') }}", "{{ 1 / 0 }}"]
)
def test_a_template_cannot_reach_out_of_the_sandbox(source: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="template_refuses"):
        template(tmp_path, source).render(MESSAGE)


def test_a_template_that_is_no_jinja_stops_the_run(tmp_path: Path) -> None:
    with pytest.raises(TemplateError, match="line 2"):
        template(tmp_path, "\n{% for %}")
