# The book as a graph: one rule per notebook, one for the pages. Started by `make book`
# (rmutils/build.py), which takes care of locks and messages.
import json
import sys
from pathlib import Path

from rmutils import build

ROOT = Path.cwd()
CHAPTERS = build.chapters(ROOT, config["profile"])


rule book:
    input:
        [chapter.output for chapter in CHAPTERS],
        build.sources(ROOT),
    output:
        "book/_build/html/.complete",
    params:
        python=sys.executable,
    shell:
        "{params.python:q} -m rmutils.steps pages"


for chapter in CHAPTERS:

    rule:
        name:
            f"chapter_{chapter.name}"
        input:
            notebook=str(chapter.notebook),
            others=chapter.inputs,
        output:
            chapter.output,
        params:
            python=sys.executable,
            values=json.dumps(chapter.parameters),
        shell:
            "{params.python:q} -m rmutils.steps chapter {input.notebook:q} {output:q} {params.values:q}"
