"""A tiny agent. It does what its arguments say, in order, and prints a line for each:

ask          asks the model; the status and the text of the answer
show=NAME    the variable, or nothing
arguments    all of them, as JSON
wait=FILE    waits until the file is there, after a line `waiting`
patient      from here on, signals are told and change nothing
raw          switches its terminal to raw mode, as agents with a screen do
stop         stops itself, as an agent does at Ctrl-Z
kill=N       sends itself a signal
exit=N       ends with this code
"""

import json
import os
import signal
import sys
import time
import tty
import urllib.error
import urllib.request
from pathlib import Path


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def ask() -> str:
    body = json.dumps({"model": "gpt-x", "messages": [{"role": "user", "content": "hello"}]}).encode()
    headers = {"content-type": "application/json", "authorization": f"Bearer {os.environ.get('OPENAI_API_KEY')}"}
    request = urllib.request.Request(f"{os.environ['OPENAI_BASE_URL']}/chat/completions", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return f"{answer.status} {json.load(answer)['choices'][0]['message']['content']}"
    except urllib.error.HTTPError as error:
        return f"{error.code} {json.load(error)['error']['message']}"
    except OSError as error:
        return f"unreachable: {error}"


def wait(file: str) -> str:
    say("waiting")
    while not Path(file).exists():
        time.sleep(0.01)
    return "there it is"


def told(number: int, _: object) -> None:
    say(f"signal {number}")


def interrupted(number: int, _: object) -> None:
    told(number, _)
    sys.exit(5)


HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
for number in HANDLED:
    signal.signal(number, interrupted)
for word in sys.argv[1:]:
    name, _, value = word.partition("=")
    match name:
        case "ask":
            say(ask())
        case "show":
            say(os.environ.get(value, ""))
        case "arguments":
            say(json.dumps(sys.argv[1:]))
        case "wait":
            say(wait(value))
        case "patient":
            for number in HANDLED:
                signal.signal(number, told)
        case "raw":
            tty.setraw(0)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
            say("going on")
        case "kill":
            os.kill(os.getpid(), int(value))
        case "exit":
            sys.exit(int(value))
        case _:
            say(f"unknown: {word}")
