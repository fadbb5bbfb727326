"""Reads symbols from code with tree-sitter, in a child process; optional (`pip install 'callstack-proxy[map]'`)."""

from callstack_proxy.management.treesitter.worker_client import installed_languages, symbols_by_grammar
