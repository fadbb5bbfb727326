"""The wire format of OpenAI's chat completions."""

from proxy.dialects.chat.message import read_message, text_of
