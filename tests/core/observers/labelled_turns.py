# ruff: noqa: RUF001  full-width marks belong to the languages written here
"""Scripts of sessions, each a turn before and what the user says next: labelled by hand."""

from __future__ import annotations

from typing import NamedTuple


class Pair(NamedTuple):
    """What began the turn, what closed it, and what the user says then."""

    before: str
    closing: str
    text: str


LOGIN = ("Add a login form to the shop", "I added src/login.tsx with a form and a test. All tests pass.")
ASKED = ("Add a login form to the shop", "The form stands. Should I also wire it to the session store?")
PARSER = (
    "Why does the parser crash on empty input?",
    "`parse()` in parser.py reads `tokens[0]` without a check. Fixed.",
)
OFFERED = ("Speed up the report query", "The query now uses an index: 40 ms. Is there anything else I can do for you?")
CHOICE = (
    "How should we cache the rates?",
    "There are two ways:\n\n1. In memory\n2. In Redis\n\nWhich option do you prefer?",
)
DEPLOY = ("Deploy the staging server", "Staging runs version 1.4.2 now; the health check answers.")
GERMAN = ("Füge dem Shop ein Anmeldeformular hinzu", "Das Formular steht in login.tsx, alle Tests sind grün.")
CHINESE = ("给商店添加登录表单", "登录表单已经添加到 login.tsx，测试全部通过。")
RESIZING = ("Write a script that resizes images", "Here is resize.py; it keeps the aspect ratio.")
CAUSES = (
    "Fix issue #88",
    "There are two causes: the cache key and the timezone. Shall I fix both or only the cache key?",
)
REVIEW = ("Review src/auth.py", "Three problems: no rate limit, plain text tokens, missing tests.")
BOOKING = ("I want to change my flight to Boston", "I found your reservation. Could you confirm the new date?")

CONTINUES: tuple[Pair, ...] = tuple(
    Pair(*turn, text)
    for turn, texts in (
        (
            LOGIN,
            (
                "yes",
                "ok thanks",
                "continue",
                "go ahead",
                "also fix that in the register form",
                "run the tests",
                "commit this",
                "commit and push, then open a draft PR",
                "no, the button should be blue",
                "why did you put it in src?",
                "it still shows the old form",
                "can you add a test for the login form as well?",
                "Rename it to SignIn",
                "what happens if the password in the login form is empty?",
                "You forgot the label of the password field",
                "undo the last change",
                "Thanks! Now make it responsive too",
                "[Request interrupted by user]",
                "[Request interrupted by user for tool use]\n\nput the styles into their own file",
                "<system-reminder>The todo list is empty.</system-reminder>",
                "<local-command-caveat>Caveat: by the user</local-command-caveat><bash-input>ls</bash-input>"
                "<bash-stdout>src</bash-stdout>",
                "<task-notification>\n<task-id>b1</task-id>\n<status>completed</status>\n</task-notification>",
                "<command-name>/clear</command-name><command-message>clear</command-message>",
                "This session is being continued from a previous conversation that ran out of context.",
                "/compact",
                "",
                "hmm, that does not look right on my phone",
                "did you update the changelog?",
                "is the form accessible?",
                "perfect, lgtm",
                "the login test fails on CI",
                "Error: Cannot find module './session'\n    at require (internal/modules.js:12:9)",
                "$ npm test\n> shop@1.0.0 test\nFAIL src/login.test.tsx",
                "Traceback (most recent call last):\n  File \"app.py\", line 3\nNameError: name 'form' is not defined",
            ),
        ),
        (
            ASKED,
            (
                "yes",
                "no, leave it for now",
                "use the session store we already have, but only for signed-in users",
                "2",
                "Yes please, and add a test",
                "I think a cookie would be enough, the store is for carts",
                "only when remember-me is ticked",
            ),
        ),
        (
            PARSER,
            (
                "and for input with only blanks?",
                "what about None?",
                "are you sure?",
                "still crashes:\nIndexError: list index out of range",
                "IndexError: list index out of range",
                "does parse() also accept bytes?",
                "wait, that hides the real problem",
                "explain the fix",
                "add a regression test for it",
                "instead of a check, raise ValueError in parse()",
                "so tokens can be empty?",
            ),
        ),
        (
            OFFERED,
            ("how did you measure that?", "is the index on both columns?", "and the report for March?", "great!"),
        ),
        (
            CHOICE,
            ("1", "option 2", "Redis, but with a TTL of five minutes", "the first one", "both", "whatever is simpler"),
        ),
        (
            DEPLOY,
            (
                "which version was it before?",
                "roll it back",
                "the health check is red again",
                "do the same for production",
            ),
        ),
        (
            GERMAN,
            ("ja", "weiter", "mach das auch für die Registrierung", "warum in login.tsx?", "das Formular ist zu breit"),
        ),
        (CHINESE, ("继续", "好的", "为什么放在 login.tsx?", "也给注册表单加上")),
        (
            ("Ajoute un formulaire", "C'est fait. Je lance les tests ?"),
            ("oui", "oui, vas-y", "non merci", "pourquoi pas"),
        ),
        (
            ("Añade un formulario", "Listo. ¿Ejecuto las pruebas?"),
            ("sí", "sí, adelante", "también en la página de registro"),
        ),
        (("Добавь форму входа", "Готово, тесты проходят."), ("да", "продолжай", "почему так?")),
        (("ログインフォームを追加して", "追加しました。テストも通りました。"), ("はい", "続けて", "それを青くして")),
        (
            RESIZING,
            (
                "can it handle webp?",
                "make the default width 800",
                "nice, now with threads please",
                "it crashes for transparent PNGs",
                "what library does resize.py use?",
                "PIL.UnidentifiedImageError: cannot identify image file 'x.heic'",
                "put the widths into a config file instead",
                "show me how to call it",
                "the output folder should be configurable",
                "hm why not use imagemagick",
                "good. write the usage into the README",
                "no I meant height",
                "Bitte auch GIF unterstützen",
                "et pour les gif ?",
            ),
        ),
        (
            CAUSES,
            (
                "both please",
                "only the cache key for now, the timezone is a separate discussion",
                "let's start with the cache key",
                "first one",
                "fix the timezone too",
            ),
        ),
        (
            REVIEW,
            (
                "fix the second one",
                "how would a rate limit look like?",
                "are the tokens really stored in plain text?",
                "ok fix all three",
                "what do you mean by plain text tokens",
                "add the missing tests",
                "open issues for each",
            ),
        ),
        (
            BOOKING,
            (
                "May 17, in the morning if possible",
                "My user id is anna_91 and the reservation is XK22P",
                "Yes, that date is fine",
                "I would like a window seat for the flight to Boston",
            ),
        ),
    )
    for text in texts
)

