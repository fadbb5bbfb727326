"""The configuration: one frozen model, its sections, where settings come from, and what can change at run time."""

from proxy.config.model import Config, is_loopback
from proxy.config.runtime import (
    SETTABLE_KEYS,
    SUBAGENT_SECTION,
    LiveSettings,
    pattern_faults,
    subagent_rules_of,
    with_pattern,
    without_pattern,
)
from proxy.config.sections import (
    MAX_COUNT,
    CacheKeepAliveSettings,
    FrontSettings,
    Mode,
    NetworkSettings,
    SubagentSettings,
    SummarySettings,
    Switch,
    UpstreamSettings,
    WireFormat,
)
from proxy.config.sources import load_config, parse_assignments
