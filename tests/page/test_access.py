"""Keyboards, screen readers, narrow windows, both color schemes, tokens, live figures."""

import unittest

from browser import PageCase, save

VIEWS = ("write", "compare", "crossover")


class AccessTest(PageCase):

    def test_every_view_in_both_schemes_and_widths(self):
        for scheme in ("light", "dark"):
            for width, height in ((1280, 860), (390, 844)):
                page = self.open(width=width, height=height, color_scheme=scheme)
                self.check_access(page, f"empty {scheme} {width}")
                if width < 900:
                    page.click("#settings > summary")
                page.click("#picker .more summary")
                page.fill("#sampling-max_tokens", "20")
                page.click("#continue")
                self.wait_for_end(page)
                page.click("#tab-compare")
                page.click("#run-both")
                self.wait_for_end(page, "#stop-both")
                page.click("#tab-crossover")
                page.wait_for_selector("#plot svg")
                for view in VIEWS:
                    page.click(f"#tab-{view}")
                    self.check_access(page, f"{view} {scheme} {width}")
                    save(page, f"{view}-{scheme}-{width}")

    def test_conversation(self):
        self.mock.chat_refusal = ""
        for scheme in ("light", "dark"):
            page = self.open(width=390, height=844, color_scheme=scheme)
            page.fill("#message", "refuse")
            page.press("#message", "Enter")
            page.wait_for_selector("#turns .error:visible")
            self.check_access(page, f"chat {scheme}")
            save(page, f"chat-{scheme}-390")

    def test_zoom_of_200_percent(self):
        # A window of 1280 pixels at 200% has 640 of the page's.
        page = self.open(width=640, height=430, device_scale_factor=2)
        page.wait_for_selector("#text-view:visible")
        for view in VIEWS:
            page.click(f"#tab-{view}")
            self.check_access(page, f"{view} at 200%")

    def test_narrowest_window(self):
        page = self.open(width=320, height=640)
        page.click("#settings > summary")
        for view in VIEWS:
            page.click(f"#tab-{view}")
            self.check_access(page, f"{view} at 320")

    def test_landmarks_and_labels(self):
        page = self.open()
        page.wait_for_selector("#text-view:visible")
        for landmark in ("banner", "main", "complementary", "tablist", "status"):
            self.assertEqual(page.get_by_role(landmark).count(), 1, landmark)
        for name in ("Mechanism", "Temperature", "Prompt"):
            self.assertEqual(
                page.get_by_label(name, exact=True).locator("visible=true").count(), 1, name
            )
        self.assertEqual(page.get_attribute("html", "lang"), "en")
        self.assertEqual(page.title(), "lowkey: tales")

    def test_keyboard_alone(self):
        page = self.open()
        page.wait_for_selector("#text-view:visible")
        page.keyboard.press("Tab")
        self.assertEqual(page.evaluate("document.activeElement.className"), "skip")
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        self.assertEqual(page.evaluate("document.activeElement.id"), "tab-write")
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        self.assertEqual(outline, "solid")
        page.keyboard.press("ArrowRight")
        self.assertEqual(page.evaluate("document.activeElement.id"), "tab-compare")
        page.keyboard.press("End")
        self.assertTrue(page.is_visible("#crossover"))
        page.keyboard.press("Home")
        page.keyboard.press("Tab")
        self.assertEqual(page.evaluate("document.activeElement.id"), "prompt")
        page.keyboard.press("Control+Enter")
        self.wait_for_end(page)
        self.assertEqual(self.mock.finished, 1)

    def test_screen_readers_hear_one_sentence_a_second_at_most(self):
        page = self.open()
        page.wait_for_selector("#text-view:visible")
        page.evaluate("""() => { window.heard = [];
        new MutationObserver(() => heard.push([performance.now(), status.textContent]))
            .observe(document.getElementById("status"), {childList: true}); }""")
        self.write(page, "slow")
        page.wait_for_timeout(3500)
        page.click("#stop")
        page.wait_for_timeout(1200)
        heard = page.evaluate("window.heard.map(([at]) => at)")
        self.assertIn(len(heard), range(2, 6))
        for before, after in zip(heard, heard[1:]):
            self.assertGreaterEqual(after - before, 950)
        self.assertIn("stopped after", page.inner_text("#status"))
        self.assertIsNone(page.get_attribute("#text-answer .text", "aria-live"))

    def test_reduced_motion(self):
        page = self.open(reduced_motion="reduce")
        self.write(page, "slow")
        page.wait_for_selector(".writing")
        self.assertEqual(
            page.evaluate(
                "getComputedStyle(document.querySelector('.writing .text'), '::after').animationName"
            ),
            "none",
        )
        self.assertEqual(
            page.evaluate(
                "getComputedStyle(document.querySelector('#cache-bar')).transitionDuration"
            ),
            "0s",
        )
        page.click("#stop")
        self.wait_for_end(page)


