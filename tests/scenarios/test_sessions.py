"""Ordinary sessions, each with the frames a person would draw: what belongs together stays together, and what is
finished, and only that, leaves the line (S1-76, DESIGN 9).

Every session is played through a proxy that folds eagerly (outputs are long, nothing is too small to wake), so that a
wrong border costs an output that is still needed. What a session must still show at its end is written as the numbers
of its outputs, in the order in which they came.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from llm_test_provider import ScriptedProvider
from tests.harness import Stage
from tests.scenarios.sessions import TOOLS, Session, portrait, shaped


@dataclass(frozen=True)
class Labelled:
    """A session and its label: the frames with what they own, and the outputs on the last line."""

    script: str
    frames: str
    on_line: tuple[int, ...]


SESSIONS = {
    "an edit-test cycle is one piece of work": Labelled(
        """
        user: The test in tests/test_cart.py fails, fix it.
        run pytest -q -> 1 failed
        read src/cart.py
        edit src/cart.py
        run pytest -q -> 1 failed
        edit src/cart.py
        run pytest -q -> 12 passed
        says: The rounding in src/cart.py was wrong; all 12 tests pass.
        user: It still fails on my machine.
        run pytest -q -> 1 failed
        edit src/cart.py
        run pytest -q -> 12 passed
        says: The locale changed the separator; fixed in src/cart.py.
        """,
        """
        root in_progress: The test in tests/test_cart.py fails, fi
            user: The test in tests/test_cart.py fails, fi
            run pytest -q
            read src/cart.py
            edit src/cart.py
            run pytest -q
            edit src/cart.py
            run pytest -q
            says: The rounding in src/cart.py was wrong; a
            user: It still fails on my machine.
            run pytest -q
            edit src/cart.py
            run pytest -q
            says: The locale changed the separator; fixed
        """,
        tuple(range(1, 10)),
    ),
    "a yes goes on with what was proposed": Labelled(
        """
        user: The upload endpoint times out for large files, what can we do?
        read src/upload.py
        run grep -rn timeout src
        says: It buffers the file. I would stream it in chunks to disk. Shall I go ahead?
        user: yes, go ahead
        edit src/upload.py
        run pytest tests/test_upload.py -> 4 passed
        says: The endpoint now streams in chunks; 4 tests pass.
        user: great, commit it please
        run git commit -am stream
        says: Committed.
        """,
        """
        root in_progress: The upload endpoint times out for large
            user: The upload endpoint times out for large
            read src/upload.py
            run grep -rn timeout src
            says: It buffers the file. I would stream it i
            user: yes, go ahead
            edit src/upload.py
            run pytest tests/test_upload.py
            says: The endpoint now streams in chunks; 4 te
            user: great, commit it please
            run git commit -am stream
            says: Committed.
        """,
        (1, 2, 3, 4, 5),
    ),
    "questions about an answer belong to it": Labelled(
        """
        user: How does the scheduler pick the next job?
        read src/scheduler.py
        run grep -n priority src/scheduler.py
        says: It sorts by priority and then by age, in pick_next of src/scheduler.py.
        user: And what happens when two jobs have the same age?
        read src/queue.py
        says: The queue keeps insertion order, so the older insert wins.
        user: Why is it sorted twice?
        run git log -p src/scheduler.py
        says: The second sort is left over from the weighted version.
        """,
        """
        root in_progress: How does the scheduler pick the next job
            user: How does the scheduler pick the next job
            read src/scheduler.py
            run grep -n priority src/scheduler.py
            says: It sorts by priority and then by age, in
            user: And what happens when two jobs have the
            read src/queue.py
            says: The queue keeps insertion order, so the
            user: Why is it sorted twice?
            run git log -p src/scheduler.py
            says: The second sort is left over from the we
        """,
        (1, 2, 3, 4),
    ),
    "review comments go on with what they review": Labelled(
        """
        user: Add pagination to the orders API.
        read src/api/orders.py
        edit src/api/orders.py
        run pytest tests/management/api -> 9 passed
        says: GET /orders takes page and size now; see list_orders in src/api/orders.py.
        user: The default size should be 50, not 20, and list_orders should reject a negative page.
        edit src/api/orders.py
        run pytest tests/management/api -> 11 passed
        says: Both are done in list_orders.
        user: nit: rename size to page_size
        edit src/api/orders.py
        says: It is called page_size now.
        """,
        """
        root in_progress: Add pagination to the orders API.
            user: Add pagination to the orders API.
            read src/api/orders.py
            edit src/api/orders.py
            run pytest tests/management/api
            says: GET /orders takes page and size now; see
            user: The default size should be 50, not 20, a
            edit src/api/orders.py
            run pytest tests/management/api
            says: Both are done in list_orders.
            user: nit: rename size to page_size
            edit src/api/orders.py
            says: It is called page_size now.
        """,
        (1, 2, 3, 4, 5, 6),
    ),
    "pasted output goes on with what was just run": Labelled(
        """
        user: Make the importer skip broken rows.
        read src/importer.py
        edit src/importer.py
        says: Broken rows are skipped and counted now; run it with --verbose to see them.
        user: Traceback (most recent call last): File "src/importer.py", line 41, in load ValueError: bad row
        read src/importer.py
        edit src/importer.py
        says: The header row was not skipped; it is now.
        user: $ python -m importer data.csv  Imported 0 rows, skipped 1200
        run head data.csv
        edit src/importer.py
        says: The separator is a semicolon; it is detected now.
        """,
        """
        root in_progress: Make the importer skip broken rows.
            user: Make the importer skip broken rows.
            read src/importer.py
            edit src/importer.py
            says: Broken rows are skipped and counted now;
            user: Traceback (most recent call last): File
            read src/importer.py
            edit src/importer.py
            says: The header row was not skipped; it is no
            user: $ python -m importer data.csv  Imported
            run head data.csv
            edit src/importer.py
            says: The separator is a semicolon; it is dete
        """,
        (1, 2, 3, 4, 5, 6),
    ),
    "three unrelated requests are three frames": Labelled(
        """
        user: Fix the typo in the title of docs/index.md.
        read docs/index.md
        edit docs/index.md
        says: The title reads Installation now.
        user: Write a Dockerfile for the worker process with a slim Python image.
        read src/worker.py
        edit Dockerfile
        says: The Dockerfile builds the worker on a slim image.
        user: Investigate why the nightly billing export takes five hours.
        run time ./export --sample -> 31 s
        read src/billing/export.py
        says: Every invoice is read twice, once for its tax.
        """,
        """
        root in_progress: Fix the typo in the title of docs/index.
          request completed: Fix the typo in the title of docs/index.
              user: Fix the typo in the title of docs/index.
              read docs/index.md
              edit docs/index.md
              says: The title reads Installation now.
          request completed: Write a Dockerfile for the worker proces
              user: Write a Dockerfile for the worker proces
              read src/worker.py
              edit Dockerfile
              says: The Dockerfile builds the worker on a sl
          request in_progress: Investigate why the nightly billing expo
              user: Investigate why the nightly billing expo
              run time ./export --sample
              read src/billing/export.py
              says: Every invoice is read twice, once for it
        """,
        (5, 6),
    ),
    "a long refactoring folds item by item": Labelled(
        """
        user: Split the monolithic parser into modules.
        read src/parser.py
        todo: [>] Extract the lexer | [ ] Extract the grammar | [ ] Update the imports
        edit src/lexer.py
        run pytest -q -> 40 passed
        todo: [x] Extract the lexer | [>] Extract the grammar | [ ] Update the imports
        edit src/grammar.py
        run pytest -q -> 40 passed
        todo: [x] Extract the lexer | [x] Extract the grammar | [>] Update the imports
        edit src/parser.py
        run pytest -q -> 40 passed
        todo: [x] Extract the lexer | [x] Extract the grammar | [x] Update the imports
        says: The parser is three modules now; all 40 tests pass.
        """,
        """
        root in_progress: Split the monolithic parser into modules
            user: Split the monolithic parser into modules
            read src/parser.py
            TodoWrite
            says: The parser is three modules now; all 40
          plan completed: Extract the lexer
              TodoWrite
              edit src/lexer.py
              run pytest -q
          plan completed: Extract the grammar
              TodoWrite
              edit src/grammar.py
              run pytest -q
          plan completed: Update the imports
              TodoWrite
              edit src/parser.py
              run pytest -q
        """,
        (1, 8, 9, 10, 11),
    ),
    "a correction in mid-plan changes nothing of the plan": Labelled(
        """
        user: Add two-factor login.
        todo: [>] Secret storage | [ ] Code check
        edit src/auth/secrets.py
        says: The secrets are stored encrypted. Shall I use a QR code for setup?
        user: no, a plain text key is enough
        edit src/auth/secrets.py
        todo: [x] Secret storage | [>] Code check
        edit src/auth/codes.py
        says: Codes are checked with a window of one step.
        """,
        """
        root in_progress: Add two-factor login.
            user: Add two-factor login.
          plan completed: Secret storage
              TodoWrite
              edit src/auth/secrets.py
              says: The secrets are stored encrypted. Shall
              user: no, a plain text key is enough
              edit src/auth/secrets.py
          plan in_progress: Code check
              TodoWrite
              edit src/auth/codes.py
              says: Codes are checked with a window of one s
        """,
        (4, 5),
    ),
    "a return to an earlier topic is a frame of its own": Labelled(
        """
        user: Add a dark theme to the settings page.
        edit src/theme.css
        run npm test -> 20 passed
        says: There is a dark theme with a toggle on the settings page.
        user: Next task: the websocket reconnect loop burns the CPU, find out why.
        read src/socket.ts
        run node --prof server.js
        says: The backoff is reset on every close event.
        user: Back to the theme: the toggle is invisible on mobile.
        edit src/theme.css
        says: The toggle has a border on small screens.
        """,
        """
        root in_progress: Add a dark theme to the settings page.
          request completed: Add a dark theme to the settings page.
              user: Add a dark theme to the settings page.
              edit src/theme.css
              run npm test
              says: There is a dark theme with a toggle on t
          request completed: The websocket reconnect loop burns the C
              user: Next task: the websocket reconnect loop
              read src/socket.ts
              run node --prof server.js
              says: The backoff is reset on every close even
          request in_progress: Back to the theme: the toggle is invisib
              user: Back to the theme: the toggle is invisib
              edit src/theme.css
              says: The toggle has a border on small screens
        """,
        (5,),
    ),
    "talk without work is no frame": Labelled(
        """
        user: Hello, what can you do?
        says: I can read, edit and run things in your project.
        user: Explain the difference between a mutex and a semaphore.
        says: A mutex has an owner; a semaphore counts.
        user: Build a rate limiter for the public API.
        edit src/limit.py
        says: There is a token bucket in src/limit.py.
        """,
        """
        root in_progress: What can you do?
            user: Hello, what can you do?
            says: I can read, edit and run things in your
            user: Explain the difference between a mutex a
            says: A mutex has an owner; a semaphore counts
            user: Build a rate limiter for the public API.
            edit src/limit.py
            says: There is a token bucket in src/limit.py.
        """,
        (1,),
    ),
    "a choice among offers goes on": Labelled(
        """
        user: Our search is slow, what are the options?
        run wc -l src/search/*.py
        read src/search/index.py
        says: 1. an index in the database 2. a search server 3. caching. Which one do you want?
        user: 2
        edit docker-compose.yml
        edit src/search/client.py
        says: The search server runs in docker-compose, and src/search/client.py uses it.
        """,
        """
        root in_progress: Our search is slow, what are the options
            user: Our search is slow, what are the options
            run wc -l src/search/*.py
            read src/search/index.py
            says: 1. an index in the database 2. a search
            user: 2
            edit docker-compose.yml
            edit src/search/client.py
            says: The search server runs in docker-compose
        """,
        (1, 2, 3, 4),
    ),
    "a new request ends a plan that was left open": Labelled(
        """
        user: Port the build to Bazel.
        todo: [>] Toolchain | [ ] Libraries
        edit WORKSPACE
        says: The toolchain resolves; the libraries come next.
        user: Unrelated: translate the onboarding email into French.
        read emails/onboarding.txt
        edit emails/onboarding.fr.txt
        says: The email is translated in emails/onboarding.fr.txt.
        """,
        """
        root in_progress: Port the build to Bazel.
          plan blocked: Toolchain
              TodoWrite
              edit WORKSPACE
              says: The toolchain resolves; the libraries co
          plan planned: Libraries
          request completed: Port the build to Bazel.
              user: Port the build to Bazel.
          request in_progress: Translate the onboarding email into Fren
              user: Unrelated: translate the onboarding emai
              read emails/onboarding.txt
              edit emails/onboarding.fr.txt
              says: The email is translated in emails/onboar
        """,
        (1, 2, 3, 4),
    ),
    "German speakers go on as well": Labelled(
        """
        user: Der Login schlägt mit Umlauten im Passwort fehl.
        read src/login.py
        edit src/login.py
        says: Das Passwort wird jetzt als UTF-8 kodiert. Soll ich einen Test dazu schreiben?
        user: ja, bitte
        edit tests/test_login.py
        says: Der Test ist in tests/test_login.py.
        user: Neue Aufgabe: Erstelle ein Skript für das Backup der Datenbank.
        edit scripts/backup.sh
        says: Das Skript liegt in scripts/backup.sh.
        """,
        """
        root in_progress: Der Login schlägt mit Umlauten im Passwo
          request completed: Der Login schlägt mit Umlauten im Passwo
              user: Der Login schlägt mit Umlauten im Passwo
              read src/login.py
              edit src/login.py
              says: Das Passwort wird jetzt als UTF-8 kodier
              user: ja, bitte
              edit tests/test_login.py
              says: Der Test ist in tests/test_login.py.
          request in_progress: Erstelle ein Skript für das Backup der D
              user: Neue Aufgabe: Erstelle ein Skript für da
              edit scripts/backup.sh
              says: Das Skript liegt in scripts/backup.sh.
        """,
        (4,),
    ),
    "a subject that merely shares the project's words is new": Labelled(
        """
        user: Add an avatar to the user profile.
        edit src/profile.py
        run pytest -q -> 30 passed
        says: Profiles have an avatar now.
        user: Implement audit logging for all administrator actions.
        edit src/audit.py
        run pytest -q -> 33 passed
        says: Administrator actions are logged in src/audit.py.
        user: thanks! push it
        run git push
        says: Pushed.
        """,
        """
        root in_progress: Add an avatar to the user profile.
          request completed: Add an avatar to the user profile.
              user: Add an avatar to the user profile.
              edit src/profile.py
              run pytest -q
              says: Profiles have an avatar now.
          request in_progress: Implement audit logging for all administ
              user: Implement audit logging for all administ
              edit src/audit.py
              run pytest -q
              says: Administrator actions are logged in src/
              user: thanks! push it
              run git push
              says: Pushed.
        """,
        (3, 4, 5),
    ),
}


@pytest.mark.rows("S1-76")
@pytest.mark.parametrize("session", SESSIONS.values(), ids=SESSIONS.keys())
def test_an_ordinary_session_has_the_frames_a_person_would_draw(
    stage: Stage, provider: ScriptedProvider, session: Labelled
) -> None:
    played = Session(stage.chat(tools=TOOLS), provider)

    played.plays(session.script)

    assert portrait(played.chat.proxy) == shaped(session.frames)
    assert tuple(played.outputs_sent()) == session.on_line
