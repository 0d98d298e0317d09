"""Ranks in a page without a kernel: run, edit, step, share, refuse; and nothing gets out of the frame."""

import socket
import socketserver
import threading
import time
from pathlib import Path

import pytest
from built_book import AXE

pytestmark = pytest.mark.stamped("programs")
RANKS = "notebooks/foundations/ranks.html"
RAN = """([name, source]) => new Promise((done, late) => {
  const figure = document.getElementById(`ranks-${name}`);
  const area = figure.querySelector("textarea");
  if (source !== null) { area.value = source; area.dispatchEvent(new Event("input", { bubbles: true })); }
  figure.addEventListener("ar-ran", done, { once: true });
  setTimeout(() => late("it has not run"), 120000);
  figure.querySelector('[data-do="run"]').click();
})"""
HOSTILE = {
    "a request": "r = js.XMLHttpRequest.new()\nr.open('GET', 'ADDRESS', False)\nr.send()",
    "a script": "js.importScripts('ADDRESS')",
    "the storage": "js.localStorage.getItem('x')",
    "the page": "js.parent.document",
    "a string as a script": "js.eval('1')",
}
REACHING = {  # what might reach a server; each may fail or be ignored, but nothing may arrive
    "a fetch": "js.fetch('http://HOST/')",
    "a socket": "js.WebSocket.new('ws://HOST/')",
    "events": "js.EventSource.new('http://HOST/')",
    "a request": "r = js.XMLHttpRequest.new(); r.open('GET', 'http://HOST/', False); r.send()",
    "a script": "js.importScripts('http://HOST/')",
    "a worker": "js.Worker.new('http://HOST/')",
    "a worker of its own": """js.Worker.new(js.URL.createObjectURL(js.Blob.new(js.JSON.parse(
        '["fetch(\\'http://HOST/\\')"]'))))""",
}
FORGED = """
import js, json
mark = '<script>document.title = "broken"</script><image href="x"/><rect onclick="x" width="1" height="1"/>'
svg = '<svg xmlns="http://www.w3.org/2000/svg" onload="document.title=1">' + mark + "</svg>"
told = {"svg": svg, "text": "<b>forged</b>", "steps": 0, "ranks": [], "lines": [], "worlds": 1}
told.update({"failure": None, "printed": "forged"})
js.postMessage(js.JSON.parse(json.dumps({"id": 2, "answer": json.dumps(told)})))
"""


@pytest.fixture(scope="module")
def visit(address, open_page):
    """The chapter *Ranks*, with nothing done yet."""
    visit = open_page(address + RANKS)
    yield visit
    visit.page.close()


def run(page, name, source=None):
    """Run a program; what the page then says: (printed, failure, caption)."""
    page.evaluate(RAN, [name, source])
    figure = page.locator(f"#ranks-{name}")
    parts = (".ar-printed", ".ar-failure", "figcaption")
    return tuple(figure.locator(part).text_content() for part in parts)


def step_back(figure):
    """Take back one message; what the caption then says."""
    step = "f => new Promise(done => { f.addEventListener('ar-stepped', done, { once: true });"
    figure.evaluate(step + " f.querySelector('[data-do=back]').click(); })")
    return figure.locator("figcaption").text_content()


def test_nothing_is_loaded_before_a_program_is_touched(visit):
    assert visit.page.locator("figure.ar-ranks svg").count() > 4
    assert not [url for url in visit.requested if "_static/explorers/" in url]
    assert visit.page.locator("iframe").count() == 0


@pytest.mark.stamped(None)
def test_a_program_runs_and_its_messages_are_shown_one_by_one(visit):
    page, figure = visit.page, visit.page.locator("#ranks-launch-2")
    printed, failure, caption = run(page, "launch-2")
    assert (printed, failure) == ("[6.0, 1.0, 3.0, 6.0]\n", "")
    assert caption.startswith("4 messages on 4 ranks in 40 µs")
    assert step_back(figure).startswith("3 of 4: rank 2 → rank 3")
    assert figure.locator(".ar-space-wide g").count() == 3
    assert figure.locator(".ar-marked").count() == 2
    assert not visit.problems


def test_an_edited_program_survives_a_reload_and_is_reset(visit):
    page = visit.page
    source = "def program():\n    dist.barrier()\n    return 7\n\n\nlaunch(program, world_size=3)"
    assert run(page, "launch-2", source)[0] == "[7, 7, 7]\n"
    page.reload()
    area = page.locator("#ranks-launch-2 textarea")
    assert area.input_value() == source
    page.locator("#ranks-launch-2 [data-do=reset]").click()
    assert area.input_value().startswith("def around():")
    page.reload()
    assert area.input_value().startswith("def around():")


