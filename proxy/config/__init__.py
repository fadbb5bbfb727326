"""The configuration: one frozen model and its sections. Import `runtime`, what can change at run time, and `for_core`
by their names: they need the store and the tools, and reading a configuration does not."""

from proxy.config.model import Config, is_loopback
from proxy.config.sections import (
    MAX_COUNT,
    Budgets,
    CacheKeepAliveSettings,
    FrontSettings,
    Mode,
    NetworkSettings,
    OtelSettings,
    SubagentSettings,
    SummarySettings,
    Switch,
    UpstreamSettings,
    WireFormat,
)
