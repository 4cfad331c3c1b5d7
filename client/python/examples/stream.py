"""Prints a text as it is generated. Ctrl-C cancels it in the server.

    python stream.py "The old king"
"""

import os
import sys

import lowkey

prompt = " ".join(sys.argv[1:]) or "Once upon a time"
client = lowkey.Client(os.environ.get("LOWKEY_SERVER", "127.0.0.1:50051"))
print(prompt, end="", flush=True)
with client.stream(prompt, max_new_tokens=200) as stream:
    try:
        for delta in stream:
            print(delta.text, end="", flush=True)
    except KeyboardInterrupt:
        sys.exit("\ncancelled")
usage, timings = stream.result.usage, stream.result.timings
print(f"\n{usage.generated_tokens} tokens, the first after {timings.ttft_us / 1000:.1f} ms")
