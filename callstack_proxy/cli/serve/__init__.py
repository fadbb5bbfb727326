"""`callstack serve`, and `callstack console`, which shows what is stored where no proxy runs. Nothing is imported here,
because the link to a console that runs needs no server.

signatures.py  the options of both, and the link to the console
command.py     one proxy in this process, until a signal
workers.py     several processes behind one port, on a store that they share
"""
