"""``python -m cupygemm.emulator.calibration FILE``: write the documented table of figures."""

from __future__ import annotations

import sys
from pathlib import Path

from cupygemm.emulator.calibration import figures, to_csv

if __name__ == "__main__":
    Path(sys.argv[1]).write_text(to_csv(figures()), encoding="utf-8")
