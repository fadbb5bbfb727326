"""`python -m llm_test_provider SCENARIO.yaml [--host HOST] [--port PORT]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from llm_test_provider.cli import DEFAULT_PORT, run_provider
from llm_test_provider.scenario import ScenarioError


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m llm_test_provider", description="Serve a scripted model.")
    parser.add_argument("scenario", type=Path)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT)
    given = parser.parse_args()
    try:
        run_provider(given.scenario, given.host, given.port)
    except (ScenarioError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