def test_the_number_of_ranks_is_set_in_the_text(visit):
    page = visit.page
    page.locator("#ranks-launch select[name=ranks]").select_option("2")
    assert "world_size=2" in page.locator("#ranks-launch textarea").input_value()
    page.locator("#ranks-launch figcaption", has_text="on 2 ranks").wait_for()
    page.locator("#ranks-launch [data-do=reset]").click()


@pytest.mark.stamped(None)
def test_a_deadlock_is_named_with_both_lines(visit):
    _, failure, _ = run(visit.page, "launch-7")
    assert failure == (
        "deadlock: rank 0 waits in recv from rank 1 (line 3, in after_you); "
        "rank 1 waits in recv from rank 0 (line 3, in after_you)"
    )
    assert visit.page.locator("#ranks-launch-7 .ar-marked").count() == 1
    assert visit.page.locator("#ranks-launch-7 textarea").is_visible()


def test_an_exercise_is_checked_in_the_page(visit):
    assert run(visit.page, "swap")[0].startswith("✗ Your function did not finish: ranks 0, 1")
    solved = """
def swap(mine):
    theirs = torch.empty_like(mine)
    other = 1 - dist.get_rank()
    sent = dist.isend(mine, other)
    dist.recv(theirs, other)
    sent.wait()
    return theirs


check.ranks.swap(swap)"""
    assert run(visit.page, "swap", solved)[0] == "✓ Each rank holds what the other had.\n"


def test_a_program_that_runs_on_is_stopped_and_the_page_goes_on(visit):
    spin = "def f():\n    while dist.get_rank() == 2:\n        pass\n\n\nlaunch(f, world_size=4)"
    assert run(visit.page, "swap", spin)[1].startswith("rank 2 was stopped: it runs on and on (line ")
    hungry = "x = []\nwhile True:\n    x.append(bytearray(2**20))"
    assert "needs more memory than the page gives a program (line 3)" in run(visit.page, "swap", hungry)[1]
    assert run(visit.page, "launch-2")[0] == "[6.0, 1.0, 3.0, 6.0]\n"


def test_a_program_waits_for_another_and_each_keeps_its_messages(visit):
    page, figure = visit.page, visit.page.locator("#ranks-launch-2")
    spin = "def f():\n    while True:\n        pass\n\n\nlaunch(f, world_size=2)"
    page.evaluate(f"() => Promise.all([({RAN})(['swap', {spin!r}]), ({RAN})(['launch-2', null])])")
    assert "it runs on and on" in page.locator("#ranks-swap .ar-failure").text_content()
    assert figure.locator(".ar-printed").text_content() == "[6.0, 1.0, 3.0, 6.0]\n"
    assert step_back(figure).startswith("3 of 4: rank 2 → rank 3")
    run(page, "launch")
    assert step_back(figure).startswith("2 of 4: rank 1 → rank 2")
    run(page, "swap", spin)
    assert step_back(figure).startswith("1 of 4: rank 0 → rank 1")
    page.locator("#ranks-swap [data-do=reset]").click()


def test_what_is_changed_during_a_run_is_run_too_or_marks_the_result_as_old(visit):
    page, figure = visit.page, visit.page.locator("#ranks-launch-2")
    change = """(figure, again) => new Promise((done) => {
      const [area, button] = [figure.querySelector("textarea"), figure.querySelector("[data-do='run']")];
      figure.addEventListener("ar-ran", done, { once: true });
      button.click();
      area.value = area.value.replace(/world_size=\\d/, again ? "world_size=3" : "world_size=2");
      area.dispatchEvent(new Event("input", { bubbles: true }));
      if (again) button.click();
    })"""
    figure.evaluate(change, False)
    assert "ar-stale" in figure.get_attribute("class")
    figure.evaluate(change, True)
    assert "ar-stale" not in figure.get_attribute("class")
    assert " on 3 ranks" in figure.locator("figcaption").text_content()
    page.locator("#ranks-launch-2 [data-do=reset]").click()


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_program_reaches_nothing(visit, address, what):
    before = len(visit.requested)
    source = f"import js\n{HOSTILE[what].replace('ADDRESS', address)}\nprint('done')"
    printed, failure, _ = run(visit.page, "swap", source)
    assert (printed, bool(failure)) == ("", True)
    assert not [url for url in visit.requested[before:] if not url.startswith("blob:")]
    assert not visit.foreign


@pytest.fixture
def arrivals():
    """A server's "host:port", and the connections that it has seen."""
    seen = []

    class Seen(socketserver.BaseRequestHandler):
        def handle(self):
            seen.append(self.client_address)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Seen) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}", seen
        server.shutdown()