class TokenTest(PageCase):

    def setUp(self):
        super().setUp()
        self.mock.token = "right-token"

    def test_token_is_asked_for_and_kept(self):
        page = self.open()
        page.wait_for_selector("#token-dialog[open]")
        self.assertEqual(page.evaluate("document.activeElement.id"), "token")
        self.check_access(page, "token")
        page.fill("#token", "wrong token")
        page.keyboard.press("Enter")
        self.assertIn("no spaces", page.inner_text("#token-note"))
        page.fill("#token", "wrong")
        page.keyboard.press("Enter")
        self.until(
            page, "document.querySelector('#token-note').innerText.includes(" "'does not know')"
        )
        page.fill("#token", "right-token")
        page.click("#token-ok")
        page.wait_for_selector("#text-view:visible")
        self.write(page, "a")
        self.wait_for_end(page)
        self.assertEqual(self.mock.finished, 1)
        page.reload()
        page.wait_for_selector("#text-view:visible")
        self.assertEqual(page.locator("#token-dialog[open]").count(), 0)
        self.assertNotIn("right-token", page.url + page.content())

    def test_who_gives_none_is_not_asked_again_and_again(self):
        page = self.open()
        page.wait_for_selector("#token-dialog[open]")
        page.keyboard.press("Escape")
        page.wait_for_selector("#give-token:visible")
        n = len(self.mock.paths)
        page.wait_for_timeout(3000)
        self.assertEqual(len(self.mock.paths), n)
        self.assertIn("token", page.inner_text("#notice"))
        page.click("#give-token")
        page.fill("#token", "right-token")
        page.click("#token-ok")
        page.wait_for_selector("#text-view:visible")
        self.assertEqual(page.locator("#give-token:visible").count(), 0)

    def test_token_that_expires_is_asked_for_again(self):
        page = self.open()
        page.fill("#token", "right-token")
        page.click("#token-ok")
        page.wait_for_selector("#text-view:visible")
        self.mock.token = "next-token"
        page.wait_for_selector("#token-dialog[open]")  # as the live figures come
        page.fill("#token", "next-token")
        page.click("#token-ok")
        self.write(page, "a")
        self.wait_for_end(page)
        self.assertEqual(self.mock.finished, 1)


class LiveTest(PageCase):

    def polls(self):
        return self.mock.paths.count("/lowkey/v1/stats")

    def test_figures_come_every_two_seconds_unless_the_page_is_hidden(self):
        page = self.open()
        page.wait_for_selector("#live:visible")
        self.assertEqual(page.inner_text("#running"), "0")
        self.assertEqual(page.inner_text("#cache-text"), "11.8 MiB of 256 MiB")
        n = self.polls()
        page.wait_for_timeout(4600)
        self.assertIn(self.polls() - n, (1, 2, 3))
        self.hide(page, "true")
        page.wait_for_timeout(300)
        n = self.polls()
        page.wait_for_timeout(4600)
        self.assertEqual(self.polls(), n)
        self.hide(page, "false")
        page.wait_for_timeout(500)
        self.assertEqual(self.polls(), n + 1)

    @staticmethod
    def hide(page, is_hidden):
        page.evaluate(
            "Object.defineProperty(document, 'hidden', {value: %s, configurable: true});"
            "document.dispatchEvent(new Event('visibilitychange'))" % is_hidden
        )

    def test_figures_go_while_the_server_is_away(self):
        page = self.open()
        page.wait_for_selector("#live:visible")
        self.mock.close()
        page.wait_for_selector("#live", state="hidden")


if __name__ == "__main__":
    unittest.main()
