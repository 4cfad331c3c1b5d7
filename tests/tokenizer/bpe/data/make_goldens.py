"""Trains small tokenizers in the style of public ones and records what Hugging Face's tokenizers
give for nasty texts.

Usage: python make_goldens.py   (needs the package tokenizers; writes STYLE.json and
STYLE.expected.json beside itself, both from fixed seeds and the texts of this repository)
"""

import json
import pathlib
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers import processors, trainers

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[3]

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

SAMPLES = [
    "Once upon a time there was a little girl; she'll walk, they've run, I'm here, it's 'twas.",
    "def f(x):\n\treturn [i ** 2 for i in range(10) if i % 2 == 0]  # squares\n\n",
    "Der Fuchs läuft über die Straße. Où est le café? ¿Dónde está el niño? Ça va très bien.",
    "北京是中国的首都。日本語の文章です。한국어 문장입니다. Привет, как дела? Γειά σου Κόσμε.",
    "السلام عليكم ورحمة الله وبركاته. שלום עולם. नमस्ते दुनिया। สวัสดีชาวโลก",
    "👩‍👩‍👧‍👦 👍🏽 🇩🇪 🙂 e\u0301 u\u0308 n\u0303 é ü ñ \u1100\u1161\u11A8 각 Å \u212B Ω",
]

PIECES = [
    "", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n ", "   \n\n\n   x", "a", " a", "a ",
    "\x00", "a\x00b", "\x01\x02\x7f\x1b[0m", "\u0085", "\u00a0", "\u1680", "\u180e", "\u2003",
    "\u2028", "\u202f", "\u3000", "\ufeff", "\u200b", "\u200d", "\u00ad", "a\u180eb", "\u2581",
    "\u2581\u2581a", "a\u2581b", "\ufffd", "\U0010ffff", "\U000e0001", "\ue000",
    "0", "12", "123", "1234", "12345678901234567890", "3.14159", "1,000,000", "١٢٣", "४५६", "Ⅻ",
    "½", "²", "①", "x2y3", "\U0001d7d8\U0001d7d9",
    "'s", "'S", "it's", "IT'S", "don't", "we'LL", "they'Re", "'ſ", "x'ſ", "'ſt", "'K", "''s",
    "Hello, world!", "Hello,world", "HELLO World", "camelCaseWordsAndSNAKE_CASE", "a-b_c.d/e\\f",
    "if (a && b) { return x->y; } // done", "  for i in range(3):\n      print(i)\n\n\n",
    "\t\tvoid f();\n\t}\n", "https://example.org/a?b=c&d=%20#e", "<b>x</b>", "!!!???...", "----", "=====>",
    "caf\u00e9", "cafe\u0301", "e\u0301\u0327\u0323", "e\u0323\u0327\u0301", "\u0301", "\u0301a", " \u0301",
    "\u1100\u1161\u11a8", "\uac01", "\u212b", "\u00c5", "A\u030a", "\ufb01", "\uff21\uff22", "\ufdfa", "\u0344",
    "\u1e9b\u0323", "\u09c7\u09be", "\u0958", "\U0001d15e", "ŀ", "ǆ", "ß", "İi̇", "ſ",
    "日本語", "北京", "한국어", "Привет мир", "Ελληνικά", "שלום", "السلام عليكم", "नमस्ते", "สวัสดี",
    "🙂", "👩‍👩‍👧‍👦", "👍🏽", "🇩🇪🇫🇷", "a🙂b", "x \U0001f469\u200d\U0001f467 y",
    "<|endoftext|>", "a<|endoftext|>b", " <|endoftext|> ", "<|endoftext|><|endoftext|>", "<|endoftext",
    "<|im_start|>user\nhi<|im_end|>\n", "<s>", "</s>", "<s>a</s> b", " <s> a", "<unk>", "<0x41>", "<0x0A>",
    "<tool_call>x</tool_call>", "[SEP] a [SEP]", "a  [LEFT]  b", "a  [RIGHT]  b", "wordy word swordy word.",
    "word\u0301", "éword", "_word", "word word", "[NORM]", "a [NORM] b", " [NORM]", "<|begin_of_text|>hi",
    "a" * 300, "ab" * 200, " " * 300, "\n" * 50, "the " * 60, "=" * 100, "日" * 100, "\u0301" * 40, "x" + " " * 99 + "y",
]


def corpus():
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "tokenizer").rglob("*.cc"))]:
        yield from path.read_text(encoding="utf-8").splitlines(keepends=True)
    for _ in range(20):
        yield from SAMPLES


def texts():
    rng = random.Random(7)
    out = PIECES + SAMPLES
    for _ in range(60):
        out.append("".join(rng.choice(PIECES + SAMPLES)[:40] for _ in range(rng.randint(2, 9))))
    alphabet = "aé\u0301日🙂 \n\t'sx1\u200d_<|>.\u180e\u2581"
    for _ in range(60):
        out.append("".join(rng.choice(alphabet) for _ in range(rng.randint(1, 30))))
    return out


def special(content, **how):
    return AddedToken(content, special=True, normalized=False, **how)


