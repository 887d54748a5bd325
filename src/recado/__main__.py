"""`python -m recado` is the command `recado`."""

import sys

from recado.cli import main

sys.exit(main())
