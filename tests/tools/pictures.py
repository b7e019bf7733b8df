"""Draws the README's picture of the demo: `python -m tests.tools.pictures` runs the demo and writes
examples/pictures/demo.svg.

The picture of the status page shows the scene of tests/browser/test_status_page.py in 1280 by 800 pixels, without
scrollbars.
"""
from __future__ import annotations

import re
import subprocess
import sys
from html import escape

from tests.examples.programs import ROOT

TARGET = ROOT / "examples" / "pictures" / "demo.svg"
LINE, CHARACTER, MARGIN = 20, 8.43, 18
COLUMNS = 100


def drawn(lines: list[str]) -> str:
    """The lines of a terminal as an SVG document; what is verified is green, lines longer than the picture are cut."""
    width, height = COLUMNS * CHARACTER + 2 * MARGIN, len(lines) * LINE + 2 * MARGIN
    rows = []
    for number, line in enumerate(lines, 1):
        shown = line if len(line) <= COLUMNS else line[:COLUMNS - 1] + "…"
        colour = "#7ee787" if shown.lstrip().startswith("✓") else "#e6edf3" if shown[:1] != " " else "#9da7b3"
        rows.append(f'<text x="{MARGIN}" y="{MARGIN + number * LINE - 5}" fill="{colour}">{escape(shown)}</text>')
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
            f'viewBox="0 0 {width:.0f} {height}">\n<title>The demo in a terminal</title>\n'
            f'<rect width="100%" height="100%" rx="8" fill="#0d1117"/>\n'
            '<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,monospace" font-size="14" '
            'xml:space="preserve">\n'
            + "\n".join(rows) + "\n</g>\n</svg>\n")


def demo() -> list[str]:
    """What the demo prints, without the port of its server."""
    done = subprocess.run([sys.executable, "examples/configmapgen_controller.py", "--demo"], cwd=ROOT, check=True,
                          capture_output=True, text=True, timeout=120)
    command = "$ python examples/configmapgen_controller.py --demo"
    return [command, *(re.sub(r"(127\.0\.0\.1):\d+", r"\1:8001", line) for line in done.stdout.rstrip().splitlines())]


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(drawn(demo()), encoding="utf-8")
    print(TARGET.relative_to(ROOT))
