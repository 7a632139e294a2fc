"""A training from pairs to a model folder, resumable, and kept as a stored result."""

from __future__ import annotations

import copy
import gc
import json
import os
import shutil
import sys
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging

from rmutils.core.errors import UserError
from rmutils.core.extras import needed
from rmutils.core.files import one_process
from rmutils.core.results import Artifact, Compute
from rmutils.core.validation import checked
from rmutils.models import LanguageModel, load_model
from rmutils.models.engine.generation import halve
from rmutils.models.loading import dtype_of
from rmutils.models.trained import RECORD, TRAIN, is_adapter, load_adapter
from rmutils.preference.pairs import Pairs
from rmutils.training.compute_backend import Launch, launch
from rmutils.training.conversations import without_conversations
from rmutils.training.encoding import check_pairs, digest_of, encode
from rmutils.training.recipes import RECIPES, TrainRecipe

if TYPE_CHECKING:  # pairs are made, and models loaded, without what only training needs
    import datasets
    from trl import DPOConfig, SFTConfig

CURVE = {
    "step": "step", "loss": "loss", "rewards/chosen": "chosen_reward",
    "rewards/rejected": "rejected_reward", "rewards/margins": "margin",
    "rewards/accuracies": "accuracy", "grad_norm": "gradient_norm",
    "learning_rate": "learning_rate",
}
"""The trainer's names, and those of `curve.csv`. SFT has no rewards."""


@checked
def train(model: LanguageModel | str | Path, pairs: Pairs | pd.DataFrame, recipe: TrainRecipe | str,
          folder: Path | str, *, at_once: int | None = None) -> Path:
    """Train a model on preference pairs (section 3, or appendix D) and save it.

    Parameters
    ----------
    model : LanguageModel or str
        It, or its name. A model that is given stays as it is.
    pairs : Pairs or DataFrame
        Columns `prompt`, `chosen`, `rejected`: texts, or conversations as TRL has them, lists of
        messages with `role` and `content`; see `rmutils.training.encoding.encode`.
    recipe : TrainRecipe or str
        A recipe, or the name of one: `paper`, `embedded` (for two cores) or `smoke` (four steps).
    folder : Path or str
        Takes the model in transformers' format, in the precision it was loaded in, or, for LoRA,
        the adapter in float16; `curve.csv` (a row for each step: mean loss and rewards of its
        pairs, before the step); and `training.json` (what was trained on what, and how). Until
        then, the hidden folder `.training` holds data, reference log-probabilities and the last
        checkpoint: the same training, called again, goes on from there. Where memory runs out, it
        does so by itself with half as many pairs at once, and the same batch.
    at_once : int, optional
        Pairs in memory at once, in place of the recipe's `per_device_batch`. It decides memory and
        time, not the result.

    Raises
    ------
    UserError
        The folder holds something else; the pairs cannot be used; loss or gradient is not finite
        (with the step and the rows of the pairs in its batch); memory does not suffice for a
        single pair.

    Returns
    -------
    Path
        The folder.

    Examples
    --------
    >>> import tempfile
    >>> import pandas as pd
    >>> from rmutils import load_model, train
    >>> pairs = pd.DataFrame({"prompt": ["Repeat: the old mill."] * 4,
    ...                       "chosen": "The old mill.", "rejected": "The river."})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     load_model(train("tiny-llama", pairs, "smoke", f"{folder}/trained"))
    LanguageModel(trained: llama, 4 layers x 16 heads, window 4096, float32)
    """
    pairs = without_conversations(pairs.table if isinstance(pairs, Pairs) else pairs)
    if isinstance(recipe, str):
        if recipe not in RECIPES:
            raise UserError(f"{recipe!r} is no recipe: one of {', '.join(RECIPES)}.")
        recipe = RECIPES[recipe]
    folder = Path(folder)
    check_pairs(pairs)
    model = str(model) if isinstance(model, Path) else model
    lm = _loaded(model) if isinstance(model, str) else model
    record = {"model": lm.name, "identity": lm.state, "recipe": recipe.model_dump(mode="json"),
              "pairs": digest_of(pairs)}
    main = os.environ.get("RANK", "0") == "0"  # of the processes of `accelerate launch`
    with one_process(folder / ".lock", f"training into {folder.name}") if main else nullcontext():
        trainers = needed("rmutils.training.trainers")
        args = trainers.arguments(
            recipe.changed({"per_device_batch": at_once}) if at_once else recipe,
            folder / ".training")
        needed("datasets").disable_progress_bars()
        logging.disable_progress_bar()
        with args.main_process_first(local=False):
            if _claim(folder, record):
                return folder
            data = _data(lm, pairs, recipe, folder / ".training")
        while True:
            own = lm.model if isinstance(model, str) else copy.deepcopy(lm.model)
            try:
                _run(lm, own, data, recipe, args, folder)
                break
            except RuntimeError as error:
                if args.world_size > 1:
                    raise  # the other processes wait for this one
                at_once = halve(error, args.per_device_train_batch_size, "pair")
            args = trainers.arguments(recipe.changed({"per_device_batch": at_once}),
                                      folder / ".training")
            del own
            gc.collect()  # trainer and callbacks hold each other, and the memory of this try
            lm = _loaded(model) if isinstance(model, str) else model
        if main:
            _write(folder / RECORD, record)
            del data, own  # files that are open cannot be removed from a network's folder
            gc.collect()
            shutil.rmtree(folder / ".training")
    return folder