def test_nothing_of_a_hostile_program_arrives_at_a_server(visit, arrivals):
    host, seen = arrivals
    for reach in REACHING.values():
        run(visit.page, "swap", f"import js\n{reach.replace('HOST', host)}")
    visit.page.wait_for_timeout(500)
    assert not seen
    with socket.create_connection(host.split(":")):  # it would have been seen
        pass
    until = time.monotonic() + 30
    while not seen and time.monotonic() < until:
        time.sleep(0.05)
    assert len(seen) == 1


def test_a_database_and_a_cache_stay_closed(visit):
    for name in ("indexedDB.open('x')", "caches.open('x')"):
        run(visit.page, "swap", f"import js\njs.{name}")
    assert visit.page.evaluate("indexedDB.databases().then((all) => all.length)") == 0
    assert visit.page.evaluate("caches.keys().then((all) => all.length)") == 0


def test_a_flood_of_prints_is_cut_and_a_huge_answer_is_refused(visit):
    printed, failure, _ = run(visit.page, "swap", "for _ in range(300):\n    print('x' * 999)")
    assert printed.endswith("… the rest is not shown\n") and len(printed) < 101_000 and not failure
    huge = FORGED.replace('"printed": "forged"', '"printed": "x" * 4_000_000')
    visit.page.reload()  # so that the question has the number that is forged
    printed, failure, _ = run(visit.page, "swap", huge)
    assert len(printed) < 1000 and failure
    visit.page.locator("#ranks-swap [data-do=reset]").click()


def test_markup_in_a_print_stays_text(visit):
    assert run(visit.page, "swap", "print('<img src=x>')")[0] == "<img src=x>\n"
    assert visit.page.locator("#ranks-swap img").count() == 0


def test_a_forged_answer_draws_plain_shapes_and_plain_text(visit):
    page, title = visit.page, visit.page.title()
    page.reload()  # so that the question has the number that is forged
    printed, _, caption = run(page, "swap", FORGED)
    assert (printed, caption) == ("forged", "<b>forged</b>")
    figure = page.locator("#ranks-swap")
    assert figure.locator(".ar-space-wide rect").count() == 1
    assert figure.locator("script, image, [onclick], [onload]").count() == 0
    assert page.title() == title


def test_a_link_brings_a_program_and_does_not_run_it(visit, open_page):
    page = visit.page
    page.locator("#ranks-swap [data-do=copy]").click()
    page.wait_for_function("location.hash.startsWith('#ranks-swap:')")
    expected = page.locator("#ranks-swap textarea").input_value()
    other = open_page(page.evaluate("location.href"))
    try:
        other.page.locator("#ranks-swap .ar-failure", has_text="came with a link").wait_for()
        assert other.page.locator("#ranks-swap textarea").input_value() == expected
        assert other.page.locator("iframe").count() == 0
    finally:
        other.page.close()


def test_the_editor_is_left_by_escape_and_tab(visit):
    page = visit.page
    area = page.locator("#ranks-swap textarea")
    area.fill("def f():")
    area.press("End")
    area.press("Enter")
    area.press("Tab")
    assert area.input_value() == "def f():\n        "
    area.press("Escape")
    area.press("Tab")
    assert page.evaluate("document.activeElement.dataset.do") == "run"
    page.locator("#ranks-swap [data-do=reset]").click()


def test_it_works_from_a_disk_and_on_a_phone(site, open_page, browser):
    page = browser.new_page(viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True)
    page.goto((Path(site) / RANKS).as_uri())
    assert run(page, "launch-2")[0] == "[6.0, 1.0, 3.0, 6.0]\n"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("#ranks-launch-2 .ar-space-narrow svg").is_visible()
    small = """() => [...document.querySelectorAll("figure.ar-ranks :is(button, select, summary)")]
      .filter((one) => one.checkVisibility() && one.getBoundingClientRect().height < 44).length"""
    assert page.evaluate(small) == 0
    page.locator("#ranks-launch-2 summary").first.click()
    layers = page.locator("#ranks-launch-2 .ar-code > *")
    boxes = layers.evaluate_all("""(both) => both.map((one) => {
      const { x, y, width, height } = one.getBoundingClientRect();
      const { padding, font, letterSpacing } = getComputedStyle(one);
      return [x, y, width, height, padding, font, letterSpacing];
    })""")
    assert boxes[0] == boxes[1]  # the text lies on its coloured copy
    assert boxes[0][2] > 390  # and is as wide as its longest line
    page.close()


def test_a_phone_that_is_turned_after_an_edit_keeps_a_picture(site, browser):
    page = browser.new_page(viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True)
    page.goto((Path(site) / RANKS).as_uri())
    pictures = page.locator("#ranks-launch-2 .ar-space svg:visible")
    source = page.locator("#ranks-launch-2 textarea").input_value()
    run(page, "launch-2", source + "\nprint(1)")
    assert pictures.count() == 1
    page.locator("#ranks-launch-2 summary").first.click()
    page.locator("#ranks-launch-2 textarea").fill(source)  # what it drew is of another program: it stays
    page.set_viewport_size({"width": 800, "height": 390})
    assert pictures.count() == 1
    page.close()


