#!/usr/bin/env python3
"""Writes smollm2_135m/expected.json: what transformers generates from the public checkpoint.

    python3 make_smollm2.py DIRECTORY/SmolLM2-135M-Instruct.Q4_1.gguf

(deploy/fetch_smollm2.sh fetches the file.) Greedy, LlamaForCausalLM in float32 on the dequantized
weights; needs torch, transformers, accelerate and gguf. For each prompt of prompts.json: its token
ids, 64 generated ids, the smallest gap between the two best logits on the way (how near another
choice was), and the sum of the prompt's log-probabilities.
"""
import json
import pathlib
import sys

import torch
import transformers
from tokenizers import Tokenizer, pre_tokenizers

HERE = pathlib.Path(__file__).parent / "smollm2_135m"
N_NEW = 64


def prompt_ids(tokenizer, prompt):
    if "text" in prompt:
        return tokenizer.encode(prompt["text"], add_special_tokens=False)
    # The template's own text may be control tokens; what a user wrote may not.
    rendered = tokenizer.apply_chat_template(
        prompt["messages"], add_generation_prompt=True, tokenize=False)
    ids, at = [], 0
    for message in prompt["messages"]:
        content = message["content"]
        begin = rendered.index(content, at)
        if "<|" in content:
            # Every special token in it split: one special token's text is encoded as plain text.
            ids += tokenizer.encode(rendered[at:begin], add_special_tokens=False)
            ids += tokenizer.backend_tokenizer_plain.encode(content, add_special_tokens=False).ids
            at = begin + len(content)
    return ids + tokenizer.encode(rendered[at:], add_special_tokens=False)


def plain_copy(tokenizer):
    """The same vocabulary and merges without special tokens."""
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    state["added_tokens"] = []
    return Tokenizer.from_str(json.dumps(state))


@torch.no_grad()
def generate(model, ids):
    out = model(torch.tensor([ids]), use_cache=True)
    logprobs = torch.log_softmax(out.logits[0, :-1].double(), -1)
    prompt_logprob = logprobs[range(len(ids) - 1), ids[1:]].sum().item()
    tokens, gap = [], float("inf")
    for _ in range(N_NEW):
        best = torch.topk(out.logits[0, -1], 2)
        gap = min(gap, (best.values[0] - best.values[1]).item())
        tokens.append(best.indices[0].item())
        out = model(torch.tensor([[tokens[-1]]]), past_key_values=out.past_key_values, use_cache=True)
    return tokens, gap, prompt_logprob


def main():
    path = pathlib.Path(sys.argv[1])
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    # The checkpoint's own tokenizer cuts numbers into digits first; what transformers makes of the
    # GGUF file leaves that out.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.backend_tokenizer_plain = plain_copy(tokenizer)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32)
    expected = {}
    for prompt in json.loads((HERE / "prompts.json").read_text()):
        ids = prompt_ids(tokenizer, prompt)
        tokens, gap, logprob = generate(model, ids)
        expected[prompt["name"]] = {
            "prompt_ids": ids, "tokens": tokens, "smallest_gap": gap, "prompt_logprob": logprob}
        print(prompt["name"], len(ids), f"{gap:.2g}", repr(tokenizer.decode(tokens))[:90], flush=True)
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in expected.items()]
    (HERE / "expected.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
