"""What an item of a plan is said to have brought: outcomes, never announcements."""

import pytest

from proxy.core.frames import announced_part, outcome_part, results_of_item


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Now let me update main.go.", ""),
        ("I'll extend the parser.", ""),
        (
            "Good, the filter package doesn't exist yet. Let me create it.",
            "Good, the filter package doesn't exist yet.",
        ),
        ("Good. Now the tests:", ""),
        ("Perfect! Next, update the call.", ""),
        ("The tests pass now. Moving on to the docs.", "The tests pass now."),
        ("Now the tests pass.", "Now the tests pass."),
        ("Gut, als Nächstes die Dokumentation.", ""),
        ("Die Tests sind grün, jetzt aktualisiere ich die README.", "Die Tests sind grün"),
        ("Ich habe den Parser korrigiert. Ich werde jetzt die Tests anpassen.", "Ich habe den Parser korrigiert."),
        ("Les tests passent. D'abord, je vérifie les appels.", "Les tests passent."),
        ("Je vais maintenant corriger le parseur.", ""),
        ("Préparé et testé : 12 tests passent.", "Préparé et testé : 12 tests passent."),
        ("Las pruebas pasan, ahora voy a documentarlo.", "Las pruebas pasan"),
        ("He corregido el analizador. Añadiré una prueba.", "He corregido el analizador."),
        ("Os testes passam. Agora vou atualizar a documentação.", "Os testes passam."),
        ("Ho corretto il parser. Fammi controllare il file.", "Ho corretto il parser."),
        ("测试通过了。接下来我更新文档。", "测试通过了。"),
        ("テストは通りました。次に呼び出し元を確認します。", "テストは通りました。"),
        ("空の入力では失敗します。", "空の入力では失敗します。"),
        ("I need to update the signature.", ""),
        ("The parser's tests pass. I close this task and run the whole suite once more.", "The parser's tests pass."),
        ("All 4 pass. I mark it as done and turn to the docs.", "All 4 pass."),
        ("Two causes: a and b. I note them and take the parser first.", "Two causes: a and b."),
        ("3 passed. I read the caller and check it again.", "3 passed."),
        ("12 passed. We proceed to the docs.", "12 passed."),
        ("Ich habe es behoben. Ich markiere den Punkt als erledigt.", "Ich habe es behoben."),
        ("I close the file in a finally block.", "I close the file in a finally block."),
        ("I added a lock and test it in b.py.", "I added a lock and test it in b.py."),
        ("I put the lock around it and the tests pass.", "I put the lock around it and the tests pass."),
        ("We have added a flag. Shall I go on?", "We have added a flag."),
        ("Great, all 12 tests pass.", "Great, all 12 tests pass."),
        ("grouping.py:265 passes extend=True. 461 passed.", "grouping.py:265 passes extend=True. 461 passed."),
        ("", ""),
        ("Marking the last task.", ""),
        ("Running the tests now:", ""),
        ("I'm marking it as done now.", ""),
        ("I also need to move the helper.", ""),
        ("Need to update that:", ""),
        ("Actually, let me look at the caller first.", ""),
        ("Wait, I need to export `load` first:", ""),
        ("Now check the two callers - those have a fifth argument:", ""),
        ("Now build and test:", ""),
        ("Update the docs:", ""),
        ("Here's the final diff:", ""),
        ("Since the flag belongs to the parser, I'll look there.", ""),
        ("Before that, let me look at `a.py`.", ""),
        ("Good to know — I'll fix it.", ""),
        ("The cause is a cache — let me remove it.", "The cause is a cache"),
        ("Both callers pass it, so I'll drop the default.", "Both callers pass it"),
        ("The parser is in a.py and I'll extend it.", "The parser is in a.py"),
        ("Adding the lock fixes it: 12 passed.", "Adding the lock fixes it: 12 passed."),
        ("Parsing works. Let me commit.", "Parsing works."),
        ("Nothing to change in b.py.", "Nothing to change in b.py."),
        ("Missing import in b.py.", "Missing import in b.py."),
        ("Now all callers use the helper.", "Now all callers use the helper."),
        ("Nothing is left, as we will see in the log.", "Nothing is left, as we will see in the log."),
        ("The first order is done; next the changelog.", "The first order is done"),
        ("The first order is done, and now the list and README.", "The first order is done"),
        ("11 pass. Next mypy, and the place of the second order.", "11 pass."),
        ("Both pass. Now README.md and the list.", "Both pass."),
        ("Then the callers.", ""),
        ("Now correct and green.", "Now correct and green."),
        ("Next mypy passes.", "Next mypy passes."),
        ("mypy is not installed, so I check with ruff instead and compile.", "mypy is not installed"),
        ("I recall what I had read of the parser, and check for the name.", ""),
        ("The patch split a test. I look at it before I mend it.", "The patch split a test."),
        ("I read both modules; nothing else calls it.", "I read both modules; nothing else calls it."),
        ("The list has duplicates, so I keep each name once.", "The list has duplicates, so I keep each name once."),
        ("14 pass. README has to be read again for its line.", "14 pass."),
        ("14 pass, the parser still needs to be documented.", "14 pass"),
        ("The list has to be sorted by the caller.", "The list has to be sorted by the caller."),
        ("It has to be closed before it is read.", "It has to be closed before it is read."),
        ("Two old findings; looking which they are.", "Two old findings"),
        ("Reading the places as they are now.", ""),
        ("Now I can edit the page.tsx file:", ""),
        ("Now I can see that it passes.", "Now I can see that it passes."),
    ],
)
def test_an_announcement_says_no_outcome(text: str, told: str) -> None:
    assert outcome_part(text) == told


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize(
    ("texts", "closing", "told"),
    [
        (
            ["I look around.", "The loop starts at 1."],
            "It starts at 0 now; 5 passed. Next: docs.",
            "It starts at 0 now; 5 passed.",
        ),
        (["The loop starts at 1."], "Now let me write the docs.", "The loop starts at 1."),
        (["It reads two files.", "The bug is in the loop: it starts at 1."], "", "It reads two files."),
        (["The bug in the loop is fixed."], "", "The bug in the loop is fixed."),
        (["Let me look."], "I'll go on.", ""),
        (["RESULT: a flag", "It works."], "Done it all.", "a flag"),
        ([], "", ""),
        (["The flag is read in two places."], "Marking the last task.", "The flag is read in two places."),
        (["Let me run the tests", "Running them now."], "", ""),
        (
            ["All tests pass. Now let me run the linter:", "The old findings are no news. Let me see b.py:"],
            "",
            "All tests pass.",
        ),
        (["Lint passes. Now the tests:", "Two tests fail: a missing comma. Let me mend it."], "", ""),
        (
            ["All tests pass. Now the docs:"],
            "The docs build fails with a broken link.",
            "The docs build fails with a broken link.",
        ),
        (["All 12 pass. I go on."], "Two tests still fail, the others pass.", "Two tests still fail, the others pass."),
        (
            ["All 12 pass. I go on."],
            "I fixed the parser, but the linter fails.",
            "I fixed the parser, but the linter fails.",
        ),
        (
            ["All 12 pass. I go on."],
            "The bug in the loop is fixed.",
            "All 12 pass.\nThe bug in the loop is fixed.",
        ),
        ([f"Part {n} is fixed. Next." for n in range(9)], "", "\n".join(f"Part {n} is fixed." for n in range(3, 9))),
        (["I now see how it is done. Let me write it."], "", ""),
        (["Plan: read main.go to pass the preference. Let me write it."], "", ""),
        (["# Plan\n" + "1. The tests pass the flag.\n" * 20 + "Shall I go on?"], "", ""),
        (["The tests do not pass yet. Let me look."], "", ""),
        (
            ["I look first.", "a.py is fixed: 12 passed. Now b.py:", "b.py is fixed too, 5 passed.", "I go on."],
            "Both are documented in README. Next: the release.",
            "a.py is fixed: 12 passed.\nb.py is fixed too, 5 passed.\nBoth are documented in README.",
        ),
        (["a.py is fixed.", "The last file is fixed."], "", "a.py is fixed.\nThe last file is fixed."),
        (["All 12 pass."], "The leak couldn\u2019t be fixed.", "The leak couldn\u2019t be fixed."),
        (
            ["a.py is fixed.", "One test still fails.", "Mended: 12 passed."],
            "All is green.",
            "Mended: 12 passed.\nAll is green.",
        ),
    ],
)
def test_results_of_an_item_are_what_its_texts_say_came_of_it(texts: list[str], closing: str, told: str) -> None:
    assert results_of_item(texts, closing) == told


@pytest.mark.rows("S0-55")
def test_a_remark_on_an_output_is_no_result_of_an_item_that_changed_files() -> None:
    remark = "Good, `os` is still needed for `os.Args`. Now let me update main.go."

    assert results_of_item([], remark) == "Good, `os` is still needed for `os.Args`."
    assert results_of_item([], remark, changed_files=True) == ""
    assert results_of_item([], "Good, all 12 tests pass.", changed_files=True) == "Good, all 12 tests pass."
    assert results_of_item(["OK, it is there."], "a.py: 1 -> 0", changed_files=True) == "a.py: 1 -> 0"
    assert results_of_item(["The flag is in a.py."], remark, changed_files=True) == "The flag is in a.py."


@pytest.mark.rows("S0-55")
def test_the_parts_of_a_text_keep_its_lines() -> None:
    text = "The order is:\n\n1. a.py\n2. b.py\n\nLet me go on."

    assert outcome_part(text) == "The order is:\n\n1. a.py\n2. b.py"
    assert announced_part(text) == "Let me go on."
