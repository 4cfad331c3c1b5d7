"""Asks which continuation the model finds likelier: multiple choice.

    python score.py "Once upon a time" ", there was" " xylophone"
"""

import os
import sys

import lowkey

context = sys.argv[1] if len(sys.argv) > 1 else "Once upon a time"
continuations = sys.argv[2:] or [", there was a king", ", xylophone quarterly"]
with lowkey.Client(os.environ.get("LOWKEY_SERVER", "127.0.0.1:50051")) as client:
    answer = client.score(context, continuations)
for index, (text, score) in enumerate(zip(continuations, answer.scores)):
    print(f"{'*' if index == answer.best else ' '} {score.logprob:9.3f}  {text!r}")
