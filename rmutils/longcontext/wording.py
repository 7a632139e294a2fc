"""Other words for a sentence, from a model behind a server; by default it stays as it is.

In the Olmo 3 recipe a large model words the questions and answers of CWE and REX. What must not
change, such as a count or a name, is asked for and looked for in each reply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rmutils.contrast.judges import ServerJudge
from rmutils.longcontext.phrases import places

Wording = Callable[[str, Sequence[str]], str]
"""A sentence and what it must keep -> the sentence in other words."""

PROMPT = """\
Say the following in other words, in one line. Keep these exactly as they are: {kept}.

{line}

Reply with the new line and nothing else."""
"""Ours; the recipe's prompts are not in the report."""


def as_it_is(line: str, kept: Sequence[str]) -> str:
    """No other words: the templates."""
    return line


def by_server(server: ServerJudge) -> Wording:
    """Wording by the model of a server with OpenAI's interface.

    Where no reply keeps what has to be kept, the sentence stays as it is, so that answers stay
    exact whatever the model says.

    Raises
    ------
    UserError
        From the wording: the server cannot be reached, or refuses to answer.
    """

    def say(line: str, kept: Sequence[str]) -> str:
        def keeps(reply: str) -> str | None:
            reply = reply.strip()
            right = reply and "\n" not in reply and all(places(part, reply) for part in kept)
            return reply if right else None

        return server.ask(PROMPT.format(kept=", ".join(kept), line=line), keeps) or line

    return say
