"""The loggers above all others of ours: the engine's, and that of everything beside it."""

import logging

LOGGERS = (logging.getLogger("proxy"), logging.getLogger("callstack_proxy"))


def set_log_level(level: int | str) -> None:
    """Log from this level on."""
    for logger in LOGGERS:
        logger.setLevel(level)