STARTS: tuple[Pair, ...] = tuple(
    Pair(*turn, text)
    for turn, texts in (
        (
            LOGIN,
            (
                "Next task: export the orders as CSV",
                "Now implement pagination for the product list endpoint",
                "Write a migration that drops the legacy invoices table",
                "Unrelated: why is our CI so slow on Windows?",
                "let's move on to the payment provider",
                "The nightly backup job fails since Tuesday. Find out why and repair the cron configuration.",
                "Thanks! Please write a Dockerfile and a compose setup for local development",
                "Create a GitHub workflow for releases",
                "how do websockets get authenticated in the chat service?",
                "Refactor the image resizing pipeline into a separate worker",
                "I want to upgrade from webpack 4 to vite, prepare a plan",
                "Review pull request 418 about rate limiting",
                "<system-reminder>Be brief.</system-reminder>\nAdd dark mode to the settings page",
                "Great. New topic: our docs site needs a search box",
            ),
        ),
        (
            ASKED,
            (
                "Forget about that. Build a CSV importer for supplier prices",
                "Different question: how does billing round VAT?",
            ),
        ),
        (
            PARSER,
            (
                "Add rate limiting to the public API",
                "Now write the release notes for version 2.0",
                "Set up sentry for the frontend",
                "Translate the onboarding emails to Spanish",
            ),
        ),
        (
            OFFERED,
            ("Implement two-factor authentication for admins", "Update the Kubernetes manifests for the mail worker"),
        ),
        (
            DEPLOY,
            ("Investigate the memory leak in the thumbnail service", "Write unit tests for the currency converter"),
        ),
        (
            GERMAN,
            (
                "Nächste Aufgabe: exportiere die Bestellungen als CSV",
                "Schreibe eine Migration für die Rechnungstabelle",
            ),
        ),
        (CHINESE, ("下一个任务：导出订单为 CSV", "换个话题，我们的备份为什么失败了？")),
        (("Ajoute un formulaire", "C'est fait, les tests passent."), ("Passons à l'export des factures en PDF",)),
        (("Añade un formulario", "Listo, las pruebas pasan."), ("Otra cosa: la copia de seguridad nocturna falla",)),
        (("Добавь форму входа", "Готово, тесты проходят."), ("Следующая задача: экспорт заказов в CSV",)),
        (
            ("ログインフォームを追加して", "追加しました。テストも通りました。"),
            ("別件ですが、夜間バックアップが失敗します",),
        ),
        (
            RESIZING,
            (
                "Now let's build the upload page in React",
                "Can you check why the postgres container keeps restarting?",
                "Please draft an email to the customers about the outage",
                "I need a regex that matches German license plates",
                "Explain how OAuth device flow works",
                "Set up pre-commit with ruff and mypy",
                "Our invoices show the wrong tax rate for Switzerland since yesterday",
                "erstelle ein Skript, das alte Logdateien löscht",
            ),
        ),
        (
            REVIEW,
            (
                "add a CLI command that lists all users",
                "Write a blog post about our migration to Kubernetes",
                "the dashboard charts are empty on Safari, investigate",
                "new feature: users can upload avatars",
                "next, port the mailer to async",
                "please generate typescript types from the openapi schema",
            ),
        ),
        (BOOKING, ("Forget it. Let's get back to my hotel in Rome, I need a bigger room",)),
    )
    for text in texts
)