def test_a_phone_can_take_back_an_indentation_and_type_quotes(site, browser):
    page = browser.new_page(viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True)
    page.goto((Path(site) / RANKS).as_uri())
    area = page.locator("#ranks-swap textarea")
    area.fill("def f():\n    if f:\n        x")
    area.press("End")
    area.press("Enter")
    area.press("Backspace")
    page.keyboard.insert_text("print(“it’s”, ‘me’)")
    assert area.input_value() == "def f():\n    if f:\n        x\n    print(\"it's\", 'me')"
    area.press("Backspace")
    area.press("Backspace")
    assert area.input_value().endswith("\n    print(\"it's\", 'me")  # elsewhere it takes back a letter
    page.close()


def test_after_a_run_the_numbers_of_the_lines_are_in_view(site, browser):
    page = browser.new_page(viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True)
    page.goto((Path(site) / RANKS).as_uri())
    code = page.locator("#ranks-swap .ar-code")
    page.locator("#ranks-swap textarea").fill("x = 1\n1 / 0  # " + "a long line " * 10)
    code.evaluate("(code) => { code.scrollLeft = 200; }")
    failure = run(page, "swap")[1]
    assert failure.startswith("ZeroDivisionError") and failure.endswith("(line 2)")
    assert code.evaluate("(code) => code.scrollLeft") == 0
    page.close()


def test_a_program_that_is_stopped_before_it_begins_shows_no_traceback(visit):
    page = visit.page
    assert run(page, "swap", "# é" + "a" * 150_000)[1] == "The program was stopped: it runs on and on."
    page.locator("#ranks-swap [data-do=reset]").click()


def test_without_scripts_the_first_picture_and_its_words_stay(address, browser):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address + RANKS)
    figure = page.locator("#ranks-launch-2")
    assert figure.locator("svg").first.is_visible()
    assert "4 messages on 4 ranks" in figure.locator("figcaption").inner_text()
    assert not figure.locator("[data-do=run]").is_visible()
    assert page.locator("#swap-cell .cell_input").is_visible()
    context.close()


def test_nothing_is_inaccessible(visit):
    page = visit.page
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run('figure.ar-ranks', { resultTypes: ['violations'] })")["violations"]
    assert [(each["id"], each["nodes"][0]["html"][:120]) for each in found] == []


LISTEN = """(selector) => {
  window.told = [];
  const words = document.querySelector(selector);
  new MutationObserver(() => told.push(words.textContent)).observe(words, { childList: true });
}"""
TO_ITS_SLIDE = """(selector) => {
  const press = key => document.activeElement.dispatchEvent(
    new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
  const wanted = document.querySelector(selector);
  press("p");
  for (let presses = 0; presses < 500 && !wanted.checkVisibility(); presses += 1) press("PageDown");
  return wanted.checkVisibility() && "arLecture" in document.documentElement.dataset;
}"""


def test_a_slide_plays_the_messages_by_keyboard(address, open_page):
    page = open_page(address + RANKS).page
    page.emulate_media(reduced_motion="no-preference")  # else nothing plays: messages are shown one by one
    play = "#ranks-launch-2 [data-do='play']"
    assert page.evaluate(TO_ITS_SLIDE, play)
    page.evaluate(LISTEN, "#ranks-launch-2 figcaption")
    page.locator(play).focus()
    page.keyboard.press("Space")  # the program has not run: it runs first
    page.locator("#ranks-launch-2 figcaption", has_text="4 of 4: rank").wait_for()
    played = [words[:12] for words in page.evaluate("told") if " of 4: rank" in words]
    assert played == [f"{message} of 4: rank" for message in (1, 2, 3, 4)]
    page.close()


def test_a_slide_on_a_phone_has_a_picture_and_names_an_edited_program(address, browser):
    page = browser.new_page(viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True)
    page.goto(address + RANKS)
    edited = "getComputedStyle(document.querySelector('#ranks-launch-2 figcaption'), '::before').content"
    assert page.evaluate(TO_ITS_SLIDE, "#ranks-launch-2 [data-do='play']")
    assert page.locator("#ranks-launch-2 .ar-space svg:visible").count() == 1
    assert page.evaluate(edited) == "none"
    page.keyboard.press("Escape")
    page.locator("#ranks-launch-2 summary").first.click()
    page.locator("#ranks-launch-2 textarea").fill("print(1)")
    page.locator("#ranks-launch-2 textarea").blur()
    assert page.evaluate(TO_ITS_SLIDE, "#ranks-launch-2 [data-do='play']")
    assert "edited" in page.evaluate(edited)
    page.close()
