"""Names of transformers that are private, or may go: a version without them must fail here, and not in somebody's build."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

from prep_assets_tests.conftest import ROOT

KNOWN = {
    ("transformers.utils.chat_template_utils", "_compile_jinja_template"),
    ("transformers.utils.chat_template_utils", "_render_with_assistant_indices"),
    ("transformers.utils", "sentencepiece_model_pb2_new"),
}


def imported(path: Path) -> set[tuple[str, str]]:
    """What a module takes from transformers, beside its public classes."""
    found = (node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.ImportFrom))
    named = {(node.module or "", each.name) for node in found for each in node.names}
    return {(module, name) for module, name in named if module.startswith("transformers.")}


def test_private_names_are_the_known_ones() -> None:
    assert set().union(*map(imported, (ROOT / "prep_assets").rglob("*.py"))) == KNOWN


def test_the_installed_version_has_them() -> None:
    for module, name in sorted(KNOWN - {("transformers.utils", "sentencepiece_model_pb2_new")}):
        assert callable(getattr(import_module(module), name))
    assert import_module("transformers.utils").__spec__.submodule_search_locations  # type: ignore[union-attr]


def test_a_chat_template_is_compiled_and_rendered_with_them() -> None:
    module = import_module("transformers.utils.chat_template_utils")
    template = module._compile_jinja_template("{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}")
    text, spans = module._render_with_assistant_indices(
        template, messages=[{"content": "a"}, {"content": "bc"}], tools=None, documents=None, add_generation_prompt=False
    )
    assert (text, spans) == ("abc", [(0, 1), (1, 3)])
