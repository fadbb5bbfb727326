"""`callstack top`: conversations and the frames of one of them on the terminal, as they change.

command.py  reads the store again and again, and the keyboard
screen.py   what is shown, as lines for a size of the terminal
"""

from callstack_proxy.cli.top.command import top
