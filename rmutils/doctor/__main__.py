"""`python -m rmutils.doctor`: the same where nothing is installed."""

import sys

from rmutils.doctor import examine, report

sys.exit(report(examine(), "--json" in sys.argv[1:]))
