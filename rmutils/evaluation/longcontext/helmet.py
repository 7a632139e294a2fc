"""The real HELMET: configurations and commands for the official repository.

Options are those of its `arguments.py` and `eval.py` (commits `6a3b73a` and `0a5c203`), in the
version whose result files begin with `args`, `data`, `metrics`. Later versions keep data sets in a
registry and take no such configuration.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

import yaml

from rmutils.errors import UserError
from rmutils.evaluation.longcontext.official import LENGTHS, SETTINGS, configuration
from rmutils.evaluation.longcontext.suite import CATEGORIES

REPOSITORY = "https://github.com/princeton-nlp/HELMET"
TAG, SEED = "v1", 42
"""As in HELMET's `scripts/run_eval_slurm.sh`."""
JUDGED = {"LongQA": "longqa", "Summ": "summ"}
"""Categories that GPT-4o grades, and how its script is called."""
SCRIPT = """\
#!/bin/bash
# Run this in a clone of {repository}, after `bash scripts/download_data.sh`.
# GPT-4o grades LongQA and Summ: OPENAI_API_KEY has to be set. In some versions of HELMET these two
# scripts call their option --model_name_or_path.
# Afterwards: rmutils collect {output}
set -e
{commands}
"""


def write(
    model: str, folder: Path, *, lengths: Sequence[int] = LENGTHS,
    categories: Sequence[str] = CATEGORIES, chat: bool | None = None, thinking: bool = False,
    vllm: bool = False, name: str | None = None,
) -> Path:
    """Write a configuration for each category, and the script that runs them.

    Parameters
    ----------
    model : str
        A hub id, or a folder with weights.
    folder : Path
        Takes the files.
    chat : bool, optional
        False for models without a chat template. None: as HELMET has it.
    thinking : bool
        HELMET's `--thinking`: 32,768 more tokens for thoughts.
    vllm : bool
        HELMET's `--use_vllm`: vLLM answers, over all GPUs that it sees.
    name : str, optional
        Of the folder of results in the clone's `output`. HELMET leaves out what it finds there, for
        whichever model and settings that was. Default: the last part of the model's name.

    Returns
    -------
    Path
        The script, to be run in a clone of HELMET.

    Raises
    ------
    UserError
        A length that HELMET does not have.
    """
    if wrong := [length for length in lengths if length not in LENGTHS]:
        raise UserError(f"HELMET has no data of {', '.join(map(str, wrong))} tokens. It has "
                        f"{', '.join(map(str, LENGTHS))}.")
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    name = name or Path(model).name
    output = f"output/{name}"  # where HELMET's scripts for GPT-4o look
    weights = str(Path(model).absolute()) if Path(model).exists() else model
    options = ["--model_name_or_path", weights, "--output_dir", output, "--tag", TAG, "--seed",
               str(SEED), *(["--use_chat_template", str(chat)] if chat is not None else []),
               *(["--thinking"] if thinking else []), *(["--use_vllm"] if vllm else [])]
    lines = []
    for category in categories:
        path = folder / f"{SETTINGS[category].file}.yaml"
        path.write_text(yaml.safe_dump(configuration(category, lengths), sort_keys=False,
                                       width=10_000))
        lines.append(shlex.join(["python", "eval.py", "--config", str(path), *options]))
    lines += [shlex.join(["python", f"scripts/eval_gpt4_{judged}.py", "--model_to_check", name,
                          "--tag", TAG])
              for category, judged in JUDGED.items() if category in categories]
    script = folder / "run.sh"
    script.write_text(SCRIPT.format(repository=REPOSITORY, commands="\n".join(lines),
                                    output=output))
    os.chmod(script, 0o755)
    return script
