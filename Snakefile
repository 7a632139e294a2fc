# The book as a graph: one rule per notebook, one for the pages. Started by `make book`
# (rmutils/book/site/build.py), which takes care of locks and messages. What a step reads besides
# (rmutils/book/site/dependencies.py) is hashed in its parameter `content`: the scheduler would look at
# thousands of input files again and again. With the plan of a study (rmutils/book/jobs), a rule per
# stage comes before them.
import json
import os
import shlex
import sys
from pathlib import Path

from rmutils.core.paths import DATA
from rmutils.book.site import dependencies, steps

ROOT = Path.cwd()
CHAPTERS = dependencies.chapters(ROOT, config["profile"])
# The longest first, so that none of them is left for one core at the end.
RUNS = json.loads((DATA / "timings.json").read_text(encoding="utf-8"))["runs"]
SECONDS = {run["notebook"]: run["seconds"] for run in RUNS if "given" not in run}

# Of a study (`rmutils study`): its jobs, and the folder that takes their records.
PLAN = json.loads(Path(config["plan"]).read_text()) if "plan" in config else {}
RECORDS = Path(config.get("plan", "")).parent
RESULTS = [str(steps.RESULTS)] if PLAN or steps.RESULTS.exists() else []
# What pages say besides: where the book and its repository are
# (rmutils/book/site/pages/links_and_search.py), and
# solutions or none.
VARIABLES = ["RMUTILS_SOLUTIONS", "RMUTILS_ADDRESS", "GITHUB_SERVER_URL", "GITHUB_REPOSITORY",
             "GITHUB_REF_TYPE", "GITHUB_REF_NAME"]
PYTHON = shlex.quote(sys.executable)


rule book:
    input:
        [chapter.output for chapter in CHAPTERS],
    output:
        "book/_build/html/.complete",
    params:
        content=dependencies.content(ROOT, dependencies.sources(ROOT)),
        documentation=dependencies.documentation(),
        variables=[os.environ.get(name, "") for name in VARIABLES],
    shell:
        PYTHON + " -m rmutils.book.site.steps pages"


for chapter in CHAPTERS:

    rule:
        name:
            f"chapter_{chapter.name}"
        input:
            notebook=str(chapter.notebook),
            results=RESULTS,
            chapters=[name for name in chapter.inputs if name.startswith("book/chapters/")],
        output:
            chapter.output,
        params:
            values=json.dumps(chapter.parameters),
            content=dependencies.content(ROOT, [str(chapter.notebook), *chapter.inputs]),
        priority:
            int(SECONDS.get(chapter.name, 0))
        shell:
            PYTHON + " -m rmutils.book.site.steps chapter {input.notebook:q} {output:q} {params.values:q}"


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
            PYTHON + " -m rmutils.book.jobs results {params.plan:q}"


def job(stage, wildcards):
    return PLAN[f"{stage}/{wildcards.name}"]


def asked(stage, name):
    """A resource that a job asks for."""
    return lambda wildcards: job(stage, wildcards)["resources"][name]


def over_nodes(stage, value):
    """A resource of a job over several nodes alone, from those it asks for."""

    def find(wildcards):
        wanted = job(stage, wildcards)["resources"]
        return value(wanted) if wanted["nodes"] > 1 else None

    return find


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
        threads: asked(stage, "threads")
        resources:
            mem_mb=asked(stage, "mem_mb"),
            runtime=asked(stage, "runtime"),
            gpu=asked(stage, "gpu"),
            nodes=asked(stage, "nodes"),
            # on one machine a job at a time takes the GPUs
            accelerated=lambda wildcards, stage=stage: int(asked(stage, "gpu")(wildcards) > 0),
            # SLURM refuses the one process that the plugin would start on several nodes: they start
            # theirs by srun. It wants two tasks or more of them, and the GPUs told for each node.
            mpi=over_nodes(stage, lambda wanted: "srun"),
            tasks_per_node=over_nodes(stage, lambda wanted: 2),
            cpus_per_task=over_nodes(stage, lambda wanted: -(-wanted["threads"] // 2)),
            gres=over_nodes(stage, lambda wanted: f"gpu:{wanted['gpu'] // wanted['nodes']}"),
        params:
            plan=config["plan"],
            stage=stage,
        shell:
            PYTHON + " -m rmutils.book.jobs job {params.plan:q} {params.stage}/{wildcards.name:q} {threads}"
