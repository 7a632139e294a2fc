"""`python -m rmutils` is the command `rmutils`."""

from rmutils.cli import app

app(prog_name="rmutils")
