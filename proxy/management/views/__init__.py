"""What people look at, as plain dicts that are JSON: the `/stack` API and the command line show the same ones.

    lookup.py         finding a conversation or a frame, and the path it lives on
    conversations.py  rows, threads, frames, the state of a conversation
    logs.py           everything a frame did, oldest first
    requests.py       what a client sent, what was sent for it, what it cost
    difference.py     a client's body against each body sent
    totals.py         receipts added up
    health.py         whether requests are welcome
    past.py           a conversation as it was at a time
    noted.py          decisions and artifacts, with the times between which they held
    resume.py         where the work stands
    tasks.py          frames as tasks and as edges
    contexts.py       what is on a line and what left it
    subagents.py      conversations that others began
    shapes.py         the types of all of it

The law: **whose it is comes with every question**. A scope is a tenant, or None for an operator who sees all; what
belongs to somebody else does not exist, and is answered in the same words as what never did.

What these modules do not do: they write nothing, and they know neither HTTP nor a terminal.
"""
