"""Is a page that the browser no longer draws closed and named, and do the tests of it get another?

Chromium can lose the end of a raster task while a worker compiles WebAssembly on a busy machine. Then no
frame comes any more: animations stand, and a screenshot, a click or a wait for stability never ends.
"""

from built_book import STUCK, built_pages, drawn


def test_a_page_without_frames_is_closed_named_and_opened_again(address, open_page):
    name = built_pages()[0]
    visits = [open_page(address + name, name)]
    assert drawn(visits, open_page) is visits[0] and not STUCK, "one that is drawn stays"
    before = visits[0]
    before.patience = 2000  # ms: it is known to be stuck
    before.page.evaluate("window.requestAnimationFrame = () => 0")
    assert not before.gets_frames()
    after = drawn(visits, open_page)
    assert STUCK.pop() == name
    assert before.page.is_closed() and visits == [after]
    assert after.page.url == address + name and after.gets_frames()
    after.page.close()
