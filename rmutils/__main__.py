"""`python -m rmutils` is the command `rmutils`."""

from rmutils.cli import app

if __name__ == "__main__":  # processes that vLLM starts import this file under another name
    app(prog_name="rmutils")
