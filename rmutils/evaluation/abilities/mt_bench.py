"""MT-Bench: questions in two turns, and a judge who rates each answer (section 5.1).

The questions are read from a file in FastChat's format, and the judge is asked in words of our own:
its ratings compare models with one another, and are not those of the paper. Zheng et al. (2023),
"Judging LLM-as-a-judge with MT-Bench and Chatbot Arena".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Self

import pandas as pd
from pydantic import model_validator

from rmutils.core.config import Config, command_line, digest
from rmutils.core.errors import UserError
from rmutils.core.files import numbered_lines, sha256
from rmutils.core.journal import Journal, progress_bar
from rmutils.core.results import Artifact, Compute, Stage, Tables
from rmutils.core.validation import Count, parse_json
from rmutils.models import LanguageModel, load_model
from rmutils.models.engine.generation import generate
from rmutils.models.language_model import without_thoughts
from rmutils.preference.judges import ServerJudge, rating

MT_BENCH = Stage[Tables](
    "mt-bench", version=1, facts=lambda tables: {
        "answers": len(tables["samples"]),
        "unscored": int(tables["samples"]["score"].isna().sum())})
TEMPERATURES = {"writing": 0.7, "roleplay": 0.7, "extraction": 0.0, "math": 0.0, "coding": 0.0,
                "reasoning": 0.0, "stem": 0.1, "humanities": 0.1}
"""Category -> temperature of the answers, as in FastChat; 0.7 for others."""
PROMPT = """\
Rate the assistant's last answer in the conversation below, from 1 (useless) to 10 (excellent).
Consider whether it is helpful, relevant, correct and thorough, and does what was asked.

{conversation}
{reference}
Reply with your rating in double square brackets and nothing else, for example: [[5]]"""


class MTBenchConfig(Config):
    """How the questions are answered."""

    max_new_tokens: Count = 1024
    """Longest answer. The paper is silent."""
    thinking: bool = False
    """Whether an answer may begin with a chain of thought, where the model knows one."""
    seed: int = 0
    """Seed of the answers that are sampled."""


class MTBenchRun(Config):
    """Questions, a judge, and how the questions are answered; without questions there is no run."""

    questions: Path | None = None
    """FastChat's `question.jsonl`."""
    judge: str | None = None
    """Address of a server with OpenAI's interface."""
    judge_model: str = "gpt-4o-2024-08-06"
    """The judge's name there. Appendix A: "we employ gpt-4o-2024-08-06"."""
    answers: MTBenchConfig = MTBenchConfig()

    @model_validator(mode="after")
    def _has_both(self) -> Self:
        if (self.questions is None) != (self.judge is None):
            raise ValueError("questions and judge need each other")
        return self

    def obtain(self, model: str, *, compute: Compute = "auto") -> tuple[pd.DataFrame, Artifact]:
        """`mt_bench_stored` for a model by name: see `rmutils.models.load_model`."""
        command = command_line(
            "abilities", model, "--mt-bench", str(self.questions), "--judge", self.judge,
            "--judge-model", self.judge_model, config=self.answers)
        return mt_bench_stored(
            load_model(model), self.questions, ServerJudge(self.judge, self.judge_model),
            self.answers, compute=compute, command=command)


@dataclass(frozen=True)
class Question:
    """A question of FastChat's `question.jsonl`: `turns`, and for some right answers to them."""

    id: str
    category: str
    turns: tuple[str, ...]
    references: tuple[str, ...] = ()


def read_questions(path: Path) -> list[Question]:
    """Questions from a file, one JSON object in a line."""
    if not path.exists():
        raise UserError(f"{path}: no such file. The questions of MT-Bench are in FastChat's "
                        f"repository: fastchat/llm_judge/data/mt_bench/question.jsonl.")
    found = []
    for n, line in numbered_lines(path):
        try:
            record = parse_json(line)
            turns = tuple(map(str, record["turns"]))
            found.append(Question(str(record["question_id"]), str(record["category"]), turns,
                                  tuple(map(str, record.get("reference", ())))))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise UserError(f"{path}, line {n}: expected an object with question_id, category and "
                            f"turns ({type(error).__name__}).") from error
    if not found:
        raise UserError(f"{path} holds no questions.")
    return found


