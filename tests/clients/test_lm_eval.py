"""lm-evaluation-harness's `local-completions` scores a task as the server's own Score does."""

import importlib.util
import unittest

from served import shared_server, without_proxies

without_proxies()
CONTEXT = "Once upon a time, there was a little girl named"
CHOICES = (" Lily.", " Tom.", " seven.", " the the.")


@unittest.skipUnless(importlib.util.find_spec("lm_eval"), "there is no lm_eval here")
class TestLmEval(unittest.TestCase):
    def test_scores_are_those_of_score(self):
        from lm_eval.api.instance import Instance
        from lm_eval.models.openai_completions import LocalCompletionsAPI

        server = shared_server()
        model = LocalCompletionsAPI(base_url=server.url + "/completions", model=server.model,
                                    tokenizer_backend="remote", num_concurrent=1, max_retries=1)
        requests = [Instance(request_type="loglikelihood", doc={}, arguments=(CONTEXT, choice),
                             idx=i) for i, choice in enumerate(CHOICES)]
        got = model.loglikelihood(requests)

        # The harness sends no beginning-of-sequence token unless it is told to.
        def tokens_of(text):
            return server.post("/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]

        context = tokens_of(CONTEXT)
        scored = server.post("/lowkey/v1/score", {
            "token_ids": context, "continuation_token_ids": [
                tokens_of(CONTEXT + choice)[len(context):] for choice in CHOICES]})
        for (logprob, is_greedy), expected in zip(got, scored["scores"]):
            self.assertAlmostEqual(logprob, expected["logprob"], delta=1e-3)
            self.assertEqual(is_greedy, expected["greedy"])


class TestRequestsOfLmEval(unittest.TestCase):
    """The requests that local-completions sends, and how it reads their answers."""

    def test_scores_are_those_of_score(self):
        server = shared_server()
        context = server.post("/tokenize", {"prompt": CONTEXT})["tokens"]
        prompts = [server.post("/tokenize", {"prompt": CONTEXT + choice})["tokens"]
                   for choice in CHOICES]
        answer = server.post("/v1/completions", {
            "model": server.model, "prompt": prompts, "max_tokens": 1, "temperature": 0,
            "logprobs": 1, "seed": 1234, "echo": True})
        scored = server.post("/lowkey/v1/score", {
            "token_ids": context,
            "continuation_token_ids": [prompt[len(context):] for prompt in prompts]})
        for choice, expected in zip(answer["choices"], scored["scores"]):
            logprobs = choice["logprobs"]
            # The last token is the one that max_tokens asked for.
            tokens = logprobs["token_logprobs"][len(context):-1]
            tops = logprobs["top_logprobs"][len(context):-1]
            self.assertAlmostEqual(sum(tokens), expected["logprob"], delta=1e-3)
            self.assertEqual(all(token == max(top.values()) for token, top in zip(tokens, tops)),
                             expected["greedy"])


if __name__ == "__main__":
    unittest.main()
