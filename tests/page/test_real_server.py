"""The page on the real server with its demo model."""

import contextlib
import json
import os
import subprocess
import tempfile
import unittest
import urllib.request

from browser import PageCase, save

# Rates of a machine, so that no test waits until this one is measured.
RATES = {
    "format": 3,
    "linear": [{"rows": 1, "rate": 2e10}],
    "rates": {
        "standard": [
            {"tokens": 256, "prefill": 4e10, "decode": 8e9},
            {"tokens": 4096, "prefill": 2e10, "decode": 4e9},
        ],
        "taylorshift form auto": [{"tokens": 256, "prefill": 2e10, "decode": 8e9}],
    },
}
TOKENS = {"tenants": [{"name": "ours", "tokens": [{"token": "token-of-the-page-test"}]}]}


@contextlib.contextmanager
def written(value):
    """The name of a file of JSON."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(value, file)
        file.flush()
        yield file.name


class RealServer:
    def __init__(self, *flags):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("LOWKEY_")}
        command = [os.environ["PAGE_SERVER"], "serve", "--json", "--port", "0", *flags]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        self.url = f"http://127.0.0.1:{json.loads(self.process.stdout.readline())['port']}"

    def close(self):
        self.process.terminate()
        self.process.wait(60)
        self.process.stdout.close()

    def get(self, path):
        with urllib.request.urlopen(self.url + path) as answer:
            return json.load(answer)


@unittest.skipUnless("PAGE_SERVER" in os.environ, "PAGE_SERVER names no lowkey")
class RealServerTest(PageCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rates = cls.resources.enter_context(written(RATES))
        cls.server = RealServer("--profile", rates)
        cls.resources.callback(cls.server.close)

    def open_page(self, **options):
        page = self.open(self.server.url, **options)
        page.wait_for_selector("#text-view:visible")
        return page

    def cancelled(self):
        return self.server.get("/lowkey/v1/stats")["cancelled_requests"]

    def test_page_comes_with_its_policy_and_the_models_facts(self):
        with urllib.request.urlopen(self.server.url) as answer:
            self.assertIn("script-src 'sha256-", answer.headers["content-security-policy"])
        page = self.open_page()
        self.assertIn("tales", page.inner_text("#model"))
        page.wait_for_selector("#live:visible")
        names = page.locator("#attention-mechanism option").all_inner_texts()
        self.assertIn("taylorshift", names)
        self.assertIn("atp (approximate)", names)
        for name in ("standard", "atp", "taylorshift", "efficient", "auto"):
            page.select_option("#attention-mechanism", name)
            page.locator("#picker .more").evaluate("more => more.open = true")
            self.check_access(page, name)

    def test_writes_and_tells_what_it_held(self):
        page = self.open_page()
        page.fill("#sampling-max_tokens", "60")
        page.click("text=More")
        page.fill("#sampling-seed", "7")
        for name, is_approximate in (("standard", False), ("atp", True), ("auto", False)):
            with self.subTest(name):
                page.select_option("#attention-mechanism", name)
                page.click("#continue")
                self.wait_for_end(page)
                self.assertEqual(page.locator(".error:visible").count(), 0)
                self.assertGreater(len(self.text_of(page)), 100)
                facts = page.inner_text("#text-answer .facts")
                self.assertRegex(facts, r"\d+ \+ 60")
                self.assertIn("of standard’s", facts)
                self.assertNotIn("about", facts)
                self.assertEqual("approximate" in facts, is_approximate)

    def test_stop_cancels_in_the_engine(self):
        before = self.cancelled()
        page = self.open_page()
        page.fill("#sampling-max_tokens", "1500")
        page.click("text=More")
        page.check("#sampling-ignore-eos")
        page.click("#continue")
        self.until(page, "document.querySelector('#text-answer .text').innerText.length > 100")
        page.click("#stop")
        self.wait_for_end(page)
        for _ in range(200):
            if self.cancelled() == before + 1:
                break
            page.wait_for_timeout(50)
        self.assertEqual(self.cancelled(), before + 1)
        self.assertEqual(self.server.get("/lowkey/v1/stats")["running_requests"], 0)

    def test_compares_a_long_text(self):
        page = self.open_page()
        page.fill("#sampling-max_tokens", "600")
        page.click("text=More")
        page.check("#sampling-ignore-eos")
        page.click("text=More")
        page.click("#tab-compare")
        page.click("#run-both")
        self.until(page, "document.querySelector('#right .text').innerText.length > 800")
        save(page, "real-comparing")
        self.wait_for_end(page, "#stop-both")
        self.assertEqual(page.locator(".error:visible").count(), 0)
        self.assertIn("100 % of standard’s", page.inner_text("#left .cache"))
        self.assertNotIn("100 % of standard’s", page.inner_text("#right .cache"))
        save(page, "real-compared")

    def test_predicted_cache_is_what_the_report_says(self):
        page = self.open_page()
        page.fill("#sampling-max_tokens", "300")
        page.click("text=More")
        page.check("#sampling-ignore-eos")
        for name in ("standard", "atp", "taylorshift", "efficient"):
            page.select_option("#attention-mechanism", name)
            page.click("#continue")
            self.wait_for_end(page)
            share = page.evaluate("""() => {
                const a = continuation, n = a.nPrompt + a.nTokens;
                return bytesAt(a.curve, "cache_bytes", n) / a.report.attention.cache_bytes; }""")
            self.assertAlmostEqual(share, 1, delta=0.25, msg=name)

    def test_crossover_by_the_rates_of_the_profile(self):
        page = self.open_page()
        page.click("#tab-crossover")
        page.wait_for_selector("#plot svg")
        self.assertIn("standard", page.locator("#numbers thead th").all_inner_texts())
        self.assertGreater(page.locator("#numbers tbody tr").count(), 5)
        page.click("#quantities label:has-text('One token')")
        self.check_access(page, "crossover")
        save(page, "real-crossover")

    def test_token_is_asked_for(self):
        with written(TOKENS) as tokens:
            server = RealServer("--profile", "none", "--tokens", tokens)
            self.addCleanup(server.close)
            page = self.open(server.url)
            page.wait_for_selector("#token-dialog[open]")
            page.fill("#token", TOKENS["tenants"][0]["tokens"][0]["token"])
            page.click("#token-ok")
            page.wait_for_selector("#text-view:visible")
            page.wait_for_selector("#live:visible")


if __name__ == "__main__":
    unittest.main()
