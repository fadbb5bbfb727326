"""`python -m llm_test_provider SCENARIO.yaml [--host HOST] [--port PORT] [--strict NAME]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from llm_test_provider.cli import DEFAULT_PORT, run_provider
from llm_test_provider.scenario import ScenarioError
from llm_test_provider.strict_profiles import PROFILES


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m llm_test_provider", description="Serve a scripted model.")
    parser.add_argument("scenario", type=Path)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT)
    parser.add_argument("--strict", choices=list(PROFILES), help="refuse what this provider refuses")
    given = parser.parse_args()
    try:
        run_provider(given.scenario, given.host, given.port, strict=given.strict)
    except (ScenarioError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
