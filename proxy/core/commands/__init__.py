"""What a person does to the frame tree, by slash command or API: parse a command, apply it, and write the note that
tells the model."""

from proxy.core.commands.command_values import (
    ActivateCommand,
    FrameCommand,
    FrameSpec,
    InvalidateCommand,
    PlanCommand,
    PopCommand,
    PushCommand,
    RenameCommand,
)
from proxy.core.commands.parse_slash import (
    ANSWER_MARK,
    COMMAND_WORD,
    HELP,
    InvalidCommand,
    SayCommand,
    command_text,
    find_commands,
    help_text,
    parse,
)
from proxy.core.commands.tree_commands import (
    CommandContext,
    CommandResult,
    apply_command,
    attach,
    commands_note,
    previous_answer,
)
