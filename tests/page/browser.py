"""Opens the page in Debian's Chromium, and notes whatever it must not do."""

import contextlib
import pathlib
import unittest

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

from mock_server import Mock

CHROMIUM = "/usr/bin/chromium"
# Runs before the page's own script.
WATCH = """
window.violations = [];
addEventListener("securitypolicyviolation",
                 event => violations.push(`${event.violatedDirective} ${event.blockedURI}`));
"""


class PageCase(unittest.TestCase):
    """A test whose page may log no error, break no rule of its policy and ask nobody else."""

    @classmethod
    def setUpClass(cls):
        cls.resources = contextlib.ExitStack()
        cls.addClassCleanup(cls.resources.close)
        playwright = cls.resources.enter_context(sync_playwright())
        cls.browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        cls.resources.callback(cls.browser.close)

    def setUp(self):
        self.mock = Mock()
        self.addCleanup(self.mock.close)
        self.problems = []
        self.pages = []

    def tearDown(self):
        for page in self.pages:
            self.assertEqual(page.evaluate("window.violations"), [])
        self.assertEqual(self.problems, [])

    def open(self, url=None, width=1280, height=860, **options):
        url = url or self.mock.url
        context = self.browser.new_context(viewport={"width": width, "height": height}, **options)
        self.addCleanup(context.close)
        context.add_init_script(WATCH)
        page = context.new_page()
        page.set_default_timeout(20000)
        page.on("console", self.note_console)
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("request", lambda request: self.note_request(request, url))
        page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))
        page.goto(url)
        self.pages.append(page)
        return page

    def note_console(self, message):
        # Chromium logs every answer that is not 200.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.problems.append(f"console: {message.text}")

    def note_request(self, request, url):
        if not request.url.startswith(url) and not request.url.startswith("data:"):
            self.problems.append(f"request to {request.url}")

    def write(self, page, prompt):
        page.fill("#prompt", prompt)
        page.click("#continue")

    def until(self, page, expression):
        """Waits until the expression is true. (The page's policy forbids playwright's own waiting.)"""
        for _ in range(400):
            if page.evaluate(expression):
                return
            page.wait_for_timeout(50)
        self.fail(f"not true after 20 s: {expression}")

    def wait_for_end(self, page, stop="#stop"):
        page.wait_for_selector(f"{stop}:disabled")

    def until_cancelled(self, page, n):
        for _ in range(100):
            if (self.mock.cancelled, self.mock.running) == (n, 0):
                return
            page.wait_for_timeout(50)
        self.fail(
            f"{self.mock.cancelled} cancelled, {self.mock.running} running, expected {n} and 0"
        )

    def text_of(self, page, box="#text-answer"):
        return page.locator(f"{box} .text").evaluate("node => node.innerText")

    def check_access(self, page, where):
        """axe-core's rules, and no sideways scrolling."""
        width = page.evaluate("document.documentElement.scrollWidth")
        self.assertLessEqual(width, page.viewport_size["width"], where)
        # Enabled buttons may not fade in while colors are measured.
        page.wait_for_timeout(50)
        found = Axe().run(page).response["violations"]
        self.assertEqual(
            [(v["id"], [n["html"][:200] for n in v["nodes"]]) for v in found], [], where
        )


def save(page, name):
    """Writes a picture where somebody may look at it."""
    folder = pathlib.Path(__file__).parents[2] / "build/page/pictures"
    folder.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=str(folder / f"{name}.png"))
