"""Tells tests, linters, builds and type checkers by the words of a command."""

from __future__ import annotations

import re

MAX_KIND_LENGTH = 200  # characters of a command that are looked at
TEST, LINT, BUILD, TYPES = "test", "lint", "build", "types"

_WRAPPER_PREFIX = re.compile(
    r"""^(?: (?:sudo|time|nohup|env|command|exec|npx|bunx|uvx|xvfb-run|winpty|stdbuf\s-\w+)\s+
          | timeout\s+(?:-\S+\s+)*\S+\s+
          | [A-Za-z_]\w*=\S*\s+
          | (?:uv|poetry|pipenv|pdm|hatch|rye|conda|pixi)\s+run\s+(?:-\S+\s+)*
          | (?:pnpm|yarn|npm|bun)\s+(?:exec|dlx|x)\s+(?:--\s+)?
          | bundle\s+exec\s+
          | (?:\S*/)?python[\d.]*\s+(?:-[XWu]\S*\s+)*-m\s+
          | (?:\S*/)?(?:node_modules/\.bin|bin|\.venv/bin|venv/bin)/
          | \./ )""",
    re.VERBOSE,
)
_TASK_RUNNER = (
    r"(?:npm|pnpm|yarn|bun|deno|mise|just|task|make|rake|invoke|composer|nx|turbo|lerna)\s+"
    r"(?:-C\s\S+\s+|--prefix\s\S+\s+|-\S+\s+)*(?:run\s+|task\s+)?"
)
_KIND_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        TYPES,
        re.compile(
            rf"(?:mypy|dmypy|pyright|basedpyright|pytype|pyre|tsc|vue-tsc|tsgo|srb|flow|dialyzer|"
            rf"mix\s+dialyzer|phpstan|psalm|"
            rf"cargo\s+check|ty\s+check|{_TASK_RUNNER}(?:type-?check|check-?types|types?|tsc|mypy)(?::\S+)?)(?:\s|$)"
        ),
    ),
    (
        TEST,
        re.compile(
            rf"(?:pytest|py\.test|unittest|nose2?|tox|nox|jest|vitest|mocha|ava|karma|rspec|phpunit|pest|ctest|"
            rf"bats|prove|go\s+test|gotestsum|cargo\s+(?:test|nextest)|mix\s+test|swift\s+test|dotnet\s+test|"
            rf"(?:playwright|bazel|hatch|zig|flutter|dart)\s+test|cypress\s+run|(?:\S*/)?(?:mvnw?|"
            rf"gradlew?)\s.*\b(?:test|verify|check)|"
            rf"\S*python[\d.]*\s+\S*(?:runtests?|manage|setup)\.py\s+test|"
            rf"\S*python[\d.]*\s+\S*runtests?\.py|(?:\S*/)?runtests?\.py|"
            rf"(?:node|tsx|deno)\s+(?:--\S+\s+)*--test|npm\s+(?:t|tst)|{_TASK_RUNNER}(?:tests?)(?:[:_-]\S+)?)(?:\s|$)"
        ),
    ),
    (
        LINT,
        re.compile(
            rf"(?:ruff|flake8|pylint|pycodestyle|eslint|biome|oxlint|golangci-lint|staticcheck|revive|"
            rf"rubocop|standardrb|"
            rf"shellcheck|stylelint|swiftlint|ktlint|detekt|hadolint|credo|mix\s+(?:credo|format\s+--check\S*)|"
            rf"go\s+vet|gofmt\s+-l|cargo\s+(?:clippy|fmt\s.*--check)|pre-commit|lint-imports|"
            rf"(?:prettier|black|isort)\s.*(?:--check|-c\b|--diff).*|"
            rf"{_TASK_RUNNER}(?:lint|check|format[:-]check|fmt[:-]check)(?:[:_-]\S+)?)(?:\s|$)"
        ),
    ),
    (
        BUILD,
        re.compile(
            rf"(?:make(?:\s+-\S+)*(?:\s+(?:all|build|install))?\s*$|cmake|ninja|meson\s+compile|"
            rf"cargo\s+build|go\s+(?:build|install)|"
            rf"(?:\S*/)?(?:mvnw?|gradlew?)\s.*\b(?:package|compile\w*|install|build|assemble\w*)|"
            rf"dotnet\s+build|docker\s+(?:buildx\s+)?build|"
            rf"mix\s+compile|(?:vite|next|nuxt|astro|ng|bazel|swift|zig|flutter|hatch|poetry|uv)\s+build|"
            rf"webpack|rollup|esbuild|tsup|"
            rf"build(?:\s|$)|{_TASK_RUNNER}(?:build|compile)(?:[:_-]\S+)?)(?:\s|$)?"
        ),
    ),
)


def command_kind_of(words: tuple[str, ...]) -> str:
    """The kind of a command by its words: test, lint, build, types, or empty."""
    text = " ".join(words)[:MAX_KIND_LENGTH]
    for _ in range(4):
        shorter = _WRAPPER_PREFIX.sub("", text, count=1)
        if shorter == text:
            break
        text = shorter
    return next((kind for kind, pattern in _KIND_PATTERNS if pattern.match(text)), "")
