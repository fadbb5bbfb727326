"""`callstack serve`, and `callstack console`, which shows what is stored where no proxy runs.

command.py  one proxy in this process, until a signal
workers.py  several processes behind one port, on a store that they share
"""

from callstack_proxy.cli.serve.command import console, reachable_url, serve, welcome_lines
