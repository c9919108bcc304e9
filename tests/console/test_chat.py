"""Chat in a real browser: four people's screens, on a bus whose air the tests rule."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from itertools import pairwise
from random import Random

import pytest

from pluribus.console.chat.words import row
from pluribus.conversations.history import PATIENCE_S, History
from pluribus.conversations.words import Entry
from tests.console.hall import NAMES, hall, wait_for
from tests.console.screens import WAIT_MS, Air, ScreenOf
from tests.console.town import browser

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make setup")
pytest.importorskip("nicegui", reason="NiceGUI is not installed: make setup")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("chat"),
    pytest.mark.skipif(browser() is None, reason="no Chromium on this machine: apt-get install chromium"),
]
expect = sync_api.expect
DELHI, CHENNAI = "Did you visit Delhi?", "Did you visit Chennai?"


@pytest.fixture(scope="module")
def chromium():
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=browser(), args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def air(tmp_path_factory):
    with hall(tmp_path_factory.mktemp("hall")) as address:
        yield Air(address)


@pytest.fixture
def screens(air, chromium):
    """Made when asked for; no script may fail on any of them."""
    made = []

    def screen(name, **options):
        made.append(ScreenOf(chromium, air.address, name, **options))
        return made[-1]

    yield screen
    air("meet")
    errors = [error for found in made for error in found.errors]
    for found in made:
        found.close()
    assert not errors


def in_a_room(air, screens, room, names=NAMES):
    """Screens of these people, all in one room."""
    for name in names:
        air("open", name=name, room=room)
    found = [screens(name) for name in names]
    for screen in found:
        screen.open(room)
        expect(screen.page.locator(".member.here")).to_have_count(len(names), timeout=WAIT_MS)
    return found


def test_delhi_and_chennai_on_four_screens(air, screens):
    """Chapter 8 of the source: every answer stands under its question, though each screen got them in another order."""
    ann, bob, cid, dan = [screens(name) for name in NAMES]
    cid.create("towns", "where we were")
    for screen in (ann, bob, dan):
        expect(screen.page.locator("[data-room=towns].invitation")).to_contain_text("where we were", timeout=WAIT_MS)
        screen.join("towns")
    for screen in (ann, bob, cid, dan):
        expect(screen.page.locator(".member.here")).to_have_count(4, timeout=WAIT_MS)
    cid.say(DELHI)
    cid.say(CHENNAI)
    for screen in (ann, bob, dan):
        screen.wait_for_tree([[0, "cid", DELHI], [0, "cid", CHENNAI]])

    air("part", half="ann,cid")  # so nobody can hand on the other answer, however slow this machine is
    ann.answer(CHENNAI, "No")
    cid.wait_for_tree([[0, "cid", DELHI], [0, "cid", CHENNAI], [1, "ann", "No"]])
    bob.answer(DELHI, "Yes")
    dan.wait_for_tree([[0, "cid", DELHI], [1, "bob", "Yes"], [0, "cid", CHENNAI]])
    air("meet")

    whole = [[0, "cid", DELHI], [1, "bob", "Yes"], [0, "cid", CHENNAI], [1, "ann", "No"]]
    for screen in (ann, bob, cid, dan):
        screen.wait_for_tree(whole)
    assert air("arrived", name="cid", room="towns")[2:] == ["No", "Yes"]
    assert air("arrived", name="dan", room="towns")[2:] == ["Yes", "No"]


def test_a_member_that_goes_away_and_comes_back(air, screens):
    ann, bob, cid, dan = in_a_room(air, screens, "harbour")
    ann.say("The ship leaves at nine")
    for screen in (bob, cid, dan):
        screen.wait_for_tree([[0, "ann", "The ship leaves at nine"]])
    air("away", name="dan")
    dan.close()
    expect(ann.page.locator(".member.away")).to_have_attribute("data-member", "dan", timeout=WAIT_MS)
    bob.answer("The ship leaves at nine", "From which pier?")
    cid.answer("From which pier?", "The old one")

    air("back", name="dan")
    dan = screens("dan")
    expect(dan.page.locator("button.room[data-room=harbour] .badge")).to_contain_text("2", timeout=WAIT_MS)
    dan.open("harbour")
    whole = [[0, "ann", "The ship leaves at nine"], [1, "bob", "From which pier?"], [2, "cid", "The old one"]]
    dan.wait_for_tree(whole)
    assert dan.message("The old one").get_attribute("aria-label").startswith("Unread. cid answers bob")
    expect(dan.page.locator(".message.unread")).to_have_count(0, timeout=WAIT_MS)
    expect(dan.page.locator("button.room[data-room=harbour] .badge")).to_have_count(0, timeout=WAIT_MS)
    expect(ann.page.locator(".member.here")).to_have_count(4, timeout=WAIT_MS)
    dan.answer("The old one", "I am there")
    for screen in (ann, bob, cid):
        screen.wait_for_tree([*whole, [3, "dan", "I am there"]])


def test_two_halves_that_talk_apart_and_meet(air, screens):
    ann, bob, cid, dan = in_a_room(air, screens, "valley")
    ann.say("The bridge is closed")
    for screen in (bob, cid, dan):
        screen.wait_for_tree([[0, "ann", "The bridge is closed"]])
    air("part", half="ann,bob")
    bob.answer("The bridge is closed", "Until when?")
    ann.answer("Until when?", "Friday")
    dan.answer("The bridge is closed", "We saw it too")
    cid.say("Is the tunnel open?")
    here = [[0, "ann", "The bridge is closed"], [1, "bob", "Until when?"], [2, "ann", "Friday"]]
    there = [[0, "ann", "The bridge is closed"], [1, "dan", "We saw it too"], [0, "cid", "Is the tunnel open?"]]
    for screen, tree in ((ann, here), (bob, here), (cid, there), (dan, there)):
        screen.wait_for_tree(tree)
    expect(ann.page.locator(".member.away")).to_have_count(2, timeout=WAIT_MS)
    air("meet")
    whole = [*here, *there[1:]]
    for screen in (ann, bob, cid, dan):
        screen.wait_for_tree(whole)
        expect(screen.page.locator(".member.here")).to_have_count(4, timeout=WAIT_MS)


HOSTILE = [
    "<script>window.hurt = 1</script>",
    "<img src=x onerror='window.hurt = 2'>",
    "{{ constructor.constructor('window.hurt = 3')() }}",
    "</div><iframe srcdoc='<script>parent.hurt = 4</script>'></iframe>",
    "# heading **bold** _it_ ![picture](http://127.0.0.1:1/x.png)",
    "[press me](javascript:window.hurt=5) javascript:window.hurt=6 data:text/html,<b>x</b>",
    "&lt;b&gt; &amp; &#60;",
    "<svg/onload=window.hurt=7><style>*{display:none}</style>",
]


def test_no_text_is_taken_for_markup(air, screens):
    room, about = "<b>room</b>", "<img src=x onerror='window.hurt = 8'>"
    air("open", name="ann", room=room, about=about)
    bob = screens("bob")
    expect(bob.page.locator(".invitation .name", has_text=room)).to_be_visible(timeout=WAIT_MS)
    expect(bob.page.locator(".invitation", has_text=about)).to_be_visible()
    bob.join(room)
    before = bob.page.evaluate("document.querySelectorAll('script, img, iframe, style').length")
    for text in HOSTILE:
        air("say", name="ann", room=room, text=text)
    bob.page.wait_for_function("(count) => document.querySelectorAll('.message').length === count", arg=len(HOSTILE))
    for text in HOSTILE:
        expect(bob.message(text).locator(".body")).to_have_text(text)
    assert bob.page.locator(".body :not(a, code, pre, mark, span)").count() == 0
    links = bob.page.locator(".body a").evaluate_all("(found) => found.map((link) => link.href)")
    assert links == ["http://127.0.0.1:1/x.png"], "a link is text that can be pressed; nothing is loaded"
    assert bob.page.evaluate("document.querySelectorAll('script, img, iframe, style').length") == before
    assert bob.page.evaluate("window.hurt") is None


def test_links_code_and_text_that_runs_backwards(air, screens):
    air("open", name="ann", room="links")
    bob = screens("bob")
    bob.join("links")
    texts = [
        "see https://example.org/a_(b)?q=1, and (http://example.org/x).",
        "https://ann:secret@example.org/ is no link, nor is http://, nor file:///etc/passwd",
        "run `rm -rf <folder>` or\n```sh\necho '<b>'\n  indented\n```",
        "invoice\u202efdp.exe",
        "https://exa\u202emple.org/",
        "مرحبا https://example.org/سلام",
    ]
    for text in texts:
        air("say", name="ann", room="links", text=text)
    bob.page.wait_for_function("(count) => document.querySelectorAll('.message').length === count", arg=len(texts))
    found = bob.page.locator(".body a").evaluate_all(
        "(found) => found.map((link) => [link.href, link.rel, link.target])"
    )
    safe = ["noopener noreferrer nofollow", "_blank"]
    assert found == [
        ["https://example.org/a_(b)?q=1", *safe],
        ["http://example.org/x", *safe],
        ["https://exa/", *safe],
        ["https://example.org/%D8%B3%D9%84%D8%A7%D9%85", *safe],
    ]
    kinds = """async (text) => (await import("pluribus-chat/text.js")).parts(text).map((part) => part.kind)"""
    assert bob.page.evaluate(kinds, "http://example.org/x" + ")" * 100) == ["link", "text"]
    assert bob.page.evaluate(kinds, "http://example.org/x" + ")" * 32_000) == ["text"], (
        "it is not looked for an end in it"
    )
    expect(bob.page.locator(".body code").first).to_have_text("rm -rf <folder>")
    assert bob.page.locator(".body pre").text_content() == "echo '<b>'\n  indented"
    expect(bob.message("invoice").locator(".body")).to_have_text("invoiceU+202Efdp.exe")
    shown = bob.page.evaluate("document.querySelector('.chat').textContent + document.title")
    assert "\u202e" not in shown


def test_by_keyboard_and_for_screen_readers(air, screens):
    ann, bob = in_a_room(air, screens, "keys", ["ann", "bob"])
    first = air("say", name="bob", room="keys", text="first")
    air("say", name="bob", room="keys", text="second")
    air("say", name="bob", room="keys", text="inner", parent=first)
    ann.wait_for_tree([[0, "bob", "first"], [1, "bob", "inner"], [0, "bob", "second"]])
    tree = ann.page.get_by_role("tree", name="Messages in keys")
    inner = ann.page.get_by_role("treeitem", name="bob answers bob")
    expect(inner).to_have_attribute("aria-level", "2")
    expect(ann.message("first")).to_have_attribute("aria-setsize", "2")
    expect(ann.message("second")).to_have_attribute("aria-posinset", "2")
    expect(ann.page.locator("p.sr[role=status]")).to_contain_text("bob answers bob: inner", timeout=WAIT_MS)

    tree.focus()
    active = "document.getElementById(document.querySelector('[role=tree]').getAttribute('aria-activedescendant'))"
    for key, wanted in [
        ("Home", "first"), ("ArrowDown", "inner"), ("ArrowLeft", "first"), ("ArrowRight", "inner"),
        ("End", "second"), ("ArrowUp", "inner"), ("ArrowUp", "first"),
    ]:  # fmt: skip
        ann.page.keyboard.press(key)
        ann.page.wait_for_function(f"(text) => {active}?.querySelector('.body').textContent === text", arg=wanted)
    ann.page.keyboard.press("ArrowLeft")
    expect(ann.message("first")).to_have_attribute("aria-expanded", "false")
    expect(ann.page.locator(".message")).to_have_count(2)
    ann.page.keyboard.press("ArrowRight")
    expect(ann.message("first")).to_have_attribute("aria-expanded", "true")
    ann.page.keyboard.press("ArrowRight")
    ann.page.keyboard.press("Enter")
    box = ann.page.get_by_role("textbox", name="Answer to bob: inner")
    expect(box).to_be_focused()
    ann.page.keyboard.type("by keys alone")
    ann.page.keyboard.press("Enter")
    bob.wait_for_tree([[0, "bob", "first"], [1, "bob", "inner"], [2, "ann", "by keys alone"], [0, "bob", "second"]])
    ann.page.keyboard.press("Escape")
    expect(tree).to_be_focused()
    ann.page.keyboard.press("/")
    expect(ann.page.get_by_role("searchbox")).to_be_focused()
    ann.page.keyboard.press("Escape")

    seen = []
    ann.page.locator(".new-room").focus()
    for _ in range(8):
        kind = ann.page.evaluate(
            """() => { const at = document.activeElement; return at.matches('[type=search]') ? 'search'
              : at.matches('[role=tree]') ? 'tree' : at.matches('textarea') ? 'text'
              : at.closest('.members') ? 'leave' : 'other'; }"""
        )
        seen.append(kind)
        ann.page.keyboard.press("Tab")
    assert [kind for kind in seen if kind != "other"] == ["search", "tree", "text", "leave"]
    unnamed = ann.page.evaluate(
        """() => [...document.querySelectorAll('.chat button, .chat input, .chat textarea')]
             .filter((found) => !found.closest('dialog:not([open])'))
             .filter((found) => !(found.ariaLabel || found.textContent.trim() || found.closest('label')))
             .map((found) => found.outerHTML)"""
    )
    assert unnamed == []


def test_rooms_invitations_typing_search_and_marks(air, screens):
    ann, bob = screens("ann"), screens("bob")
    ann.create("garden", "what grows")
    ann.create("cellar")
    bob.join("garden")
    bob.page.get_by_role("button", name="Refuse cellar").click()
    expect(bob.page.locator(".other", has_text="cellar")).to_be_visible(timeout=WAIT_MS)
    expect(bob.page.locator(".invitation[data-room=cellar]")).to_have_count(0)

    ann.open("garden")
    expect(ann.page.locator(".member.here")).to_have_count(2, timeout=WAIT_MS)
    bob.page.locator("textarea").press_sequentially("The roses")
    expect(ann.page.locator(".typing")).to_contain_text("bob is writing", timeout=WAIT_MS)
    bob.page.keyboard.press("Enter")
    ann.wait_for_tree([[0, "bob", "The roses"]])
    expect(ann.page.locator(".typing")).to_be_empty(timeout=WAIT_MS)
    expect(ann.page.locator(".message.unread")).to_have_count(0, timeout=WAIT_MS)

    ann.open("cellar")
    bob.answer("The roses", "have greenfly")
    badge = ann.page.locator("button.room[data-room=garden] .badge")
    expect(badge).to_contain_text("1 unread", timeout=WAIT_MS)
    ann.page.wait_for_function(r"document.title.match(/^.\d+. cellar/)")
    ann.open("garden")
    expect(badge).to_have_count(0, timeout=WAIT_MS)

    for number in range(30):
        air("say", name="ann", room="garden", text=f"plant {number}" + " needle" * (number % 10 == 7))
    bob.page.get_by_role("searchbox").fill("NEEDLE")
    expect(bob.page.locator(".hits")).to_have_text("1 of 3", timeout=WAIT_MS)
    expect(bob.page.locator(".message mark")).to_have_text(["needle"] * 3)
    bob.page.keyboard.press("Enter")
    expect(bob.page.locator(".hits")).to_have_text("2 of 3")
    expect(bob.page.locator(".message.hit .body")).to_have_text("plant 17 needle")
    bob.page.keyboard.press("Escape")
    expect(bob.page.locator(".message mark")).to_have_count(0)

    bob.page.get_by_role("button", name="Leave this room").click()
    bob.page.get_by_role("button", name="Leave", exact=True).click()
    expect(bob.page.locator("button.room[data-room=garden]")).to_have_count(0, timeout=WAIT_MS)
    expect(ann.page.locator(".member")).to_have_count(1, timeout=WAIT_MS)
    ann.page.get_by_role("button", name="New room").click()
    ann.page.get_by_label("Name", exact=True).fill("garden")
    ann.page.get_by_role("button", name="Create").click()
    expect(ann.page.get_by_role("alert")).to_contain_text("already: join it", timeout=WAIT_MS)


def test_five_thousand_messages_of_which_few_are_drawn(air, screens):
    air("fill", name="ann", room="archive", count=5_000)
    ann = screens("ann")
    ann.open("archive")
    expect(ann.message("message 4999 ")).to_be_visible(timeout=WAIT_MS)
    drawn = "document.querySelectorAll('.message').length"
    assert ann.page.evaluate(drawn) < 80
    tree = ann.page.get_by_role("tree")
    tree.focus()
    ann.page.keyboard.press("Home")
    expect(ann.message("message 0 ")).to_be_visible(timeout=WAIT_MS)
    assert ann.page.evaluate(drawn) < 80
    ann.page.get_by_role("searchbox").fill("message 2500 ")
    expect(ann.message("message 2500 ")).to_be_visible(timeout=WAIT_MS)
    ann.page.get_by_role("searchbox").fill("")
    ann.page.evaluate("document.querySelector('.scroll').scrollTop = 1e9")
    expect(ann.message("message 4999 ")).to_be_visible(timeout=WAIT_MS)
    places = ann.page.evaluate(
        """[...document.querySelectorAll('.message')].map((found) => found.getBoundingClientRect())
             .map((place) => [place.top, place.bottom])"""
    )
    assert all(abs(above[1] - below[0]) < 1 for above, below in pairwise(places)), "no gaps"


def test_unread_messages_out_of_sight_are_told_and_found(air, screens):
    air("open", name="ann", room="stairs")
    for number in range(40):
        air("say", name="ann", room="stairs", text=f"step {number}")
    bob = screens("bob")
    bob.join("stairs")
    expect(bob.message("step 39")).to_be_visible(timeout=WAIT_MS)
    expect(bob.page.locator(".message.unread")).to_have_count(0, timeout=WAIT_MS)
    bob.page.get_by_role("tree").focus()
    bob.page.keyboard.press("Home")
    expect(bob.message("step 0")).to_be_visible(timeout=WAIT_MS)
    top = bob.page.evaluate("document.querySelector('.scroll').scrollTop")
    air("say", name="ann", room="stairs", text="far below")
    pill = bob.page.get_by_role("button", name="1 unread below")
    pill.wait_for()
    assert bob.page.evaluate("document.querySelector('.scroll').scrollTop") == top, "what is read stays where it is"
    pill.click()
    expect(bob.message("far below")).to_be_visible(timeout=WAIT_MS)
    expect(bob.page.locator(".pill")).to_have_count(0, timeout=WAIT_MS)
    expect(bob.page.locator(".message.unread")).to_have_count(0, timeout=WAIT_MS)

    bob.page.get_by_role("tree").focus()
    bob.page.keyboard.press("Home")
    expect(bob.message("step 0")).to_be_visible(timeout=WAIT_MS)
    air("say", name="ann", room="stairs", text="found by a key")
    pill.wait_for()
    bob.page.keyboard.press("n")
    expect(bob.message("found by a key")).to_be_visible(timeout=WAIT_MS)
    expect(bob.page.locator(".message.unread")).to_have_count(0, timeout=WAIT_MS)

    first = air("say", name="bob", room="stairs", text="a thread")
    bob.message("a thread").wait_for()
    air("say", name="ann", room="stairs", text="first answer", parent=first)
    expect(bob.message("first answer")).to_be_visible(timeout=WAIT_MS)
    expect(bob.page.locator(".message.unread")).to_have_count(0, timeout=WAIT_MS)
    bob.message("a thread").get_by_role("button", name="1 answer").click()
    expect(bob.message("first answer")).to_have_count(0)
    air("say", name="ann", room="stairs", text="second answer", parent=first)
    bob.page.get_by_role("button", name="1 unread above").click()
    expect(bob.message("second answer")).to_be_visible(timeout=WAIT_MS)


def test_a_browser_that_loses_its_line_misses_nothing(air, screens):
    ann, bob = in_a_room(air, screens, "lines", ["ann", "bob"])
    for number in range(40):
        air("say", name="ann", room="lines", text=f"line {number}")
    expect(ann.message("line 39")).to_be_visible(timeout=WAIT_MS)
    ann.page.get_by_role("tree").focus()
    ann.page.keyboard.press("Home")
    expect(ann.message("line 0")).to_be_visible(timeout=WAIT_MS)
    ann.page.evaluate("window.born = 1; window.socket.io.reconnectionDelay(5000); window.socket.io.engine.close()")
    expect(ann.page.get_by_role("alert")).to_contain_text("does not answer", timeout=WAIT_MS)
    bob.say("said meanwhile")
    ann.page.get_by_role("button", name="1 unread below").wait_for()
    expect(ann.page.get_by_role("alert")).to_have_count(0, timeout=WAIT_MS)
    expect(ann.message("line 0")).to_be_visible()
    assert ann.page.evaluate("window.born") == 1, "the page was not loaded again"
    ann.page.get_by_role("button", name="1 unread below").click()
    expect(ann.message("said meanwhile")).to_be_visible(timeout=WAIT_MS)
    ann.page.reload()
    expect(ann.message("said meanwhile")).to_be_visible(timeout=WAIT_MS)
    assert ann.page.evaluate("location.hash") == "#lines"


def test_on_a_phone_and_in_the_dark(air, screens):
    air("open", name="ann", room="pocket")
    air("say", name="ann", room="pocket", text="a word of " + "x" * 300)
    bob = screens("bob", viewport={"width": 360, "height": 640}, color_scheme="dark", has_touch=True)
    page = bob.page
    page.get_by_role("button", name="Rooms").click()
    page.get_by_role("button", name="Join pocket", exact=True).click()
    bob.message("a word of").wait_for()
    wide = page.evaluate(
        "Math.max(...[...document.querySelectorAll('.talk, .talk *')].map((e) => e.getBoundingClientRect().right))"
    )
    assert wide <= 360, "nothing is out of the screen"
    bob.answer("a word of", "from a phone")
    page.get_by_role("button", name="members are here").click()
    expect(page.locator(".member")).to_have_count(2, timeout=WAIT_MS)
    page.get_by_role("button", name="Close the list of members").click()
    back = "getComputedStyle(document.querySelector('.talk')).backgroundColor"
    dark = page.evaluate(back)
    page.get_by_role("button", name="Colours").click()
    light = page.evaluate(back)
    assert dark != light and light == "rgb(255, 255, 255)"
    page.reload()
    bob.message("from a phone").wait_for()
    assert page.evaluate(back) == light, "the choice is remembered"


def test_only_this_machine_by_its_own_name_is_served(air):
    asked = urllib.request.Request(f"{air.address}/ann", headers={"Host": "example.org"})
    with pytest.raises(urllib.error.HTTPError, match="400"):
        urllib.request.urlopen(asked, timeout=30)
    with urllib.request.urlopen(f"{air.address}/ann", timeout=30) as answer:
        assert answer.headers["X-Frame-Options"] == "DENY"


def test_the_trees_of_a_browser_are_those_of_every_member(air, screens):
    """The forest in the browser against the history in Python: random forests in random orders, circles among them."""
    page = screens("ann").page
    random = Random(11)
    for _ in range(60):
        count = random.randrange(1, 40)
        entries = []
        for number in range(count):
            parent = (1, random.randrange(count + 2)) if random.random() < 0.8 else None
            entries.append(Entry((1, number), parent, "ann", float(random.randrange(4)), str(number)))
        known = {entry.id for entry in entries}
        history = History()
        for entry in entries:
            history.add(entry, 0.0)
        for second in range(1, 400):
            history.tick(second * PATIENCE_S)
        wanted = [[depth, entry.body] for depth, entry in history.tree().walk()]
        assert len(wanted) == len(known)
        random.shuffle(entries)
        shown = page.evaluate(
            """async (rows) => {
                 const { Forest } = await import("pluribus-chat/forest.js");
                 const forest = new Forest();
                 for (const row of rows) forest.add(row);
                 return forest.flat().map((node) => [node.depth, node.body]);
               }""",
            [row(entry, False) for entry in entries],
        )
        assert shown == wanted


def test_the_command_serves_a_page_for_each_person(chromium):
    """Two processes that find each other by multicast, as two people on one machine start them."""
    environment = {**os.environ, "PLURIBUS_URL": f"multicast://chat-{os.getpid()}"}
    environment.pop("PYTEST_CURRENT_TEST", None)
    running, screens = [], []
    try:
        for name in ("eve", "fred"):
            command = [sys.executable, "-m", "pluribus", "chat", "lounge", "--name", name, "--json"]
            running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
            said = json.loads(running[-1].stdout.readline())
            assert said["name"] == name
            wait_for(said["address"], running[-1])
            screens.append(ScreenOf(chromium, said["address"], name, path=""))
        eve, fred = screens
        for screen in screens:
            screen.page.get_by_role("heading", name="lounge", level=1).wait_for()
            expect(screen.page.locator(".member.here")).to_have_count(2, timeout=WAIT_MS)
        eve.say("Are you there?")
        fred.answer("Are you there?", "I am")
        eve.wait_for_tree([[0, "eve", "Are you there?"], [1, "fred", "I am"]])
        assert not eve.errors and not fred.errors
    finally:
        for screen in screens:
            screen.close()
        for process in running:
            process.kill()
            process.communicate()
