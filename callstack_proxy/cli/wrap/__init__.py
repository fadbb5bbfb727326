"""`callstack wrap AGENT`: starts a coding agent through the proxy, with nothing to configure.

`command` is the command line, `agents` are the agents, `own_settings` reads where an agent's own settings point
now, `shared_proxy` starts a proxy or joins the one that runs, `agent_process` runs the agent, `explainer` answers in
place of a proxy that died. `on_off` are the commands for people who want it always: `lasting_settings` knows what to
write, `settings_text` changes a value in a text and leaves the rest.
"""

from callstack_proxy.cli.wrap.agents import Agent, Launch, LaunchSettings, any_command
from callstack_proxy.cli.wrap.own_settings import OwnProvider, Surroundings
