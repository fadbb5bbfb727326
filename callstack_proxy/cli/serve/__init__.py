"""`callstack serve`, and `callstack console`, which shows what is stored where no proxy runs. Nothing is imported here,
because the link to a console that runs needs no server.

command.py  one proxy in this process, until a signal
console.py  the link to the console
workers.py  several processes behind one port, on a store that they share
"""
