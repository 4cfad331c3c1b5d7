"""The tokenizer of a model: SentencePiece, tokenizer.json, or the one inside a GGUF file."""

from pathlib import Path


class JsonTokenizer:
    """A tokenizer of Hugging Face's transformers with SentencePieceProcessor's few calls."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def encode(self, text, add_bos: bool = False, add_eos: bool = False):
        if not isinstance(text, str):
            return [self.encode(one, add_bos, add_eos) for one in text]
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        before = [self.bos_id()] if add_bos and self.tokenizer.bos_token_id is not None else []
        after = [self.eos_id()] if add_eos else []
        return [*before, *ids, *after]

    def decode(self, ids) -> str:
        return self.tokenizer.decode(ids)

    def bos_id(self) -> int:
        return self.tokenizer.bos_token_id

    def eos_id(self) -> int:
        if self.tokenizer.eos_token_id is None:
            raise ValueError("the tokenizer has no eos token: tokenizer_config.json must name one")
        return self.tokenizer.eos_token_id


def load_tokenizer(model: Path):
    """Returns the tokenizer of a Hugging Face folder or a GGUF file."""
    if model.is_dir() and (model / "tokenizer.model").exists():
        import sentencepiece

        return sentencepiece.SentencePieceProcessor(model_file=str(model / "tokenizer.model"))
    from transformers import AutoTokenizer

    if model.is_dir():
        return JsonTokenizer(AutoTokenizer.from_pretrained(model))
    return JsonTokenizer(AutoTokenizer.from_pretrained(model.parent, gguf_file=model.name))
