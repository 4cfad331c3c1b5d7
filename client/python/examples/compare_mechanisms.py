"""Runs one prompt under every mechanism of the model at once, and compares time and memory.

    python compare_mechanisms.py "The old king"
"""

import asyncio
import os
import sys

import lowkey


async def main(prompt: str) -> None:
    async with lowkey.AsyncClient(os.environ.get("LOWKEY_SERVER", "127.0.0.1:50051")) as client:
        names = [mechanism.name for mechanism in (await client.model()).mechanisms]
        answers = await asyncio.gather(
            *(client.generate(prompt, attention=name, max_new_tokens=64, ignore_eos=True)
              for name in names), return_exceptions=True)
    print(f"{'mechanism':14}{'first token':>12}{'tokens/s':>10}{'cache':>12}{'of standard':>12}")
    for name, answer in zip(names, answers):
        if isinstance(answer, BaseException):
            print(f"{name:14}{answer}")
            continue
        rate = answer.usage.generated_tokens / max(answer.timings.decode_us, 1) * 1e6
        print(f"{name:14}{answer.timings.ttft_us / 1000:9.1f} ms{rate:10.0f}"
              f"{answer.attention.cache_bytes:12,}{answer.attention.cache_share:12.0%}")


asyncio.run(main(" ".join(sys.argv[1:]) or "Once upon a time"))
