"""Continuing texts and holding conversations."""

import json
import unittest

from browser import PageCase, save
from mock_server import HOSTILE, WORDS


class WriteTest(PageCase):

    def test_streams_a_continuation_of_the_sample_prompt(self):
        page = self.open()
        prompt = page.input_value("#prompt")
        self.assertTrue(prompt)
        page.fill("#sampling-max_tokens", "40")
        page.click("#continue")
        self.wait_for_end(page)
        expected = "".join(" " + WORDS[i % len(WORDS)] for i in range(40))
        self.assertEqual(self.text_of(page), prompt + expected)
        body = self.mock.bodies[0]
        self.assertEqual(body["path"], "/v1/completions")
        self.assertEqual(body["prompt"], prompt)
        self.assertEqual(
            (body["model"], body["stream"], body["max_tokens"], body["temperature"]),
            ("tales", True, 40, 0.7),
        )
        self.assertNotIn("lowkey", body)  # nothing was picked
        self.assertNotIn("top_p", body)
        facts = page.inner_text("#text-answer .facts")
        self.assertIn("4.2 ms", facts)  # the server's own time to the first token
        self.assertIn(f"{len(prompt.split())} + 40", facts)
        self.assertIn("100 % of standard’s", facts)

    def test_text_comes_while_it_is_written_and_stop_cancels_on_the_server(self):
        page = self.open()
        self.write(page, "slow")
        self.until(page, "document.querySelector('#text-answer .text').innerText.length > 20")
        save(page, "streaming")
        self.assertTrue(page.is_disabled("#continue"))
        self.assertEqual(page.evaluate("document.activeElement.id"), "stop")
        self.assertIn("about", page.inner_text("#text-answer .facts"))
        page.keyboard.press("Enter")
        self.wait_for_end(page)
        self.assertEqual(page.evaluate("document.activeElement.id"), "continue")
        self.assertIn("stopped", page.inner_text("#text-note"))
        self.until_cancelled(page, 1)
        self.assertEqual(page.locator(".error:visible").count(), 0)
        self.write(page, "again")
        self.wait_for_end(page)
        self.assertEqual(self.mock.finished, 1)

    def test_picked_mechanism_and_its_changed_options_are_sent(self):
        page = self.open()
        page.select_option("#attention-mechanism", "atp")
        page.click("#picker summary")
        page.fill("#attention-rank", "1/8")
        page.fill("#attention-block_tokens", "64")
        page.check("#attention-merge")
        page.select_option("#attention-basis", "kv")
        page.select_option("#attention-basis", "layer")  # the default again
        self.write(page, "a")
        self.wait_for_end(page)
        self.assertEqual(
            self.mock.bodies[0]["lowkey"]["attention"],
            {"mechanism": "atp", "rank": "1/8", "block_tokens": 64, "merge": True},
        )
        facts = page.inner_text("#text-answer .facts")
        self.assertIn("50 % of standard’s", facts)
        self.assertIn("approximate", facts)
        page.select_option("#attention-mechanism", "taylorshift")
        self.assertIn("1.053 times", page.inner_text("#attention-about"))
        self.write(page, "b")
        self.wait_for_end(page)
        self.assertEqual(self.mock.bodies[1]["lowkey"]["attention"], {"mechanism": "taylorshift"})

    def test_auto_sends_its_rules_and_shows_why_it_chose(self):
        page = self.open()
        page.select_option("#attention-mechanism", "auto")
        page.click("#picker summary")
        page.select_option("#attention-objective", "latency")
        page.check("#attention-approximate")
        page.fill("#attention-ratio", "1.1")
        self.write(page, "a")
        self.wait_for_end(page)
        self.assertEqual(
            self.mock.bodies[0]["lowkey"]["attention"],
            {
                "mechanism": "auto",
                "objective": "latency",
                "allow_approximate": True,
                "max_perplexity_ratio": 1.1,
            },
        )
        self.assertIn("auto, balanced: <u>cheapest</u>", page.inner_text("#text-answer .why"))
        self.assertIn("taylorshift", page.inner_text("#text-answer .facts dl"))

    def test_numbers_out_of_range_are_refused_here(self):
        page = self.open()
        page.fill("#sampling-temperature", "3")
        self.write(page, "a")
        self.assertIn("Temperature: expected 0 to 2", page.inner_text("#notice"))
        self.assertEqual(page.get_attribute("#sampling-temperature", "aria-invalid"), "true")
        self.assertEqual(self.mock.bodies, [])
        page.fill("#sampling-temperature", "")
        self.write(page, "a")
        self.wait_for_end(page)
        self.assertNotIn("temperature", self.mock.bodies[0])  # the server's own
        self.assertEqual(page.inner_text("#notice"), "")

    def test_errors_are_shown_as_text(self):
        page = self.open()
        for prompt, message in [
            ("refuse", 'attention.rank: "x", expected <b>a number</b>'),
            ("busy", "queue: full (try again in 7 s)"),
            ("error", "logits: <i>NaN</i>"),
            ("garble", "An event of the stream is not a JSON object."),
            ("break", "The stream broke off before its end."),
        ]:
            with self.subTest(prompt):
                self.write(page, prompt)
                self.wait_for_end(page)
                self.assertEqual(page.inner_text("#text-answer .error"), message)
        self.assertEqual(self.text_of(page), "break" + "".join(" " + word for word in WORDS[:3]))

    def test_server_that_went_away_is_said_to_be_gone(self):
        page = self.open()
        page.wait_for_selector("#text-view:visible")
        self.mock.close()
        self.write(page, "a")
        self.wait_for_end(page)
        self.assertIn("cannot be reached", page.inner_text("#text-answer .error"))

    def test_what_a_model_says_is_text_whatever_it_spells(self):
        page = self.open()
        self.write(page, "hostile")
        self.wait_for_end(page)
        self.assertEqual(
            page.locator("#text-answer .text")
            .evaluate("node => node.textContent")
            .removeprefix("The continuation appears here."),
            "hostile" + "".join(HOSTILE),
        )
        page.click("#tab-compare")
        page.fill("#compare-prompt", "hostile <img src=x onerror='window.broken = 4'>")
        page.click("#run-both")
        self.wait_for_end(page, "#stop-both")
        page.wait_for_timeout(200)
        self.assertIsNone(page.evaluate("window.broken ?? null"))
        self.assertEqual(
            page.locator("img, script:not(body > script), .text svg, .text a, .text h1").count(), 0
        )

    def test_settings_survive_a_reload_and_nothing_else_does(self):
        page = self.open()
        page.fill("#sampling-temperature", "1.3")
        page.select_option("#attention-mechanism", "atp")
        page.click("#picker summary")
        page.fill("#attention-rank", "7")
        self.write(page, "a prompt of mine")
        self.wait_for_end(page)
        page.click("#tab-compare")
        page.reload()
        page.wait_for_selector("#compare:visible")
        page.click("#tab-write")
        self.assertEqual(page.input_value("#sampling-temperature"), "1.3")
        self.assertEqual(page.input_value("#attention-mechanism"), "atp")
        self.assertEqual(page.input_value("#attention-rank"), "7")
        self.assertNotEqual(page.input_value("#prompt"), "a prompt of mine")
        kept = page.evaluate("JSON.stringify(sessionStorage)")
        self.assertNotIn("of mine", kept)
        self.assertNotIn("robot who lived", kept)
        self.assertEqual(page.evaluate("localStorage.length + document.cookie.length"), 0)

    def test_broken_settings_are_ignored(self):
        page = self.open()
        page.wait_for_selector("#text-view:visible")
        page.evaluate(
            """() => { for (const key of ["attention", "sampling", "tab", "left", "lines"])
                     sessionStorage.setItem("lowkey." + key, '{"mechanism": 7'); }"""
        )
        page.reload()
        page.wait_for_selector("#text-view:visible")
        page.evaluate("""sessionStorage.setItem("lowkey.attention",
                     '{"mechanism": "<img>", "options": {"rank": 1}}')""")
        page.reload()
        page.wait_for_selector("#text-view:visible")
        self.assertEqual(page.input_value("#attention-mechanism"), "")


