"""`python tests/campaign`."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # processes that are forked import the package as `campaign`

from campaign.command import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
