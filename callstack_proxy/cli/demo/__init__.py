"""`callstack demo`: a scripted coding agent works through the proxy, against a scripted provider, on this machine.

run.py            starts the parts, drives the session, checks every answer: read this first
session.py        what the user asks and what the model answers, in order
model.py          the model: gives those answers, learns the ids of its frames, checks what it recalls
agent.py          an ordinary OpenAI client with file, shell and todo tools; knows nothing of frames
project.py        the project the agent works on, and files/ with its files
proxy_process.py  the proxy as a process
screen.py         rows, tree and sums on the terminal
"""

from callstack_proxy.cli.demo.run import DemoOptions, run_demo
