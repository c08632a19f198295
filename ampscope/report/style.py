"""The style sheet of the HTML report, from `report.css` beside this file."""

from __future__ import annotations

import re
from importlib.resources import files

from ampscope.report.markup import Markup


def style_sheet() -> Markup:
    """The style sheet, without comments and the element around it."""
    text = files("ampscope.report").joinpath("report.css").read_text(encoding="utf-8")
    return Markup(re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL).replace("\n", ""))
