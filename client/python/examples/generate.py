"""Continues a text, and shows what the attention held.

    python generate.py "The old king"
"""

import os
import sys

import lowkey

prompt = " ".join(sys.argv[1:]) or "Once upon a time"
with lowkey.Client(os.environ.get("LOWKEY_SERVER", "127.0.0.1:50051")) as client:
    answer = client.generate(prompt, attention=lowkey.Attention(mechanism="atp", rank="1/4"),
                             max_new_tokens=100, temperature=0.7, seed=7)
print(prompt + answer.text)
report = answer.attention
print(f"{report.mechanism}: {report.cache_bytes:,} bytes, {report.cache_share:.0%} of standard's")
