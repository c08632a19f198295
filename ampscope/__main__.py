"""`python -m ampscope`: the same as the `ampscope` command."""

from __future__ import annotations

import sys

from ampscope.commands import main

sys.exit(main())
