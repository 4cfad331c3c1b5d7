#!/usr/bin/env python3
"""Makes the models and expected.json beside this file, with SentencePiece's own library.

    pip install sentencepiece==0.2.1 && python3 make_models.py

Needs no corpus: the text that the models are trained on is made here from a fixed seed. expected.json
holds what SentencePiece encodes and decodes; it is the oracle of tokenizer_test.cc.
"""

import contextlib
import io
import json
import pathlib
import random
import tempfile
import unicodedata

import sentencepiece

HERE = pathlib.Path(__file__).resolve().parent

WORDS = """the a one once upon time there was little girl boy cat dog house tree river mountain wolf fox
bear said went saw found gave took ran walked looked smiled laughed cried and but so because when then
happy sad big small old new red blue green very in on under over to from with for of her his their it
she he they we you I am is are were be been not no yes please thank hello world story end morning night
friend mother father sister brother school garden flower bird fish water sun moon star rain snow""".split()
SPECIALS = ["café", "naïve", "Überraschung", "日本語", "東京", "Ελλάδα", "привет", "мир", "fiancée", "10", "42", "1999"]

NASTY = [
    "", " ", "  ", "   leading", "trailing   ", "in   the   middle", "\n", "\t\tthe\r\ncat", "a", "The",
    "Once upon a time there was a little girl.", "the cat and the dog walked to the river",
    "thethethethe", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "<s>", "</s>", "<unk>", "<pad>",
    "<s>the cat</s>", "<0x41>", "<0x0A> the", "hello<s>world", "\u2581", "the\u2581cat", "\u2581\u2581",
    "café naïve", "cafe\u0301", "日本語の東京", "Ελλάδα привет мир", "🙂", "👩‍👩‍👧‍👦 family", "🇯🇵🇫🇷", "\U0001d11e\U0010ffff",
    "\ufeffbom", "\u200bzero\u200dwidth\u00ad", "fi ﬁ ﬀ ﷺ ½ ² ①", "ＦＵＬＬ　ｗｉｄｔｈ", "\u3000wide space",
    "null\x00inside", "\x00", "\x01\x02\x7f\x80\x9f", "\ufffd", "\ufffe\uffff", "e\u0301\u0327\u0323", "가각힣", "ᄀ\u1161\u11a8",
    "السلام عليكم", "שלום", "हिन्दी", "ไทย", "  \u00a0nbsp\u00a0 ", "\u2028\u2029", "a\u0300" * 20, "<sep>", "a<sep>b", " <sep> the<sep>",
    "<sep", "x<se<sep>p>", "'quoted' \"text\"", "\\n \\x00 %s {}", "I am 42 in 1999", "?!.,;:-_()[]",
    "MiXeD CaSe wOrDs", "ab" * 50, "the " * 30, "\u0d15\u0d4d\u200d", "ﾊﾝｶｸ ｶﾞ", "ǅ ß ẞ İ ı", "𝓽𝓱𝓮 𝕔𝕒𝕥",
]


def corpus():
    rng = random.Random(20)
    for _ in range(4000):
        words = [rng.choice(SPECIALS if rng.random() < 0.06 else WORDS) for _ in range(rng.randint(4, 14))]
        yield " ".join(words).capitalize() + rng.choice([".", "!", "?", "..."])


def train(name, **options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=corpus(), model_writer=model, num_threads=1, minloglevel=2,
        user_defined_symbols=["<sep>"], **options)
    (HERE / f"{name}.model").write_bytes(model.getvalue())


def rules():
    """A part of nmt_nfkc, whose whole table is 240 KB: what NFKC rewrites in some ranges, NMT's spaces and removals."""
    ranges = [(0xA0, 0x180), (0x1E00, 0x1E20), (0x2460, 0x2474), (0x3131, 0x3140), (0xFB00, 0xFB07), (0xFDFA, 0xFDFB), (0xFF01, 0xFF9F)]
    table = {}
    for begin, end in ranges:
        for c in map(chr, range(begin, end)):
            for source in {c, unicodedata.normalize("NFD", c), unicodedata.normalize("NFKD", c)}:
                if source != unicodedata.normalize("NFKC", c):
                    table[source] = unicodedata.normalize("NFKC", c)
    for c in "\t\n\r\u00a0\u200b\u2028\u2029\u3000\ufeff":
        table[c] = " "
    for c in [*range(1, 9), 0xB, *range(0xE, 0x20), 0x7F, 0xAD]:
        table[chr(c)] = ""
    code_points = lambda text: " ".join(f"{ord(c):X}" for c in text)
    return "".join(f"{code_points(a)}\t{code_points(b)}\n" for a, b in sorted(table.items()))


def random_texts(rng, n):
    pools = ["abcdehrtu  ", "the cat ", "日本語東京é ü<sep>", "🙂\u200b\u00a0\n\tﬁ①Ａ", "".join(map(chr, range(32, 0x250)))]
    for _ in range(n):
        pool = rng.choice(pools)
        yield "".join(rng.choice(pool) for _ in range(rng.randint(1, 40)))


def expect(name, rng):
    processor = sentencepiece.SentencePieceProcessor(model_file=str(HERE / f"{name}.model"))
    texts = NASTY + list(random_texts(rng, 150))
    encoded = [{"text": t, "ids": processor.encode(t), "decoded": processor.decode(processor.encode(t))} for t in texts]
    decoded = []
    for _ in range(150):
        low, high = rng.choice([(0, processor.piece_size() - 1), (0, 263), (processor.piece_size() - 40, processor.piece_size() - 1)])
        ids = [rng.randint(low, high) for _ in range(rng.randint(1, 12))]
        decoded.append({"ids": ids, "text": processor.decode(ids)})
    return {"model": f"{name}.model", "encoded": encoded, "decoded": decoded}


def main():
    train("bpe_identity", vocab_size=420 + 256, model_type="bpe", byte_fallback=True,
          normalization_rule_name="identity", remove_extra_whitespaces=False, character_coverage=0.995)
    with tempfile.TemporaryDirectory() as directory, contextlib.chdir(directory):
        pathlib.Path("rules.tsv").write_text(rules())  # the model keeps the name
        train("unigram_nfkc", vocab_size=300, model_type="unigram", normalization_rule_tsv="rules.tsv", character_coverage=0.9995)
    rng = random.Random(7)
    expected = [expect(name, rng) for name in ("bpe_identity", "unigram_nfkc")]
    text = json.dumps(expected, ensure_ascii=True, separators=(",", ":"))
    (HERE / "expected.json").write_text(text.replace('{"text":', '\n{"text":').replace('{"ids":', '\n{"ids":') + "\n")


if __name__ == "__main__":
    main()
