"""The script of the demo: the tasks of the user and every answer of the model, in order.

Answers may call stack tools. The model leaves those calls out while it is not offered any: the conversation is still
small, or there is no proxy. The script names a frame by its title; `DemoModel` finds the id in the tool results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from callstack_proxy.cli.demo.project import read_written_file

SYSTEM = """\
You are a coding agent in a terminal. You work on the project in the current folder with the tools you are given, one
step at a time. Read before you write. After a change, run the tests that concern it. Where a task has several parts,
keep a todo list of them up to date: it is what the user looks at. Never claim that something works before you have
seen it work. Answer in a few sentences, name files by their path, and say what is still open.
"""


@dataclass(frozen=True, slots=True)
class FrameByTitle:
    """A placeholder for the id of the frame with this title."""

    title: str


Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DemoCall:
    name: str
    arguments: Arguments


@dataclass(frozen=True, slots=True)
class DemoAnswer:
    """One answer of the model. `expected_recall` must be part of the results of its calls."""

    text: str = ""
    calls: tuple[DemoCall, ...] = ()
    expected_recall: str = ""


@dataclass(frozen=True, slots=True)
class DemoTask:
    user: str
    answers: tuple[DemoAnswer, ...]


# ------------------------------------------------------------------------------------------------- pieces of its edits
HALF_UP = "return amount.quantize(CENT, ROUND_HALF_UP)"
HALF_EVEN = 'return amount.quantize(CENT, "ROUND_HALF_EVEN")'
TAX_BY_LINE = """\
def tax(lines: Iterable[Line]) -> Decimal:
    return sum((cents(line.net * line.rate) for line in lines), Decimal("0.00"))
"""
TAX_PER_RATE = """\
def tax(lines: Iterable[Line]) -> Decimal:
    \"\"\"Tax of all lines, rounded once per rate: that is how the ledger does it.\"\"\"
    net: dict[Decimal, Decimal] = {}
    for line in lines:
        net[line.rate] = net.get(line.rate, Decimal("0.00")) + line.net
    return sum((cents(amount * rate) for rate, amount in net.items()), Decimal("0.00"))
"""
DAYS_LATE_PLAIN = '"days_late": str((today - invoice.due).days),'
DAYS_LATE_CLAMPED = '"days_late": str(max(0, (today - invoice.due).days)),'
MATCHING_PATTERN = (
    'INVOICE = re.compile(r"INV-\\d{5}")',
    'INVOICE = re.compile(r"\\bINV[- ]?(\\d{5})\\b", re.IGNORECASE)',
)
MATCHING_RETURN = (
    "return found.group(0) if found else None",
    'return f"INV-{found.group(1)}" if found else None',
)
ONE_REFERENCE = """\
    def test_no_number(self) -> None:
"""
MORE_REFERENCES = """\
    def test_the_three_ways_customers_garble_it(self) -> None:
        for typed in ("inv-17004", "INV 17004", "INV17004", "Re. inv 17004 thanks"):
            self.assertEqual(invoice_in(typed), "INV-17004")

    def test_a_longer_number_is_somebody_elses(self) -> None:
        self.assertIsNone(invoice_in("INV-170045"))

    def test_no_number(self) -> None:
