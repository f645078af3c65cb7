"""`training_template`: tags of a variant of the template prove masks in builds and checks, and a variant that can prove nothing is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prep_assets.config.models import Sft
from prep_assets.errors import PrepAssetsError, TemplateError
from prep_assets.graph.selftest import selftest
from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.graph.workspaces import TOKENIZER, build, jsonl, verdicts, workspace_in

PLAIN = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONTENT = "{{ m['content'] }}<|im_end|>"
TAGGED = PLAIN.replace(
    CONTENT, f"{{% if m['role'] == 'assistant' %}}{{% generation %}}{CONTENT}{{% endgeneration %}}{{% else %}}{CONTENT}{{% endif %}}"
)
CUT = TAGGED.replace(
    f"generation %}}{CONTENT}", "generation %}{{ m['content'][:3] }}{% endgeneration %}{% generation %}{{ m['content'][3:] }}<|im_end|>"
)
WRONG = TAGGED.replace(f"{{% generation %}}{CONTENT}", "{{ m['content'][:3] }}{% generation %}{{ m['content'][3:] }}<|im_end|>")
OTHER = TAGGED.replace("{{ '\n' }}", "{{ '\n\n' }}")
ONLY_FIRST = TAGGED.replace("{% if m['role'] == 'assistant' %}", "{{ '' if loop.index < 3 else ' ' }}{% if m['role'] == 'assistant' %}")


def made(folder: Path, training: str, template: str = PLAIN) -> Workspace:
    def said(number: int, *more: str) -> dict[str, Any]:
        texts = (f"What is {number}?", f"It is {number}.", *more)
        return {"messages": [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]}

    rows = [*(said(number) for number in range(4)), *(said(number, "So?", "Yes.") for number in range(4, 7))]
    sft = {
        "tokenizer": TOKENIZER,
        "template": "own.jinja",
        "training_template": "tagged.jinja",
        "domains": {"a": {"files": [str(jsonl(folder / "a.jsonl", rows))], "schema": "messages"}},
    }
    workspace = workspace_in(folder, {"sft": sft})
    for name, source in (("own", template), ("tagged", training)):
        (workspace.configs / f"{name}.jinja").write_text(source, "utf-8")
    return workspace


@pytest.mark.parametrize(("training", "rows"), [(TAGGED, 7), (CUT, 7), (ONLY_FIRST, 4)])
def test_tags_are_compared_wherever_the_variant_renders_the_same(tmp_path: Path, training: str, rows: int) -> None:
    workspace = made(tmp_path, training)
    build(workspace, "sft_raw", "a")
    store = build(workspace, "sft_tokens", "a")
    assert store.manifest.counts["kept"] == 7
    verdict = verdicts(workspace, store)["mask_alignment"]
    assert verdict.passed and verdict.summary.endswith(f"; tags in the template say the same of {rows} rows")
    assert verdict.numbers["rows_by_tags_too"] == rows
    [trial] = [trial for trial in selftest(workspace, store) if trial.mutation.startswith("tags of the template")]
    assert trial.passed and trial.tried == rows


def test_what_tags_contradict_is_refused(tmp_path: Path) -> None:
    workspace = made(tmp_path, WRONG)
    build(workspace, "sft_raw", "a")
    with pytest.raises(PrepAssetsError) as raised:
        build(workspace, "sft_tokens", "a")
    assert "all 7 records were refused (render/mask_not_provable: 7)" in str(raised.value)
    says = "the training_template of template own.jinja marks ['is 0.<|im_end|>'] of turn 1 as generated, which is 'It is 0.<|im_end|>'"
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("training", "template", "says"),
    [
        (PLAIN, PLAIN, "training_template: tagged.jinja has no {% generation %} tags"),
        (TAGGED, TAGGED, "training_template: template own.jinja marks what is generated itself. Leave training_template out"),
        (OTHER, PLAIN, "training_template: of a question and an answer tagged.jinja makes"),
    ],
)
def test_a_variant_that_can_prove_nothing(tmp_path: Path, training: str, template: str, says: str) -> None:
    workspace = made(tmp_path, training, template)
    with pytest.raises(TemplateError) as raised:
        workspace.template(workspace.family(Sft))
    assert says in str(raised.value)


def test_a_variant_that_is_not_there(tmp_path: Path) -> None:
    workspace = made(tmp_path, TAGGED)
    (workspace.configs / "tagged.jinja").unlink()
    with pytest.raises(TemplateError, match=r"no chat template at .*tagged\.jinja"):
        workspace.template(workspace.family(Sft))
