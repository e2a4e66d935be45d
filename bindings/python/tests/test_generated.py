"""The layers that UniFFI generates match the library: its functions have the checksums that the layers expect.

Every change of a function or its comment changes its checksum. Swift's layer compares them, and ends the app if one
differs.
"""

import pathlib
import re

import pytest

from wglm import _core

EXPECTED = re.compile(r"(uniffi_wglm_bindings_checksum_\w+)\(\) != (\d+)")
PYTHON = pathlib.Path(_core.__file__)
SWIFT = pathlib.Path(__file__).with_name("WglmCore.swift")


@pytest.mark.parametrize("layer", [PYTHON, SWIFT], ids=["Python", "Swift"])
def test_a_generated_layer_is_current(layer: pathlib.Path) -> None:
    if not layer.exists():
        pytest.skip("only scripts/python-test.sh copies it here")
    expected = dict(EXPECTED.findall(layer.read_text(encoding="utf-8")))
    assert len(expected) > 50
    found = {name: str(getattr(_core._UniffiLib, name)()) for name in expected}
    assert found == expected, "run scripts/bindings.sh"
