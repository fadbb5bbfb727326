"""How much the proxy decides about frames: what a path shows, what that is worth, and what comes of it (S1-81 to
S1-96).

    signals      what the work of the active frame shows, taken from traffic
    heuristics   seven scores from 0 to 100, four for a push and three for a pop
    rules        how far the proxy goes, and from which figures on
    combining    one figure of several scores
    suggesting   whether something is suggested, and in which words
    acting       whether the proxy does it by itself

The law: **nothing is done that would not also be explained**: each figure comes with what it was made of.

What this package does not do: it reads no configuration, tells no model anything and records nothing
(`proxy.suggesting` does).
"""