TABLE = (
    "Speed up Table.from_csv for wide files",
    "from_csv reads 400 columns in 0.2 s now. While I was there I saw that from_fixed pads short rows with a wrong "
    "type; I left that as it is. All 461 tests pass.",
)
GROUPS = (
    "group_arrays loses the last group when extend is set. Find out why and mend it.",
    "The loop in grouping.py ended one row early. Mended, with a test in test_grouping.py; pytest -q: 461 passed.",
)
SPEC = (
    "Add a flag to glom's command line that prints the target type",
    "The flag is --target-type, in cli.py. It prints one of json, yaml or python.",
)
ORDERS_THAT_START: tuple[Pair, ...] = tuple(
    Pair(*turn, text)
    for turn, texts in (
        (
            TABLE,
            (
                "Run the tests, find out which fail and why, mend the first fault. Do not touch the tests.",
                "I want to give from_csv the texts that mean null",
                "I want to give readers a list of the values that stand for nothing.",
                "Great. Now write the changelog entry in the style of the file",
                "Thanks. Now explain the plugin registry to me, with the classes that take part in it.",
                "You said that from_fixed pads short rows with a wrong type. Please mend that too, with its own test.",
                "Add an option that skips the header to the printer of bar charts",
                "Please write a tutorial for the people that have only used spreadsheets before",
                "Good. Write the release notes in the words that the file uses for earlier versions.",
                "We need a command that removes duplicate rows",
                "Next, teach the exporter about dates that lie before 1900",
                "Perfect! Please remove the deprecated aliases that the docs have warned of since 1.4",
                "ok, write a changelog entry for charts - and put them into a package of their own with a page of docs",
                "One more: the installer must say which Python it needs",
                "One more thing: rename the module charts to drawing and keep an alias",
                "Also, write a script that publishes the docs to the mirror",
                "Also make the command line print its version and the platform",
                "And then check the spelling of all German messages",
                "And write a man page for the publishing script",
                "Thanks! Also, could you document the environment variables of the server?",
                "In addition, sort the authors in the credits by name",
                "Und schreibe eine Anleitung für den Server",
                "One more look: write down in docs/perf.md what you found, with a table",
                "One more change: let the server listen on IPv6 as well as on IPv4 addresses",
                "Two more things: bump the licence year, and drop Python 3.8",
                "Besides that, generate typescript types from the openapi schema",
                "Lastly, give the exporter a progress bar",
                "mend the cart",
                "One more thing: the README names Python 3.8. Please change that to 3.11.",
                "One more thing, the login page shows a blank screen in Safari",
                "Also, add a Dockerfile.",
                "Also the invoices need a VAT number in their footer",
                "Plus: make the admin page responsive",
                "And now the frontend: build a component with sorting in web/list.tsx",
                "Next: dark mode for the dashboard",
                "Und jetzt schreib bitte Tests für orders.py",
                "Et maintenant, traduis le guide en français",
                "Y ahora escribe las pruebas de orders.py",
                "И ещё: добавь Dockerfile",
                "Noch eins: schreibe eine Anleitung für den Server",
                "Danke. Außerdem brauche ich ein Skript zum Aufräumen der Caches",
                "Encore une chose : ajoute un thème sombre à la console",
                "De plus, écris un guide pour les nouveaux développeurs",
                "Una cosa más: añade un tema oscuro a la consola",
                "Además necesito una página de estado para el servidor",
                "Mais uma coisa: adicione um tema escuro ao console",
                "Inoltre vorrei una pagina di stato per il server",
                "还有一件事：给控制台添加深色主题",
                "另外，请把日志文件移到新的目录",
                "あと、CIにリンターを追加してください",
                "それから、古いログを削除するスクリプトを作成して",
            ),
        ),
        (
            GROUPS,
            (
                "Implement a sliding window for time series, the way the plan in docs/windows.md describes it",
                "Now update the docs so that the page on joins shows the output of each example",
                "Could you write a benchmark that compares both joins, and put the results into bench/?",
                "I need the nightly job to mail its log to the people that are on call this week",
                "Great work. Create a page for the site that lists the plugins",
                "Good. Now document it in the guide of the site and add an entry to the changelog, under a new section",
                "Good. Now document it in docs/tables.md, with an example.",
                "Let's leave that. Please rename the module of the printer to columns.",
                "Enough of that. Next: fix the flaky test in tests/test_net.py.",
                "Put that aside. I need a script that counts the rows of a CSV",
                "I'd like it if you wrote an export of all joins as CSV, with a header and a test for each column",
                "Move the fixtures of the database into a package of their own. That is where other repositories look.",
                "Port the test suite of the mailer to pytest. It uses nose, and these assertions fail on 3.13.",
                "Drop support for Python 3.8 in the packaging metadata and the workflow",
                "Schreibe eine Anleitung für die Leute, die das Programm zum ersten Mal benutzen",
                "Explique la configuration des files d'attente pour les nouveaux de l'équipe",
            ),
        ),
        (
            SPEC,
            (
                "Write a man page in the style of the one that git ships",
                "Please extend the Docker image: the container should start as a user that has no shell",
                "Let's build a plugin system that loads modules from a folder",
                "Find out what makes importing slow and change the modules that are loaded at start",
            ),
        ),
    )
    for text in texts
)
ORDERS_THAT_GO_ON: tuple[Pair, ...] = tuple(
    Pair(*turn, text)
    for turn, texts in (
        (
            TABLE,
            (
                "yes",
                "ok do it",
                "continue",
                "also fix that",
                "mend that too",
                "please fix it",
                "Now explain that again, shorter",
                "Great. Now document it.",
                "Now write it again in the docs of from_csv",
                "Great. Now mend it in the other reader too.",
                "Leave it as it is. Just add a comment to it, please.",
                "Drop that line. Fix the error.",
                "do the same for from_fixed",
                "and write a test for it",
                "can you also add a benchmark?",
                "explain the change",
                "add this to the changelog",
                "also add tests",
                "Also, rename it to read_table",
                "One more: do the same for from_fixed",
                "One more question: how fast is from_csv on Windows?",
                "and then run the tests",
                "Also the tests of from_csv fail on Windows now",
                "And why does from_fixed pad short rows at all?",
                "then from_csv reads the header twice on my machine",
                "Also, add a test for wide files to Table.from_csv",
                "One more look at from_csv, please",
                "One more look: is from_csv still slow with quotes?",
                "One last question: is it thread safe?",
                "And another thing: it still fails on Windows",
                "Lastly, commit it",
                "Also cover the case of an empty file in that test.",
                "yep, add them please - and also write guidance for readers into CONTRIBUTING.md if there is none yet",
                "Also, your fix in from_csv breaks the printer of wide tables",
                "And push to origin",
                "pytest fails now:\nE   AssertionError: assert 90 == 81\ntests/test_cart.py:14: AssertionError",
                "Jetzt bitte noch die Tests dafür",
                "Yes, please add it that way, with tests: the option null_texts, not nulls. But no text means null",
                "Yes, implement them as you propose, with a test for each case, and put the limit into the settings",
                "Noch eins: mach das auch für from_fixed",
                "Außerdem fehlt der Test",
                "Et pourquoi ?",
                "Además, eso falla en Windows",
                "另外，这个在 Windows 上还会失败",
                "あと、それも直してください",
            ),
        ),
        (
            GROUPS,
            (
                "run the tests again",
                "undo that",
                "fix these two warnings as well",
                "rename it to group_rows",
                "write it down in the docs too",
                "revert the last commit",
                "explain the fix",
                "I want it to raise instead",
                "make that a keyword argument",
                "mach das auch für join",
            ),
        ),
        (SPEC, ("remove it again", "then update the readme", "change this to --type", "oui, corrige-le aussi")),
    )
    for text in texts
)
