"""Holds a conversation. The model needs a chat template.

    python chat.py "Who wrote Faust?" "When?"
"""

import os
import sys

import lowkey

questions = sys.argv[1:] or ["Who are you?"]
messages = [lowkey.Message("system", "You answer in one sentence.")]
with lowkey.Client(os.environ.get("LOWKEY_SERVER", "127.0.0.1:50051")) as client:
    for question in questions:
        messages.append(lowkey.Message("user", question))
        print(f"> {question}")
        with client.chat_stream(messages, max_new_tokens=100) as stream:
            for delta in stream:
                print(delta.text, end="", flush=True)
            print()
        messages.append(lowkey.Message("assistant", stream.result.text))
