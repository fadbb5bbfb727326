"""A conversation as files that others read, and back from those that say enough.

    formats.py    the formats by name, and what each is made of
    material.py   what all of them are made from, read from the store once
    items.py      every message once, oldest first, with the frame that owns it now
    whole.py      `ledger`: nothing left out, nothing added; it comes back exactly
    layout.py     `stack`: state.json, one file and one log for each frame
    jetbox.py     `jetbox`: goal, tasks and subtasks; actions; repetitions
    handover.py   `handover`: what whoever goes on has to know, in Markdown
    messages.py   `messages`: a request body that any client can go on with
    flames.py     `speedscope` and `collapsed`: tokens, money and time by frame
    spans.py      `otel`: spans by the GenAI conventions, as OTLP in JSON
    credentials.py     what of a client's body leaves no export
    writing.py         files into a folder, an archive, or a stream
    reading.py         files of a folder or an archive, and what is wrong with them
    told_by_layout.py  what the files of `stack` say, told_by_jetbox.py those of `jetbox`
    rebuilding.py      a ledger made again from a state and what was said
    importing.py       which format this is, and what goes to the store

The laws: **an export holds what was said and no key to anything**: no tenant, no credential, no secret of the store.
**It is made piece by piece**: beside the conversation itself, one piece and a list of what is to come are in memory.
**An import is one transaction**: all of it or nothing.

What this package does not do: it knows neither HTTP nor a terminal, and it never changes what it exports.
"""

from proxy.management.export import files
from proxy.management.export.flamegraph import MEASURES
from proxy.management.export.formats import FORMATS, ExportFormat, ExportOptions, format_named, measure_named
from proxy.management.export.importer import ImportResult, import_conversation
from proxy.management.export.source import ExportInput, load_export_input

__all__ = [
    "FORMATS",
    "MEASURES",
    "ExportFormat",
    "ExportInput",
    "ExportOptions",
    "ImportResult",
    "files",
    "format_named",
    "import_conversation",
    "load_export_input",
    "measure_named",
]
