"""Answers of vLLM in this process, run in .venv-vllm by a test: JSON comes in and goes out."""

import json
import os
import sys
import tempfile
from pathlib import Path

from rmutils.core.errors import UserError
from rmutils.models import load_model
from rmutils.preference.instructions import Instruction
from rmutils.preference.responses import ResponseConfig, respond
from rmutils.preference.vllm import VLLM


def main() -> None:
    backends, results = {}, []
    for task in json.load(sys.stdin):
        processes = task.get("processes", False)
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = str(int(processes))
        key = json.dumps([task["model"], task.get("engine"), processes])
        if key not in backends:
            for old in backends.values():
                old.close()
            backends[key] = VLLM(load_model(task["model"]), **task.get("engine", {}))
        backend, asked = backends[key], [Instruction.of(text) for text in task["asked"]]
        config = ResponseConfig(**task["config"])
        try:
            if "stop_after" in task:
                result = stop_and_go_on(backend, asked, config, task["stop_after"])
            else:
                result = respond(backend, asked, config).to_dict("list")
        except UserError as error:
            result = {"error": str(error)}
        results.append(result | {"identity": backend.identity})
    print(json.dumps(results))


def stop_and_go_on(backend: VLLM, asked: list[Instruction], config: ResponseConfig,
                   after: int) -> dict:
    """A run that is interrupted after so many responses, and what the next run asks for."""
    counts, give_out = [], backend.respond

    def counted(instructions, config, done):
        came = 0

        def stop(response):
            nonlocal came
            done(response)
            came += 1
            if len(counts) == 1 and came == after:
                raise KeyboardInterrupt

        counts.append(len(instructions))
        give_out(instructions, config, stop)

    backend.respond = counted
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "journal"
        try:
            respond(backend, asked, config, journal)
        except KeyboardInterrupt:
            table = respond(backend, asked, config, journal)
    backend.respond = give_out
    return table.to_dict("list") | {"counts": counts}


if __name__ == "__main__":
    main()
