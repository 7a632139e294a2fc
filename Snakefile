# The book as a graph: one rule per notebook, one for the pages. Started by `make book`
# (rmutils/build.py), which takes care of locks and messages. What a step reads besides stands in its
# parameter `content`: the scheduler would look at thousands of input files again and again. With
# the plan of a study (rmutils/study), a rule per stage comes before them.
import json
import shlex
import sys
from pathlib import Path

from rmutils import build, steps

ROOT = Path.cwd()
CHAPTERS = build.chapters(ROOT, config["profile"])

# Of a study (`rmutils study`): its jobs, and the folder that takes their records.
PLAN = json.loads(Path(config["plan"]).read_text()) if "plan" in config else {}
RECORDS = Path(config.get("plan", "")).parent
RESULTS = [str(steps.RESULTS)] if PLAN or steps.RESULTS.exists() else []
STEP = f"{shlex.quote(sys.executable)} -m rmutils.steps"


rule book:
    input:
        [chapter.output for chapter in CHAPTERS],
    output:
        "book/_build/html/.complete",
    params:
        content=build.content(ROOT, build.sources(ROOT)),
    shell:
        STEP + " pages"


for chapter in CHAPTERS:

    rule:
        name:
            f"chapter_{chapter.name}"
        input:
            notebook=str(chapter.notebook),
            results=RESULTS,
        output:
            chapter.output,
        params:
            values=json.dumps(chapter.parameters),
            content=build.content(ROOT, [str(chapter.notebook), *chapter.inputs]),
        shell:
            STEP + " chapter {input.notebook:q} {output:q} {params.values:q}"


if PLAN:

    localrules:
        fetch,  # a cluster's nodes often have no network
        mask,
        results,

    rule results:
        input:
            [RECORDS / f"{name}.json" for name in PLAN],
        output:
            RESULTS,
        params:
            plan=config["plan"],
        shell:
            STEP + " results {params.plan:q}"


def job(stage, wildcards):
    return PLAN[f"{stage}/{wildcards.name}"]


for stage in sorted({name.split("/")[0] for name in PLAN}):

    rule:
        name:
            stage
        input:
            lambda wildcards, stage=stage: [
                RECORDS / f"{name}.json" for name in job(stage, wildcards)["needs"]
            ],
        output:
            RECORDS / stage / "{name}.json",
        threads: lambda wildcards, stage=stage: job(stage, wildcards)["resources"]["threads"]
        resources:
            mem_mb=lambda wildcards, stage=stage: job(stage, wildcards)["resources"]["mem_mb"],
            runtime=lambda wildcards, stage=stage: job(stage, wildcards)["resources"]["runtime"],
            gpu=lambda wildcards, stage=stage: job(stage, wildcards)["resources"]["gpu"],
            nodes=lambda wildcards, stage=stage: job(stage, wildcards)["resources"]["nodes"],
            # on one machine a job at a time takes the GPUs
            accelerated=lambda wildcards, stage=stage: int(
                job(stage, wildcards)["resources"]["gpu"] > 0
            ),
        params:
            plan=config["plan"],
            stage=stage,
        shell:
            STEP + " job {params.plan:q} {params.stage}/{wildcards.name:q} {threads}"
