"""Exports a conversation in several formats, and imports it from those that hold enough.

An export contains no tenant, no credential and no secret of the store, and is produced piece by piece. An import is one
transaction. `export_formats` has the formats, ours and those of other packages; each is one
value of `ExportFormat`.
"""

from callstack_proxy.management.export import files
from callstack_proxy.management.export.base import ExportFile, ExportFormat, ExportOptions
from callstack_proxy.management.export.export_formats import export_formats, format_named, measure_named
from callstack_proxy.management.export.flamegraph import MEASURES
from callstack_proxy.management.export.importer import ImportResult, import_conversation
from callstack_proxy.management.export.source import ExportInput, load_export_input
