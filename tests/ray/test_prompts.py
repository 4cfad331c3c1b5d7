"""What the gateway reads of requests: their model, the key of their prompt."""

import json
import random
import unittest

import paths  # noqa: F401
from lowkey_ray import prompts
from wire import text as field
from wire import varint


def message(role: bytes, content: bytes) -> bytes:
    return field(1, field(1, role) + field(2, content))


def chat(*turns: tuple[str, str]) -> bytes:
    messages = [{"role": role, "content": content} for role, content in turns]
    return json.dumps({"model": "tales", "messages": messages}).encode()


class Json(unittest.TestCase):
    def test_a_later_turn_has_the_key_of_its_conversation(self) -> None:
        first = prompts.read_json("", chat(("system", "Be kind."), ("user", "Hello")))
        later = prompts.read_json("", chat(("system", "Be kind."), ("user", "Hello"),
                                           ("assistant", "Hi"), ("user", "More")))
        other = prompts.read_json("", chat(("system", "Be kind."), ("user", "Bye")))
        self.assertEqual(first, later)
        self.assertEqual("tales", first.model)
        self.assertNotEqual(first.key, other.key)

    def test_prompts_share_the_key_of_their_first_page(self) -> None:
        def key(prompt: object) -> bytes:
            return prompts.read_json("", json.dumps({"prompt": prompt}).encode()).key

        page = "x" * prompts.PAGE_BYTES
        self.assertEqual(key(page + "a"), key(page + "b"))
        self.assertEqual(key(page), key([page, "another"]))
        self.assertNotEqual(key("a" + page), key("b" + page))
        ids = list(range(prompts.PAGE_TOKENS))
        self.assertEqual(key(ids + [1]), key(ids + [2]))
        self.assertEqual(key([ids, [1]]), key(ids))
        self.assertNotEqual(key(ids), key(ids[1:]))

    def test_prompts_below_a_page_have_no_key(self) -> None:
        for prompt in ("x" * (prompts.PAGE_BYTES - 1), [1] * (prompts.PAGE_TOKENS - 1), ["x", "y"]):
            body = json.dumps({"model": "tales", "prompt": prompt}).encode()
            self.assertEqual(prompts.Reading("tales", b""), prompts.read_json("", body))

    def test_tenants_have_keys_of_their_own(self) -> None:
        body = chat(("user", "Hello"))
        self.assertNotEqual(prompts.read_json("Bearer a", body), prompts.read_json("Bearer b", body))

    def test_what_cannot_be_read_has_no_key(self) -> None:
        for body in (b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"prompt": 1}',
                     b'{"prompt": []}', b'{"messages": {}}', b'{"model": 1}', b'{"a": ' + b"9" * 9999):
            with self.subTest(body[:20]):
                self.assertEqual(prompts.Reading("", b""), prompts.read_json("", body))

    def test_messages_of_any_shape_are_read(self) -> None:
        for messages in ([], [1], [None, {"role": 7}], [{"role": "user", "content": [{}]}],
                         [{"role": "user", "content": "\ud800"}]):
            with self.subTest(messages):
                prompts.read_json("", json.dumps({"messages": messages}).encode())


class Grpc(unittest.TestCase):
    def test_the_model_and_the_first_page_are_read(self) -> None:
        page = b"x" * prompts.PAGE_BYTES
        one = prompts.read_grpc("Generate", "", field(1, b"tales") + field(3, page + b"a"))
        two = prompts.read_grpc("GenerateStream", "", field(1, b"tales") + field(3, page + b"b"))
        self.assertEqual(one, two)
        self.assertEqual("tales", one.model)
        self.assertTrue(one.key)
        self.assertFalse(prompts.read_grpc("Generate", "", field(3, page[1:])).key)
        self.assertFalse(prompts.read_grpc("Generate", "", field(4, b"x" * 63)).key)
        self.assertTrue(prompts.read_grpc("Generate", "", field(4, b"x" * 64)).key)
        self.assertFalse(prompts.read_grpc("Tokenize", "", field(2, page)).key)
        self.assertTrue(prompts.read_grpc("Score", "", field(2, page)).key)

    def test_a_later_turn_has_the_key_of_its_conversation(self) -> None:
        begin = message(b"system", b"Be kind.") + message(b"user", b"Hello")
        first = prompts.read_grpc("Generate", "", field(5, begin))
        later = prompts.read_grpc("Generate", "", field(5, begin + message(b"assistant", b"Hi")))
        other = prompts.read_grpc("Generate", "", field(5, message(b"user", b"Bye")))
        self.assertEqual(first, later)
        self.assertNotEqual(first, other)

    def test_bytes_that_are_no_message_have_no_key(self) -> None:
        rng = random.Random(1)
        whole = field(1, b"tales") + field(5, message(b"user", b"Hello"))
        for _ in range(2000):
            prompts.read_grpc("Generate", "", rng.randbytes(rng.randrange(40)))
            broken = bytearray(whole)
            broken[rng.randrange(len(whole))] = rng.randrange(256)
            prompts.read_grpc("Generate", "", bytes(broken[:rng.randrange(len(whole) + 1)]))
        self.assertEqual(prompts.Reading("", b""), prompts.read_grpc("Generate", "", whole[:-1]))

    def test_stats_are_read(self) -> None:
        stats = field(1, b"0.1.0") + bytes([2 << 3 | 1]) + bytes(8) + bytes([3 << 3, 5, 4 << 3])
        self.assertEqual(prompts.Stats(5, 300), prompts.stats_of(stats + varint(300)))


if __name__ == "__main__":
    unittest.main()
