"""The command `rmutils`, also as `python -m rmutils`: the library's commands and the book's."""

from rmutils.book.commands import COMMANDS
from rmutils.cli import add_commands, app

add_commands(COMMANDS)


def main() -> None:
    """Run the command."""
    app(prog_name="rmutils")


if __name__ == "__main__":  # processes that vLLM starts import this file under another name
    main()
