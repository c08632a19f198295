"""Codes that a project does not want to hear of: `[tool.ampscope] silence` in its pyproject.toml."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ampscope.diagnose.rule import find_rule
from ampscope.errors import AmpscopeError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_silence(folder: Path) -> dict[str, str]:
    """Code to reason, from `folder/pyproject.toml`; empty without such a file or section.

    Raises AmpscopeError for a file that is not TOML, an unknown code, or a code without a reason.
    """
    file = folder / "pyproject.toml"
    if not file.is_file():
        return {}
    text = file.read_text(encoding="utf-8", errors="replace")
    if "ampscope" not in text:
        return {}
    section = _parse(file, text).get("tool", {}).get("ampscope", {})
    silence = section.get("silence", {}) if isinstance(section, Mapping) else None
    if not isinstance(silence, Mapping):
        raise AmpscopeError(f'{file}: write silence as a table, silence = {{ AMP112 = "why" }}.')
    return dict(_entry(file, str(code), reason) for code, reason in silence.items())


def _parse(file: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise AmpscopeError(f"{file} is not valid TOML: {error}.") from error


def _entry(file: Path, code: str, reason: object) -> tuple[str, str]:
    rule = find_rule(code)
    if rule is None:
        raise AmpscopeError(f"{file} silences {code}, which is no diagnosis; see `ampscope explain --all`.")
    if not isinstance(reason, str) or not reason.strip():
        raise AmpscopeError(f'{file} silences {code} without a reason; write {code} = "why".')
    return rule.code, reason.strip()
