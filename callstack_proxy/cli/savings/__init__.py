"""`callstack savings`: replays the sessions that agents have written on this machine, and says what the proxy would
have saved."""

from callstack_proxy.cli.savings.command import savings