def train(tokenizer, vocab_size, alphabet=()):
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, show_progress=False, initial_alphabet=list(alphabet),
                                  min_frequency=2)
    tokenizer.train_from_iterator(corpus(), trainer)


def byte_level(vocab_size, pre_tokenizer, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, vocab_size, pre_tokenizers.ByteLevel.alphabet())
    return tokenizer


def gpt2():
    tokenizer = byte_level(700, pre_tokenizers.ByteLevel(add_prefix_space=False))
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens([special("<|endoftext|>")])
    return tokenizer


def gpt2_prefix():
    """With a space before each text, and added tokens of every kind."""
    tokenizer = byte_level(500, pre_tokenizers.ByteLevel(add_prefix_space=True))
    tokenizer.add_special_tokens([special("<|endoftext|>")])
    tokenizer.add_tokens([
        AddedToken("[LEFT]", lstrip=True, normalized=False), AddedToken("[RIGHT]", rstrip=True, normalized=False),
        AddedToken("word", single_word=True, normalized=False), AddedToken("    ", normalized=False),
        AddedToken("[NORM]", normalized=True),
    ])
    return tokenizer


def smollm():
    return with_chatml(byte_level(800, pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])))


def with_chatml(tokenizer):
    tokenizer.add_special_tokens([special(t) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
    return tokenizer


def split(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def llama3():
    tokenizer = byte_level(700, split(LLAMA3), ignore_merges=True)
    tokenizer.add_special_tokens([special("<|begin_of_text|>"), special("<|endoftext|>")])
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B",
                                      special_tokens=[("<|begin_of_text|>", tokenizer.token_to_id("<|begin_of_text|>"))]),
    ])
    return tokenizer


def qwen2():
    tokenizer = byte_level(700, split(QWEN2))
    tokenizer.normalizer = normalizers.NFC()
    with_chatml(tokenizer)
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("caf\u00e9", normalized=True)])
    return tokenizer


def byte_fallback(vocab_size):
    """Trained over words with U+2581, with <unk>, <s>, </s> and the byte pieces put before its pieces."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    train(trained, vocab_size)
    model = json.loads(trained.to_str())["model"]
    pieces = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    learned = [p for p, _ in sorted(model["vocab"].items(), key=lambda item: item[1])]
    # Rare characters go, so that there are some to fall back from.
    kept = {p for p in learned if all(ord(c) < 0x2600 for c in p)}
    pieces += [p for p in learned if p in kept]
    merges = [tuple(m) for m in model["merges"] if set(m) | {"".join(m)} <= kept]
    tokenizer = Tokenizer(models.BPE(vocab={p: i for i, p in enumerate(pieces)}, merges=merges, unk_token="<unk>",
                                     fuse_unk=True, byte_fallback=True))
    tokenizer.add_special_tokens([special("<unk>"), special("<s>"), special("</s>")])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B",
                                                             special_tokens=[("<s>", 1)])
    return tokenizer


def llama2():
    tokenizer = byte_fallback(700)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    # As in some files, found only behind what the normalizer puts there.
    tokenizer.add_tokens([AddedToken("[NORM]", normalized=True)])
    return tokenizer


def mistral():
    tokenizer = byte_fallback(600)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    return tokenizer


def metaspace():
    """No byte pieces, unknown characters one by one, words cut at spaces."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=400, show_progress=False, special_tokens=["<unk>"], limit_alphabet=150)
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


def expected(tokenizer):
    rng = random.Random(11)
    entries = []
    for text in texts():
        tokenizer.encode_special_tokens = True
        literal = tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.encode_special_tokens = False
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        entry = {"text": text, "ids": literal, "decoded": tokenizer.decode(literal)}
        if ids != literal:
            entry["special_ids"] = ids
        entries.append(entry)
    size = tokenizer.get_vocab_size()
    # Bytes by themselves often break characters. Where a run of "<0x41>" pieces is broken, whole characters in it are
    # lost in Hugging Face's decoder and kept in ours, so they are not mixed here.
    pool = [i for i in range(size) if not tokenizer.id_to_token(i).startswith("<0x")]
    decoded = []
    for _ in range(120):
        ids = [rng.choice(pool) for _ in range(rng.randint(1, 12))]
        decoded.append({"ids": ids, "text": tokenizer.decode(ids)})
    return {"with_bos": tokenizer.encode("a b").ids, "encoded": entries, "decoded": decoded}


def main():
    for style in (gpt2, gpt2_prefix, smollm, llama3, qwen2, llama2, mistral, metaspace):
        tokenizer = style()
        document = json.loads(tokenizer.to_str())
        if style is gpt2:  # the form of older files
            document["model"]["merges"] = [" ".join(m) for m in document["model"]["merges"]]
            del document["model"]["ignore_merges"]
        name = style.__name__
        compact = dict(ensure_ascii=False, separators=(",", ":"))
        (HERE / f"{name}.json").write_text(json.dumps(document, **compact) + "\n", encoding="utf-8")
        reread = Tokenizer.from_file(str(HERE / f"{name}.json"))
        (HERE / f"{name}.expected.json").write_text(json.dumps(expected(reread), **compact) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