def mt_bench(lm: LanguageModel, questions: Sequence[Question], judge: ServerJudge,
             config: MTBenchConfig = MTBenchConfig(), *,
             journal: Path | None = None) -> pd.DataFrame:
    """Answer the questions turn by turn and have every answer rated."""
    kept = Journal(journal, [lm.state, config.identity(), [asdict(one) for one in questions],
                             judge.identity, PROMPT])
    answers = [(i, turn) for i, q in enumerate(questions) for turn in range(len(q.turns))]
    with progress_bar(f"MT-Bench of {lm.name}", 2 * len(answers), unit="answers and ratings",
                      done=len(kept)) as advance:
        def keep(key: str, found: object) -> None:
            kept[key] = found
            advance(1)

        for turn in range(max((turn for _, turn in answers), default=-1) + 1):
            _answer(lm, questions, turn, config, kept, keep)

        def rate(answer: tuple[int, int]) -> tuple[tuple[int, int], float | None]:
            i, turn = answer
            return answer, judge.ask(_asked(questions[i], _said(kept, i, turn + 1)), rating)

        todo = [(i, turn) for i, turn in answers if f"rating {i} {turn}" not in kept]
        with ThreadPool(judge.at_once) as pool:  # its threads never keep a stopped run waiting
            for (i, turn), points in pool.imap_unordered(rate, todo):
                keep(f"rating {i} {turn}", points)
    table = pd.DataFrame(
        [("MT-Bench", questions[i].category, i, turn + 1, kept[f"rating {i} {turn}"],
          kept[f"answer {i} {turn}"]) for i, turn in answers],
        columns=["task", "kind", "sample", "turn", "score", "response"])
    return table.assign(score=10 * table["score"].astype(float))


def _answer(lm: LanguageModel, questions: Sequence[Question], turn: int, config: MTBenchConfig,
            kept: Journal, keep) -> None:
    """One turn of all conversations, those of one temperature together."""
    todo = [i for i, q in enumerate(questions)
            if turn < len(q.turns) and f"answer {i} {turn}" not in kept]
    of = {i: TEMPERATURES.get(questions[i].category, 0.7) for i in todo}
    for temperature in sorted({*of.values()}):
        group = [i for i in todo if of[i] == temperature]

        def done(index: int, tokens: list[int], group=group) -> None:
            text = lm.tokenizer.decode(tokens, skip_special_tokens=True)
            keep(f"answer {group[index]} {turn}", without_thoughts(text))

        generate(lm, [_render(lm, questions[i], _said(kept, i, turn), config) for i in group],
                 max_new_tokens=config.max_new_tokens, temperature=temperature, done=done,
                 seeds=[int(digest([config.seed, questions[i].id, turn])[:8], 16) for i in group])


def _said(kept: Journal, i: int, turns: int) -> list[str]:
    return [kept[f"answer {i} {turn}"] for turn in range(turns)]


def _render(lm: LanguageModel, question: Question, said: list[str], config: MTBenchConfig):
    """Token ids of a conversation up to where the next answer begins."""
    messages = [{"role": "user", "content": question.turns[0]}]
    for answer, turn in zip(said, question.turns[1:], strict=False):
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": turn}]
    return lm.render_chat(messages, thinking=config.thinking)


def _asked(question: Question, said: list[str]) -> str:
    """Return the judge's question about the last of some answers."""
    turns = "\n\n".join(f"User: {turn}\n\nAssistant: {answer}"
                        for turn, answer in zip(question.turns, said, strict=False))
    right = "".join(f"\nA right answer to the last question:\n\n<answer>\n{text}\n</answer>\n"
                    for text in question.references[len(said) - 1 : len(said)])
    return PROMPT.format(conversation=f"<conversation>\n{turns}\n</conversation>", reference=right)


def mt_bench_stored(lm: LanguageModel, path: Path, judge: ServerJudge,
                    config: MTBenchConfig = MTBenchConfig(), *, compute: Compute = "auto",
                    command: str) -> tuple[pd.DataFrame, Artifact]:
    """`mt_bench` on the questions of a file, but stored ratings are read instead."""
    questions = read_questions(path)
    inputs = {"model": lm.state, "questions": sha256(path), "judge": judge.identity,
              "wording": digest(PROMPT)}
    tables, artifact = MT_BENCH.obtain(
        config, inputs, lambda journal: {"samples": mt_bench(
            lm, questions, judge, config, journal=journal)},
        compute=compute, command=command, model=lm.name)
    return tables["samples"], artifact
