"""`python -m proxy`: the program, by the name of the package that people import. It stands beside the engine, which
imports nothing of it."""

import runpy

if __name__ == "__main__":
    runpy.run_module("callstack_proxy", run_name="__main__")