class ChatTest(PageCase):

    def setUp(self):
        super().setUp()
        self.mock.chat_refusal = ""

    def say(self, page, text):
        page.fill("#message", text)
        page.press("#message", "Enter")
        self.wait_for_end(page, "#stop-chat")

    def test_conversation_has_a_system_prompt_and_remembers(self):
        page = self.open()
        page.fill("#sampling-max_tokens", "3")
        page.fill("#system", "Be brief.")
        self.say(page, "Hello")
        self.say(page, "And then?")
        answer = {"role": "assistant", "content": " Once there was"}
        self.assertEqual(
            self.mock.bodies[1]["messages"],
            [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Hello"},
                answer,
                {"role": "user", "content": "And then?"},
            ],
        )
        self.assertEqual(self.mock.bodies[0]["path"], "/v1/chat/completions")
        self.assertEqual(page.locator("#turns > li").count(), 4)
        page.click("#new-chat")
        self.say(page, "Hello again")
        self.assertEqual(len(self.mock.bodies[2]["messages"]), 2)

    def test_stopped_answer_stays_in_the_conversation(self):
        page = self.open()
        page.fill("#message", "slow")
        page.press("#message", "Shift+Enter")
        self.assertEqual(self.mock.bodies, [])
        page.click("#send")
        self.until(
            page,
            "document.querySelector('#turns .text:not(.user)') !== null && "
            "document.querySelectorAll('#turns .text')[1].innerText.length > 10",
        )
        page.click("#stop-chat")
        self.wait_for_end(page, "#stop-chat")
        self.say(page, "next")
        roles = [message["role"] for message in self.mock.bodies[1]["messages"]]
        self.assertEqual(roles, ["user", "assistant", "user"])
        self.assertTrue(self.mock.bodies[1]["messages"][1]["content"])

    def test_refused_message_can_be_sent_again(self):
        page = self.open()
        self.say(page, "refuse")
        self.assertIn("expected <b>a number</b>", page.inner_text("#turns .error"))
        self.assertEqual(page.input_value("#message"), "refuse")
        self.say(page, "other")
        self.assertEqual([m["content"] for m in self.mock.bodies[1]["messages"]], ["other"])

    def test_hostile_answers_are_text(self):
        page = self.open()
        self.say(page, "hostile <script>window.broken = 9</script>")
        self.assertIsNone(page.evaluate("window.broken ?? null"))
        self.assertIn(HOSTILE[1], page.inner_text("#turns"))

    def test_thoughts_stand_folded_before_the_answer_and_are_not_sent_back(self):
        page = self.open()
        page.fill("#sampling-max_tokens", "6")
        self.say(page, "think")
        thoughts = page.locator("#turns .thoughts")
        self.assertIsNone(thoughts.get_attribute("open"))
        self.assertEqual(page.text_content("#turns .thought"), " Once there was")
        self.assertEqual(page.text_content("#turns .thoughts + .text"), " a small robot")
        thoughts.locator("summary").click()
        self.assertTrue(page.is_visible("#turns .thought"))
        self.check_access(page, "thoughts")
        save(page, "thoughts")
        self.say(page, "and then?")
        self.assertEqual(
            self.mock.bodies[1]["messages"][1], {"role": "assistant", "content": " a small robot"}
        )
        self.assertEqual(page.locator("#turns .thoughts:visible").count(), 1)

    def test_thoughts_are_seen_while_they_come(self):
        page = self.open()
        page.fill("#message", "slow think")
        page.press("#message", "Enter")
        self.until(page, "document.querySelector('#turns .thought')?.innerText.length > 10")
        self.assertTrue(page.is_visible("#turns .thought"))
        self.assertEqual(page.text_content("#turns .thoughts + .text"), "")
        page.click("#stop-chat")
        self.wait_for_end(page, "#stop-chat")

    def test_hostile_thoughts_are_text(self):
        page = self.open()
        self.say(page, "hostile think")
        self.assertIsNone(page.evaluate("window.broken ?? null"))
        self.assertEqual(page.text_content("#turns .thought"), "".join(HOSTILE[:3]))

    def test_texts_can_be_continued_too(self):
        page = self.open()
        page.select_option("#mode", "text")
        self.write(page, "a")
        self.wait_for_end(page)
        self.assertEqual(self.mock.bodies[0]["path"], "/v1/completions")
        page.reload()
        page.wait_for_selector("#text-view:visible")


if __name__ == "__main__":
    unittest.main()
