"""Two mechanisms side by side, and the crossover plot."""

import unittest

from browser import PageCase, save


class CompareTest(PageCase):

    def test_both_run_at_once_with_one_prompt_and_seed(self):
        page = self.open()
        page.click("#tab-compare")
        page.fill("#compare-prompt", "slow start")
        page.click("#run-both")
        for box in ("#left", "#right"):
            self.until(
                page,
                f"document.querySelector('{box} .text').innerText.length > 40 && "
                f"document.querySelector('{box} .facts').innerText.includes('of standard’s')",
            )
        self.assertEqual(self.mock.running, 2)
        early = self.bytes_held(page, "#left")
        save(page, "comparing")
        page.wait_for_timeout(500)
        self.assertGreater(self.bytes_held(page, "#left"), early)  # they grow as the text does
        page.click("#stop-both")
        self.wait_for_end(page, "#stop-both")
        first, second = self.mock.bodies
        self.assertEqual(first["prompt"], second["prompt"])
        self.assertEqual(first["seed"], second["seed"])
        self.assertEqual(
            {body["lowkey"]["attention"]["mechanism"] for body in self.mock.bodies},
            {"standard", "atp"},
        )
        self.until_cancelled(page, 2)

    @staticmethod
    def bytes_held(page, box):
        return page.locator(f"{box} .cache .track i:last-child").evaluate("bar => bar.offsetWidth")

    def test_bars_show_the_share_of_standard(self):
        page = self.open()
        page.click("#tab-compare")
        page.fill("#sampling-max_tokens", "60")
        page.click("#run-both")
        self.wait_for_end(page, "#stop-both")
        page.wait_for_timeout(400)  # the bars move
        share = self.bytes_held(page, "#right") / self.bytes_held(page, "#left")
        self.assertAlmostEqual(share, 0.5, delta=0.02)
        self.assertIn("50 % of standard’s", page.inner_text("#right"))
        self.assertIn("100 % of standard’s", page.inner_text("#left"))
        for box in ("#left", "#right"):
            self.assertIn("4.2 ms", page.inner_text(box))
            self.assertRegex(page.inner_text(f"{box} .facts dd"), r"^\d")

    def test_sides_have_mechanisms_and_options_of_their_own(self):
        page = self.open()
        page.click("#tab-compare")
        page.select_option("#left-mechanism", "efficient")
        page.click("#picker-left summary")
        page.select_option("#left-key_storage", "none")
        page.select_option("#right-mechanism", "auto")
        page.click("#run-both")
        self.wait_for_end(page, "#stop-both")
        attention = sorted((body["lowkey"]["attention"] for body in self.mock.bodies), key=str)
        self.assertEqual(
            attention, [{"mechanism": "auto"}, {"mechanism": "efficient", "key_storage": "none"}]
        )
        page.reload()
        page.wait_for_selector("#compare:visible")
        self.assertEqual(page.input_value("#left-mechanism"), "efficient")

    def test_failure_of_one_side_is_its_own(self):
        page = self.open()
        page.click("#tab-compare")
        page.fill("#compare-prompt", "error")
        page.click("#run-both")
        self.wait_for_end(page, "#stop-both")
        self.assertEqual(page.locator(".panes .error:visible").count(), 2)
        page.fill("#compare-prompt", "fine")
        page.click("#run-both")
        self.wait_for_end(page, "#stop-both")
        self.assertEqual(page.locator(".panes .error:visible").count(), 0)


class CrossoverTest(PageCase):

    def test_plot_and_table_show_the_same_numbers(self):
        page = self.open()
        page.fill("#sampling-max_tokens", "200")
        self.write(page, "seven words are in this prompt here")
        self.wait_for_end(page)
        page.click("#tab-crossover")
        page.wait_for_selector("#plot svg")
        lines = "#plot path[stroke-width='2']"
        self.assertEqual(page.locator(lines).count(), 4)  # one for each mechanism
        self.assertEqual(
            page.locator("#numbers thead th").all_inner_texts(),
            ["tokens", "standard", "atp", "taylorshift", "efficient"],
        )
        row = page.locator("#numbers tbody tr", has_text="512").first
        # 0.4 * 512 + 200 tokens of 4e-4 + 9e-7 * 512 seconds
        self.assertEqual(row.locator("td").first.inner_text(), "348 ms")
        self.assertEqual(page.locator("#plot .here").count(), 1)
        self.assertIn("last prompt: 7", page.inner_text("#plot"))
        self.assertIn("last prompt", page.inner_text("#numbers tr.here"))
        page.check("#keys label:has-text('int8') input")
        self.assertEqual(page.locator(lines).count(), 5)
        page.click("#quantities label:has-text('Cache')")
        self.assertIn("MiB", page.inner_text("#numbers"))
        save(page, "crossover")

    def test_marks_are_where_auto_switches(self):
        page = self.open()
        page.click("#tab-crossover")
        page.wait_for_selector("#plot svg")
        self.assertEqual(
            page.locator("#turn-list li").all_inner_texts(),
            [
                "128 tokens or more: efficient → standard",
                "640 tokens or more: standard → taylorshift",
            ],
        )
        self.assertEqual(page.locator("#plot .turn").count(), 2)
        self.assertIn("auto: taylorshift from 640", page.inner_text("#plot"))
        page.select_option("#objective", "memory")
        self.assertIn("efficient at every length", page.inner_text("#turns-title"))
        self.assertEqual(page.locator("#plot .turn").count(), 0)

    def test_figures_come_once_they_are_measured(self):
        self.mock.n_measuring = 1
        page = self.open()
        page.click("#tab-crossover")
        self.until(
            page,
            "document.querySelector('#crossover-note').innerText.includes("
            "'still being measured')",
        )
        self.assertEqual(page.locator("#plot svg").count(), 0)
        page.wait_for_selector("#plot svg")

    def test_missing_rates_say_why(self):
        self.mock.no_rates = True
        page = self.open()
        page.click("#tab-crossover")
        self.until(
            page,
            "document.querySelector('#crossover-note').innerText.includes("
            "'no rates of this machine')",
        )

    def test_length_of_answers_is_the_settings_own(self):
        page = self.open()
        page.fill("#sampling-max_tokens", "77")
        page.click("#tab-crossover")
        self.until(page, "document.querySelector('#crossover-note').innerText.includes('77')")
        page.fill("#sampling-max_tokens", "33")
        page.press("#sampling-max_tokens", "Tab")
        self.until(page, "document.querySelector('#crossover-note').innerText.includes('33')")


if __name__ == "__main__":
    unittest.main()
