"""To be written."""

from proxy.management.treesitter.worker_client import installed_languages, symbols_by_grammar

__all__ = ["installed_languages", "symbols_by_grammar"]