def _loaded(name: str) -> LanguageModel:
    """On the CPU, from where each process takes it to its own GPU."""
    return load_model(name, device="cpu", dtype=dtype_of(name))


def _claim(folder: Path, record: dict) -> bool:
    """True if the training is done already. If not, the folder is this training's from now on."""
    claimed = folder / ".training" / RECORD
    for path in (folder / RECORD, claimed):
        if path.exists() and json.loads(path.read_text()) != record:
            raise UserError(f"{folder} holds another training: of another model, of other pairs or "
                            f"with another recipe. Remove the folder, or choose another one.")
    if (folder / RECORD).exists():
        shutil.rmtree(folder / ".training", ignore_errors=True)  # if a kill came just before
        return True
    if not claimed.exists():
        if any(folder.glob("*.safetensors")):
            raise UserError(f"{folder} holds weights of another origin. Choose another folder.")
        claimed.parent.mkdir(parents=True, exist_ok=True)
        _write(claimed, record)
    return False


def _write(path: Path, record: dict) -> None:
    """Whole or not at all."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(record, indent=1) + "\n")
    os.replace(temporary, path)


def _data(lm: LanguageModel, pairs: pd.DataFrame, recipe: TrainRecipe,
          work: Path) -> datasets.Dataset:
    """The encoded pairs, from a file beside which the reference log-probabilities are kept."""
    path, temporary, library = work / "data", work / "data.tmp", needed("datasets")
    if not path.exists():
        shutil.rmtree(temporary, ignore_errors=True)
        library.Dataset.from_dict(encode(lm, pairs, recipe)).save_to_disk(temporary)
        os.replace(temporary, path)
    return library.load_from_disk(path)


def _run(lm: LanguageModel, model: PreTrainedModel, data: datasets.Dataset, recipe: TrainRecipe,
         args: DPOConfig | SFTConfig, folder: Path) -> None:
    """Train `model`, which is `lm`'s or a copy of it, and save it."""
    dtype = model.dtype
    config, generation = copy.deepcopy((model.config, model.generation_config))
    if not recipe.lora_rank:
        model.float()  # steps of 5e-7 are lost in bfloat16
    sharded = os.environ.get("ACCELERATE_USE_FSDP") == "true" and recipe.objective == "dpo"
    trainers = needed("rmutils.training.trainers")
    with ExitStack() as stack:
        stack.enter_context(trainers.finite_attention(args.device))
        trainer = trainers.build(recipe, model, copy.deepcopy(lm.tokenizer), data, args,
                                 copy.deepcopy(model) if sharded else None)
        if args.process_index == 0:
            trainer.add_callback(trainers.Progress(stack, f"training {folder.name}"))
        trainer.train(resume_from_checkpoint=_last_checkpoint(folder / ".training"))
    weights = trainer.accelerator.get_state_dict(trainer.model_wrapped)
    if args.process_index:
        return
    if recipe.lora_rank:
        adapted = trainer.accelerator.unwrap_model(trainer.model)
        adapted.peft_config["default"].base_model_name_or_path = lm.source or lm.name
        adapted.save_pretrained(folder, save_embedding_layers=False,  # are not trained
                                state_dict={k: v.half() for k, v in weights.items()})
        (folder / "README.md").unlink()  # a form that nobody filled in
    else:
        _save(weights, config, generation, dtype, folder)
        lm.tokenizer.save_pretrained(folder)
    steps = [entry for entry in trainer.state.log_history if "loss" in entry]
    curve = pd.DataFrame(steps).rename(columns=CURVE)
    curve[[name for name in CURVE.values() if name in curve]].to_csv(
        folder / "curve.csv", index=False)


