"""`callstack demo`: a scripted coding agent works through the proxy, against a scripted provider, on this machine.

    run.py        starts the parts, drives the session, says what came of it: read this first
    session.py    what the user asks and what the model answers, in order
    model.py      the model: gives those answers, knows which frames it opened, checks what it is told
    agent.py      an ordinary OpenAI client with file, shell and todo tools; knows nothing of frames
    workspace.py  the project it works on; entities.py and records.py write its files
    backstage.py  the proxy as a process, and what its pages say
    screen.py     rows, tree and sums on the terminal

The law: **the demo checks itself**. Every answer the agent gets must be the one the model gave, no trace of the proxy
may be in it, and what is recalled must be what was read. Anything else ends it with exit code 1.
"""

from proxy.cli.demo.run import DemoOptions, run_demo

__all__ = ["DemoOptions", "run_demo"]