"""


# --------------------------------------------------------------------------------------------------- words of the model
def says_and_calls(text: str, *calls: DemoCall) -> DemoAnswer:
    return DemoAnswer(text, calls)


def says(text: str) -> DemoAnswer:
    return DemoAnswer(text)


def read(path: str) -> DemoCall:
    return DemoCall("read_file", {"path": path})


def write(path: str, content: str) -> DemoCall:
    return DemoCall("write_file", {"path": path, "content": content})


def add_file(path: str) -> DemoCall:
    """Writes the file that `files/written` keeps at this path."""
    return write(path, read_written_file(path))


def edit(path: str, old: str, new: str) -> DemoCall:
    return DemoCall("edit_file", {"path": path, "old": old, "new": new})


def shell(command: str) -> DemoCall:
    return DemoCall("shell", {"command": command})


def search(pattern: str, path: str) -> DemoCall:
    return DemoCall("search", {"pattern": pattern, "path": path})


def todo(*items: str) -> DemoCall:
    """Items as `x done`, `> in progress` or `  open`."""
    states = {"x": "completed", ">": "in_progress", " ": "pending"}
    return DemoCall("todo_write", {"items": [{"content": item[2:], "status": states[item[0]]} for item in items]})


def push(title: str, criteria: str, **more: Any) -> DemoCall:
    return DemoCall("stack_frame_push", {"title": title, "successCriteria": criteria, **more})


def pop(results: str, status: str = "completed") -> DemoCall:
    return DemoCall("stack_frame_pop", {"status": status, "results": results})


def plan(**criteria_by_title: str) -> DemoCall:
    children = [
        {"title": title.replace("_", " "), "successCriteria": criteria} for title, criteria in criteria_by_title.items()
    ]
    return DemoCall("stack_frame_plan", {"children": children})


def activate(title: str) -> DemoCall:
    return DemoCall("stack_frame_activate", {"sessionID": FrameByTitle(title)})


def recall(title: str, found: str, **more: Any) -> DemoAnswer:
    return DemoAnswer("", (DemoCall("stack_recall", {"ref": FrameByTitle(title), **more}),), found)


def run_tests(name: str = "") -> DemoCall:
    return shell(f"python -m unittest -v {name}".strip())


# ------------------------------------------------------------------------------------------------------------ the tasks
LOOK_AROUND = DemoTask(
    "Hi! You are new to this repository. Have a look around: what is in it, how is it built, are the tests green? "
    "Please don't change anything yet.",
    (
        says_and_calls(
            "I'll start with the layout.",
            todo("> Find the layout", "  Read the modules", "  Read and run the tests"),
            DemoCall("list_files", {"path": "."}),
        ),
        says_and_calls("", read("README.md")),
        says_and_calls(
            "One module for each kind of record. Four of them with their tests, then the names in the others.",
            todo("x Find the layout", "> Read the modules", "  Read and run the tests"),
            read("billing/subscriptions.py"),
            read("tests/test_subscriptions.py"),
        ),
        says_and_calls("", read("billing/shipments.py"), read("tests/test_shipments.py")),
        says_and_calls("", read("billing/discounts.py"), read("tests/test_discounts.py")),
        says_and_calls("", read("billing/credit_notes.py"), read("tests/test_credit_notes.py")),
        says_and_calls("", search("^class |^ *def ", "billing")),
        says_and_calls(
            "Now the tests.",
            todo("x Find the layout", "x Read the modules", "> Read and run the tests"),
            search("^class |^ *def test_", "tests"),
        ),
        says_and_calls("", read("tests/test_customers.py"), read("tests/test_invoices.py")),
        says_and_calls("", run_tests()),
        says_and_calls("All that fails is in one file.", run_tests("tests.test_totals")),
        says_and_calls("", todo("x Find the layout", "x Read the modules", "x Read and run the tests")),
        says(
            "This is a small billing system in plain Python: one module per kind of record with the same shape "
            "(dataclass, `validate`, `from_row`/`to_row`, repository), plus `billing/money.py`, `billing/totals.py` "
            "and `billing/matching.py`. Of its tests all pass but three in `tests/test_totals.py`: they want tax "
            "rounded once per rate. I changed nothing."
        ),
    ),
)

CENTS = DemoTask(
    "The ledger warns about cents every single night, see logs/. Find out how much it is, fix the cause, and prove on "
    "the logged nights that the fix agrees with the ledger.",
    (
        says_and_calls(
            "",
            plan(
                Measure_the_damage="number of invoices and sum of cents, for each logged night",
                Fix_the_rounding="all of tests/test_totals.py passes, nothing else breaks",
                Prove_it_on_the_logs="the new code gives what the ledger expected, for every logged invoice",
            ),
        ),
        says_and_calls("", activate("Measure the damage")),
        says_and_calls(
            "Three steps: measure, fix, prove.",
            read("logs/nightly-2026-11-17.log"),
        ),
        says_and_calls(
            "The 17th shows the pattern. The other two nights apart from this.",
            push("Read the other nights", "the nights of the 18th and 19th are read and compared with the 17th"),
            read("logs/nightly-2026-11-18.log"),
        ),
        says_and_calls("", read("logs/nightly-2026-11-19.log")),
        says_and_calls("", search("WARNING ledger", "logs")),
        says_and_calls(
            "",
            pop(
                "All three nights show one pattern: the ledger expects tax rounded once on the sum, we post tax "
                "rounded per line. Off by one to three cents, in both directions, only for invoices with several lines "
                "(logs/nightly-2026-11-18.log, logs/nightly-2026-11-19.log). No other kind of warning."
            ),
        ),
        says_and_calls("I'll count it with a script.", add_file("tools/damage.py")),
        says_and_calls("", shell("python tools/damage.py")),
        says_and_calls(
            "",
            pop(
                "49 invoices in three nights are off: 18 on the 17th, 13 on the 18th, 18 on the 19th. Counted by "
                "tools/damage.py from the WARNING lines. Cause: billing/totals.py rounds tax per line."
            ),
            activate("Fix the rounding"),
        ),
        says_and_calls(
            "Now the cause.", read("billing/totals.py"), read("billing/money.py"), read("tests/test_totals.py")
        ),
        says_and_calls(
            "",
            push("Round half to even", "tests/test_totals.py passes with banker's rounding in billing/money.py"),
        ),
        says_and_calls("First the smallest change: banker's rounding.", edit("billing/money.py", HALF_UP, HALF_EVEN)),
        says_and_calls("", run_tests("tests.test_totals")),
        says_and_calls(
            "That breaks `test_half_a_cent_goes_up` and repairs nothing. Back.",
            edit("billing/money.py", HALF_EVEN, HALF_UP),
        ),
        says_and_calls("", run_tests()),
        says_and_calls(
            "",
            pop(
                "Banker's rounding does not help: test_tax_is_rounded_once_not_line_by_line still fails, and "
                "test_half_a_cent_goes_up fails in addition. billing/money.py is back to ROUND_HALF_UP. The mode is "
                "right, the place is wrong: tax has to be summed per rate before it is rounded.",
                "failed",
            ),
            push(
                "Round once per rate",
                "tests/test_totals.py passes, tax is rounded on the net sum of each rate",
                retry_of=FrameByTitle("Round half to even"),
            ),
        ),
        says_and_calls(
            "So the place, not the mode: sum the net per rate, then round.",
            edit("billing/totals.py", TAX_BY_LINE, TAX_PER_RATE),
        ),
        says_and_calls("", run_tests("tests.test_totals")),
        says_and_calls("All six pass. Now everything.", run_tests()),
        says_and_calls("", read("billing/totals.py")),
        says_and_calls(
            "",
            pop("tax() in billing/totals.py sums net per rate and rounds once per rate. tests/test_totals.py passes."),
            pop("Fixed in billing/totals.py (tax per rate). The attempt with banker's rounding failed and was undone."),
            activate("Prove it on the logs"),
        ),
        says_and_calls("A replay of the logged nights.", add_file("tools/replay.py")),
        says_and_calls("", shell("python tools/replay.py")),
        says_and_calls("", pop("tools/replay.py: all 138 logged invoices agree with the ledger. Nothing is open.")),
        says(
            "Done. In three nights 49 of 138 invoices were off by some cents, because `tax()` in `billing/totals.py` "
            "rounded on every line; it now rounds once per rate. `tools/replay.py` shows that all 138 logged invoices "
            "agree with the ledger. Banker's rounding was a dead end and is undone."
        ),
    ),
)

OPEN_ITEMS = DemoTask(
    "Accounting needs an export of open items as described in docs/export-format.md, with --since. With tests, please.",
    (
        says_and_calls(
            "The format first.",
            todo("> Settle what the columns mean", "  Write the export", "  Test the export"),
            read("docs/export-format.md"),
        ),
        says_and_calls("", read("billing/invoices.py"), read("billing/customers.py")),
        says_and_calls("", push("Agree on days late", "it is clear how days late are counted elsewhere in billing/")),
        says_and_calls("How are late days counted elsewhere?", search("overdue", "billing")),
        says_and_calls("", read("billing/disputes.py"), read("tests/test_disputes.py")),
        says_and_calls(
            "",
            pop(
                "is_overdue() compares due < today, a record due today is not late. So days late are today - due in "
                "whole days. The format wants 0 where not late: watch for negative values (billing/disputes.py has "
                "none because it only lists late ones)."
            ),
        ),
        says_and_calls(
            "",
            todo("x Settle what the columns mean", "> Write the export", "  Test the export"),
            add_file("billing/export.py"),
        ),
        says_and_calls(
            "",
            todo("x Settle what the columns mean", "x Write the export", "> Test the export"),
            add_file("tests/test_export.py"),
        ),
        says_and_calls("", run_tests("tests.test_export")),
        says_and_calls(
            "Negative days for what is not due yet; exactly what I wanted to avoid. Are days counted anywhere else?",
            search("\\.days", "."),
        ),
        says_and_calls("", edit("billing/export.py", DAYS_LATE_PLAIN, DAYS_LATE_CLAMPED)),
        says_and_calls("", run_tests("tests.test_export")),
        says_and_calls("And everything together.", run_tests()),
        says_and_calls("", todo("x Settle what the columns mean", "x Write the export", "x Test the export")),
        says(
            "`export_open_items` in `billing/export.py` writes open items in the order and format of "
            "`docs/export-format.md`; `since` leaves out what was opened before. Days late were negative at first and "
            "are clamped at 0. Five tests in `tests/test_export.py`, all green. Open: nothing calls it yet."
        ),
    ),
)

BANK = DemoTask(
    "Next task: in data/bank-2026-11.csv we match far too few references automatically. Look at what customers really "
    "type and improve the matching.",
    (
        says_and_calls(
            "", push("Match garbled references", "clearly more than half of the statement is matched, tests pass")
        ),
        says_and_calls("The statement, and what we do with it.", read("data/bank-2026-11.csv")),
        says_and_calls("", read("billing/matching.py"), read("tests/test_matching.py")),
        says_and_calls("", add_file("tools/matched.py")),
        says_and_calls("", shell("python tools/matched.py")),
        says_and_calls(
            "", push("Sort what is not matched", "the forms that are not matched are known, with an example each")
        ),
        says_and_calls("What do the others look like?", search("inv-1|INV 1|INV1", "data")),
        says_and_calls("", read("billing/payments.py"), read("tests/test_payments.py")),
        says_and_calls(
            "",
            pop(
                "Three forms are not matched: lower case (inv-17004), a space (INV 17004), nothing at all (INV17004). "
                "Words around the number do no harm. payments.py stores the reference as it came, so only "
                "billing/matching.py has to change."
            ),
        ),
        says_and_calls("", edit("billing/matching.py", MATCHING_PATTERN[0], MATCHING_PATTERN[1])),
        says_and_calls("", edit("billing/matching.py", MATCHING_RETURN[0], MATCHING_RETURN[1])),
        says_and_calls("", edit("tests/test_matching.py", ONE_REFERENCE, MORE_REFERENCES)),
        says_and_calls("", run_tests("tests.test_matching"), shell("python tools/matched.py")),
        says_and_calls("", run_tests()),
        says_and_calls(
            "",
            pop(
                "billing/matching.py reads INV with hyphen, space or nothing, in any case, and gives the number in its "
                "plain form. All 120 rows of data/bank-2026-11.csv are matched (tools/matched.py); "
                "tests/test_matching.py covers the three forms."
            ),
        ),
        says(
            "Customers type `inv-17004`, `INV 17004` and `INV17004`; `billing/matching.py` now reads all of them, and "
            "every one of the 120 rows is matched. Tests are in `tests/test_matching.py`."
        ),
    ),
)


REVIEW = DemoTask(
    "Another thing: the rounding mistake may have siblings. Check the other modules that handle amounts.",
    (
        says_and_calls(
            "Where is anything rounded at all?",
            todo("> Find where amounts are rounded", "  Find where amounts are computed", "  Run all tests"),
            search("cents\\(|quantize", "billing"),
        ),
        says_and_calls(
            "",
            todo("x Find where amounts are rounded", "> Find where amounts are computed", "  Run all tests"),
            search("sum\\(", "billing"),
        ),
        says_and_calls("", search(" [*/] ", "billing")),
        says_and_calls("", search("round|ROUND", ".")),
        says_and_calls("And by hand, nobody writes cents?", search("0\\.01|/ 100", "billing")),
        says_and_calls("The logged nights once more.", shell("python tools/replay.py")),
        says_and_calls(
            "Nothing so far; once more the whole suite.",
            todo("x Find where amounts are rounded", "x Find where amounts are computed", "> Run all tests"),
            run_tests(),
        ),
        says_and_calls(
            "", todo("x Find where amounts are rounded", "x Find where amounts are computed", "x Run all tests")
        ),
        says(
            "No siblings: credit notes, subscriptions, discounts, payments and shipments only compare an amount with "
            "its own `cents()` and refuse fractions, and sums are of whole cents, so nothing can be rounded twice. All "
            "tests pass; I changed nothing."
        ),
    ),
)


def wrap_up(old_lines: str, warning: str, number: str) -> DemoTask:
    """The last task recalls what left the context long ago: `old_lines` of a log, and its `warning` about the invoice
    with this `number`."""
    return DemoTask(
        "Write a short letter to accounting about the cents (docs/letter.md), with one real example from the night of "
        "the 19th as the log has it, and a changelog. Then we are done.",
        (
            recall("Read the other nights", old_lines),
            recall("Read the other nights", warning, query=number),
            says_and_calls(
                "I have the lines of that night again.",
                write("docs/letter.md", read_written_file("docs/letter.md").replace("EXAMPLE", warning)),
            ),
            says_and_calls("", push("Release notes", "CHANGELOG.md names every change a user notices, with its file")),
            says_and_calls("What changed, file by file.", DemoCall("list_files", {"path": "."})),
            says_and_calls("And do the figures still hold?", shell("python tools/replay.py")),
            says_and_calls("", shell("python tools/matched.py")),
            says_and_calls("", add_file("CHANGELOG.md")),
            says_and_calls("", run_tests()),
            says_and_calls(
                "",
                pop("CHANGELOG.md lists three changes: tax per rate, export of open items, matching. All tests pass."),
            ),
            says(
                "`docs/letter.md` quotes the ledger's own line about one invoice, and `CHANGELOG.md` lists the three "
                "changes. All tests pass."
            ),
        ),
    )


GOODBYE = DemoTask(
    "Thanks! Remind me: how many invoices were off in the night of the 19th?",
    (says("18 of 46, in the night of 19 November."),),
)


def tasks(old_lines: str, warning: str, number: str) -> tuple[DemoTask, ...]:
    """The whole session."""
    return (LOOK_AROUND, CENTS, OPEN_ITEMS, BANK, REVIEW, wrap_up(old_lines, warning, number), GOODBYE)