def _save(weights: dict, config, generation, dtype: torch.dtype, folder: Path) -> None:
    """A model folder with the settings that the model came with; trainers change them."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model.load_state_dict({k: v.to(dtype) for k, v in weights.items()}, assign=True)
    model.tie_weights()
    model.generation_config = generation
    model.save_pretrained(folder)


def _last_checkpoint(work: Path) -> str | None:
    """The last checkpoint that is whole; a kill while one is written leaves a part of it."""
    from transformers.trainer import TRAINER_STATE_NAME  # slow to import

    for path in sorted(work.glob("checkpoint-*"), key=lambda p: -int(p.name.split("-")[1])):
        try:
            json.loads((path / TRAINER_STATE_NAME).read_text())  # is written last
        except (OSError, ValueError):
            continue
        return str(path)
    return None


def train_stored(lm: LanguageModel, pairs: pd.DataFrame, recipe: TrainRecipe, *,
                 compute: Compute = "auto", command: str = "rmutils train MODEL PAIRS --out FOLDER",
                 named: str | None = None, means: Launch | None = None, at_once: int | None = None,
                 label: str | None = None) -> tuple[LanguageModel, Artifact]:
    """`train`, but a training that is stored already is read instead; a stopped one goes on."""
    def make(folder: Path) -> dict:
        if means:
            lm.check_as_loaded()
            device = lm.model.device
            lm.model.to("cpu")  # its GPU is wanted
            torch.cuda.empty_cache()
            launch(named, pairs, recipe, folder, means)
            lm.model.to(device)
        else:
            train(lm, pairs, recipe, folder, at_once=at_once)
        return {"pairs": len(pairs)}

    pairs = without_conversations(pairs)
    inputs = {"model": lm.state, "pairs": digest_of(pairs)}
    artifact = TRAIN.obtain_folder(recipe, inputs, make, compute=compute, command=command,
                                   model=named or lm.name,
                                   label=label or f"{recipe.objective}-seed{recipe.seed}")
    if is_adapter(artifact.folder):
        return load_adapter(lm, artifact.folder), artifact
    return load_model(str(artifact.folder), device=str(lm.model.device),
                      dtype=lm.model.dtype), artifact


def train_task(task: Path) -> None:
    """Train as one of the processes of `rmutils.training.compute_backend.launch`, by its task."""
    told = json.loads(task.read_text(encoding="utf-8"))
    train(told["model"], pd.read_parquet(told["pairs"]), TrainRecipe(**told["recipe"]),
          Path(told["folder"]))


if __name__ == "__main__":
    train_task(Path(sys.argv[1]))
