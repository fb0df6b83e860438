"""A report as one HTML document: charts, tables and the data itself, with nothing to fetch."""

import base64
import hashlib
import html
import json
from importlib.resources import files
from string import Template
from typing import Any


def page(report: dict[str, Any]) -> str:
    """The document that shows `report`. A number that is missing must be None: NaN and infinity are no JSON and are refused."""
    frame, style, script = (files("iterq.report").joinpath(f"page.{kind}").read_text("utf-8") for kind in ("html", "css", "js"))
    # A browser ends a script at the first "</script", whatever stands around it, so no "<" of the data may reach the document.
    data = json.dumps(report, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return Template(frame).substitute(
        title=html.escape(str(report["title"])),
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
        data=data,
    )


def _hash(text: str) -> str:
    """What a content security policy calls `text`: with it the browser runs this very text and no other."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
