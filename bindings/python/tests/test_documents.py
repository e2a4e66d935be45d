"""The code of the guide and of the package's page runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("document", ["docs/python.md", "README.md"])
def test_the_code_runs(document: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / document).read_text().replace('wglm.Model.load("GLM-4.7-Flash-Q4_0.gguf")', "wglm.Model.demo()")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 2
    names: dict[str, object] = {"__name__": "document"}
    for block in blocks:
        exec(compile(block, document, "exec"), names)
    assert capsys.readouterr().out
