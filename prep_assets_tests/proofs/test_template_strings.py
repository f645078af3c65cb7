"""Strings that a template looks for, and those that it only writes."""

from __future__ import annotations

import pytest

from prep_assets.proofs.chat_blocks import strings_looked_for


@pytest.mark.parametrize(
    ("source", "written"),
    [
        ("{{ '<<a>>' + m.content }}", ()),
        ("{{ '<<a>>' ~ m.content ~ '<<b>>' }}", ()),
        ("{% for m in ms if '<<b>>' in m %}{{ '<<a>>' }}{% endfor %}", ("<<b>>",)),
        ("{% if '<<b>>' in m.content %}{{ '<<a>>' }}{% else %}{{ '<<c>>' }}{% endif %}", ("<<b>>",)),
        ("{% if '<<b>>' in m.content %}{{ '<<a>>' }}{% elif m.role %}{{ '<<c>>' }}{% endif %}", ("<<b>>",)),
        ("{{ '<<a>>' if '<<b>>' in m.content }}", ("<<b>>",)),
        ("{{ '<<a>>' if '<<b>>' in m.content else '<<c>>' }}", ("<<b>>",)),
        ("{{ '<<a>>' }}{% if m.content.startswith('<<a>>') %}{% endif %}", ("<<a>>",)),
        ("{{ m.content.replace('<<a>>', '<<b>>') }}", ("<<a>>", "<<b>>")),
        ("{{ ('<<a>>' ~ m.content) | replace('<<b>>', '') }}", ("<<a>>", "<<b>>")),
        ("{{ '<<a>>' * 2 }}", ("<<a>>",)),
        ("{% generation %}{{ '<<a>>' ~ m.content }}{% endgeneration %}", ()),
        ("{% generation %}{% if '<<b>>' in m.content %}{{ '<<a>>' }}{% endif %}{% endgeneration %}", ("<<b>>",)),
        ("{% macro x() %}{{ caller() in m }}{% endmacro %}{% call x() %}{{ '<<a>>' }}{% endcall %}", ("<<a>>",)),
        ("{% set x = '<<a>>' %}", ("<<a>>",)),
        ("{% set x %}{{ '<<a>>' }}{% endset %}{{ x in m.content }}", ("<<a>>",)),
        ("{% macro x() %}{{ '<<a>>' }}{% endmacro %}{{ x() in m.content }}", ("<<a>>",)),
    ],
)
def test_strings_that_a_template_only_writes_are_not_looked_for(source: str, written: tuple[str, ...]) -> None:
    assert strings_looked_for(source) == written


def test_strings_of_all_sources_are_sorted_and_short_ones_and_names_left_out() -> None:
    sources = [
        "{% if '</b>' in m or 'role' in m or ' x ' in m %}{% endif %}",
        "{% if '<a>' in m or '</b>' in m or 7 in m or '::' in m %}{% endif %}",
    ]
    assert strings_looked_for(*sources) == ("::", "</b>", "<a>")
