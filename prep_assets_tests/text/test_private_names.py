"""Names of transformers that are private, or may go: a version without them must fail here, and not in somebody's build."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

from prep_assets.text.environment import chat_template_utils
from prep_assets_tests.conftest import ROOT

KNOWN = {("transformers.utils", "sentencepiece_model_pb2_new")}
ALONE = """
import sys
from prep_assets.text.environment import chat_template_utils
found = chat_template_utils()
assert not any(name.partition(".")[0] == "transformers" for name in sys.modules), "half of transformers is left"
import transformers
import transformers.utils.chat_template_utils as whole
assert whole is not found and transformers.__version__ and chat_template_utils() is found
print(found._compile_jinja_template("{{ [1, 'a'] | tojson }}").render(), found.__file__ == whole.__file__)
"""
BESIDE = """
import sys
from prep_assets.text.environment import chat_template_utils
print(chat_template_utils() is sys.modules["transformers.utils.chat_template_utils"])
"""


def imported(path: Path) -> set[tuple[str, str]]:
    """What a module takes from transformers, beside its public classes."""
    found = (node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.ImportFrom))
    named = {(node.module or "", each.name) for node in found for each in node.names}
    return {(module, name) for module, name in named if module.startswith("transformers.")}


def test_private_names_are_the_known_ones() -> None:
    assert set().union(*map(imported, (ROOT / "prep_assets").rglob("*.py"))) == KNOWN


def test_the_installed_version_has_them() -> None:
    assert import_module("transformers.utils").__spec__.submodule_search_locations  # type: ignore[union-attr]


def test_a_chat_template_is_compiled_and_rendered_with_them() -> None:
    module = chat_template_utils()
    template = module._compile_jinja_template("{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}")
    text, spans = module._render_with_assistant_indices(
        template, messages=[{"content": "a"}, {"content": "bc"}], tools=None, documents=None, add_generation_prompt=False
    )
    assert (text, spans) == ("abc", [(0, 1), (1, 3)])


def test_templates_are_compiled_without_the_rest_of_transformers() -> None:
    said = subprocess.run([sys.executable, "-c", ALONE], check=True, capture_output=True, text=True).stdout
    assert said.split("\n")[0] == '[1, "a"] True'
    beside = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    said = subprocess.run([sys.executable, "-c", beside + BESIDE], check=True, capture_output=True, text=True).stdout
    assert said.split() == ["True"], "another thread may have found half of transformers"
