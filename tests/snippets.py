"""The Python of CONTRIBUTING: heading -> what its snippet says, as it stands."""

import re

from rmutils.core.paths import ROOT

SNIPPETS = {
    section.partition("\n")[0]: code[1]
    for section in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("\n## ")
    if (code := re.search(r"```python\n(.*?)```", section, re.DOTALL))}
