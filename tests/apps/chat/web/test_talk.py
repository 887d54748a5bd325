"""What people do in a chat: join, write, answer, change, leave, write in private, and search."""

from __future__ import annotations

import re

from recado.apps.chat.server import RunningChat

from .conftest import OpenPage, SignIn


def test_two_people_talk_in_a_room_and_one_leaves(sign_in: SignIn, room: str) -> None:
    ana, ion = sign_in("Ana", room), sign_in("Ion", room)
    ana.write("Good morning")
    ion.see("Good morning")
    ion.write("Hello Ana")
    ana.see("Hello Ana")
    assert ana.texts() == ion.texts() == ["Good morning", "Hello Ana"]
    ana.page.get_by_text("2 members, 2 online").wait_for()

    ion.page.get_by_role("button", name="Leave room").click()
    ion.page.get_by_role("button", name="Leave", exact=True).click()
    ion.page.get_by_role("heading", name=f"Welcome, {ion.name}").wait_for()
    assert ion.entry(room).count() == 0
    ana.page.get_by_text("1 member, 1 online").wait_for()
    ana.write("Where has Ion gone?")
    ana.see("Where has Ion gone?")

    ion.page.get_by_role("button", name=f"Join {room}").click()
    ion.see("Where has Ion gone?")
    assert ion.texts() == ["Good morning", "Hello Ana", "Where has Ion gone?"]


def test_replies_have_the_colour_and_the_letters_of_their_thread(
    sign_in: SignIn, room: str
) -> None:
    ana, ion = sign_in("Ana", room), sign_in("Ion", room)
    ana.write("Which queue?")
    ana.write("Which exchange?")
    ion.see("Which exchange?")
    ion.reply("Which queue?", "The red one")
    ana.see("The red one")
    ana.reply("The red one", "Thank you")
    ana.reply("Which exchange?", "I have found it")
    for person in (ana, ion):
        person.see("I have found it")
        marks = {
            text: person.message(text).evaluate(
                "each => [getComputedStyle(each.querySelector('.bubble')).backgroundColor,"
                " each.querySelector('.bubble').textContent]"
            )
            for text in (
                "Which queue?",
                "The red one",
                "Thank you",
                "Which exchange?",
                "I have found it",
            )
        }
        queue, exchange = marks["Which queue?"], marks["Which exchange?"]
        assert marks["The red one"] == marks["Thank you"] == queue
        assert marks["I have found it"] == exchange
        assert queue != exchange
        assert re.fullmatch("[A-Z]{2}", queue[1]), "also without colours"
    quote = ion.message("Thank you").get_by_role("button", name=f"{ion.name} The red one")
    quote.click()
    ion.page.locator(".message.flash", has_text="The red one").wait_for()


def test_a_click_on_a_name_opens_a_private_conversation(sign_in: SignIn, room: str) -> None:
    ana, ion, eva = sign_in("Ana", room), sign_in("Ion", room), sign_in("Eva", room)
    ion.write("Hello")
    ana.see("Hello").get_by_role("button", name=ion.name, exact=True).click()
    ana.page.get_by_role("heading", name=ion.name, level=1).wait_for()
    ana.write("Only for you")
    ana.see("Only for you")
    ion.entry(ana.name).locator(".count", has_text="1").wait_for()
    ion.open(ana.name)
    ion.see("Only for you")
    ion.write("I keep it")
    ana.see("I keep it")
    ion.entry(ana.name).locator(".count").wait_for(state="detached")
    assert eva.entry(ana.name).count() == eva.entry(ion.name).count() == 0


def test_own_messages_are_edited_and_deleted(sign_in: SignIn, room: str) -> None:
    ana, ion = sign_in("Ana", room), sign_in("Ion", room)
    ana.write("Helo")
    ion.see("Helo")
    ion.reply("Helo", "What?")
    ana.see("What?")
    ana.field.press("ArrowUp")
    ana.page.get_by_text("Edit your message").wait_for()
    assert ana.field.input_value() == "Helo"
    ana.write("Hello")
    for person in (ana, ion):
        person.see("Hello").get_by_text("edited").wait_for()
        person.message("What?").get_by_role("button", name=f"{ana.name} Hello").wait_for()
    ion.message("Hello").hover()
    assert ion.message("Hello").get_by_role("button", name="Edit").count() == 0, "only one's own"

    ana.message("Hello").hover()
    ana.message("Hello").get_by_role("button", name="Delete").click()
    ana.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    for person in (ana, ion):
        person.see("This message was deleted.")
        person.message("What?").get_by_role("button", name="Message deleted").wait_for()


def test_markup_is_text_and_only_web_addresses_are_links(sign_in: SignIn, room: str) -> None:
    ana, ion = sign_in("<b>Ana</b>", room), sign_in("Ion", room)
    text = "<img src=x onerror=alert(1)><script>alert(2)</script> &amp; javascript:alert(3)"
    ana.write(text)
    ion.see(text)
    assert ion.page.locator(".text :is(img, script, b, a)").count() == 0
    ion.message(text).get_by_role("button", name=ana.name, exact=True).wait_for()
    ana.write("See (https://example.com/a_(b)?c=1#d), http://[::1]/ and data:text/html,x.")
    ion.page.get_by_role("link", name="https://example.com/a_(b)?c=1#d", exact=True).wait_for()
    links = ion.page.locator(".text a").evaluate_all(
        "links => links.map(each => [each.getAttribute('href'), each.rel, each.target])"
    )
    expected = "noopener noreferrer nofollow"
    assert links == [
        ["https://example.com/a_(b)?c=1#d", expected, "_blank"],
        ["http://[::1]/", expected, "_blank"],
    ]


def test_the_direction_of_a_text_ends_with_it(sign_in: SignIn, room: str) -> None:
    ana = sign_in("Ana", room)
    ana.write("\u202eabc")
    ana.page.locator(".message.sent").wait_for()
    assert ana.page.locator(".message .text").evaluate("""text => {
        const range = document.createRange();
        range.selectNode(text.firstChild);
        const mark = text.querySelector(".state").getBoundingClientRect();
        return range.getBoundingClientRect().right <= mark.left;
    }""")


def test_enter_during_composition_does_not_send(sign_in: SignIn, room: str) -> None:
    ana = sign_in("Ana", room)
    session = ana.page.context.new_cdp_session(ana.page)
    ana.field.focus()
    text = "こんにちは"
    compose = {"selectionStart": len(text), "selectionEnd": len(text), "text": text}
    session.send("Input.imeSetComposition", compose)
    ana.wait_until("text => document.activeElement.value === text", text)
    # The key of an input method, as Chromium and as Safari report it.
    for event in ("{isComposing: true, keyCode: 13}", "{isComposing: false, keyCode: 229}"):
        ana.field.evaluate(
            "area => area.dispatchEvent(new KeyboardEvent('keydown',"
            f" {{key: 'Enter', bubbles: true, cancelable: true, ...{event}}}))"
        )
    ana.field.press("Enter")
    assert ana.field.input_value().strip() == text
    session.send("Input.insertText", {"text": text})
    ana.field.press("Enter")
    ana.see(text)
    assert ana.texts() == [text]
    assert ana.field.input_value() == ""


def test_emoji_by_name_and_picker(sign_in: SignIn, room: str) -> None:
    ana = sign_in("Ana", room)
    ana.field.press_sequentially("Done :tad")
    ana.page.get_by_role("option", name=":tada:").wait_for()
    ana.page.keyboard.press("Enter")
    assert ana.field.input_value() == "Done \N{PARTY POPPER} "
    ana.write("It is 10:30:45 :rocket: :unknown:")
    ana.see("It is 10:30:45 \N{ROCKET} :unknown:")
    ana.page.get_by_role("button", name="Emoji").click()
    ana.page.get_by_label("Find emoji").fill("coffee")
    ana.page.keyboard.press("Enter")
    ana.page.keyboard.press("Escape")
    ana.field.press("Enter")
    ana.see("\N{HOT BEVERAGE}")


def test_presence_typing_and_mentions(sign_in: SignIn, room: str) -> None:
    ana, ion = sign_in("Ana", room), sign_in("Ion", room)
    ion.field.press_sequentially("@ana")
    ion.page.get_by_role("option", name=ana.name).wait_for()
    ana.page.get_by_text(f"{ion.name} is typing…").wait_for()
    ion.page.keyboard.press("Tab")
    ion.field.press("Enter")
    ana.see(f"@{ana.name}").locator("mark.mention").wait_for()
    assert ana.page.get_by_text(f"{ion.name} is typing…").count() == 0
    ana.page.get_by_role("button", name="Members").click()
    ana.page.get_by_role("button", name=f"{ion.name}, online").wait_for()
    ion.page.close()
    ana.page.get_by_role("button", name=f"{ion.name}, offline").wait_for()


def test_a_found_message_is_shown_where_it_was_written(sign_in: SignIn, room: str) -> None:
    ana = sign_in("Ana", room)
    for number in range(6):
        ana.write(f"The answer {number} is in the archive")
    ana.see("The answer 5 is in the archive")
    ana.field.press("Control+/")
    search = ana.page.get_by_label("Search messages")
    search.fill("ARCHIVE 3")
    ana.page.get_by_text("1 message", exact=True).wait_for()
    ana.page.get_by_role("button", name="The answer 3").click()
    ana.page.locator(".message.flash", has_text="The answer 3").wait_for()
    search.fill("nowhere")
    ana.page.get_by_text("No message contains these words.").wait_for()


def test_unread_counts_are_equal_on_two_devices(
    sign_in: SignIn, open_page: OpenPage, room: str
) -> None:
    other_room = f"{room} too"
    ana, ion = sign_in("Ana", room, other_room), sign_in("Ion", room)
    phone = ana.second_device(open_page)
    for device in (ana, phone):
        device.open(other_room)
    for number in range(3):
        ion.write(f"News {number}")
    for device in (ana, phone):
        device.entry(room).locator(".count", has_text="3").wait_for()
        device.wait_until("document.title.startsWith('(3)')")
    ana.open(room)
    ana.page.get_by_text("New messages", exact=True).wait_for()
    for device in (ana, phone):
        device.entry(room).locator(".count").wait_for(state="detached")
    phone.page.reload()
    phone.entry(room).wait_for()
    assert phone.page.locator(".count").count() == 0


def test_the_traffic_of_own_actions_is_shown_and_explained(sign_in: SignIn, room: str) -> None:
    ana, ion = sign_in("Ana", room), sign_in("Ion", room)
    ana.page.get_by_role("button", name="AMQP traffic").click()
    traffic = ana.page.get_by_role("complementary", name="AMQP traffic")
    ana.write("To the broker")
    traffic.get_by_text("basic.ack confirm").first.wait_for()
    for operation in ("basic.publish", "basic.deliver", "basic.ack"):
        traffic.get_by_role("link", name=operation).first.wait_for()
    ana.join(f"{room} too")
    traffic.get_by_role("link", name="exchange.declare").last.wait_for()
    traffic.get_by_role("link", name="queue.bind").last.click()
    ana.page.get_by_role("heading", name="Bind a queue").wait_for()
    traffic.wait_for()
    ana.page.get_by_role("link", name="Back to the conversation").click()
    ana.field.wait_for()
    assert ion.page.get_by_text("basic.publish").count() == 0
    operations = traffic.get_by_role("listitem").count()
    ana.page.get_by_role("button", name="Close AMQP traffic").click()
    ana.page.get_by_role("button", name="AMQP traffic").click()
    traffic.get_by_role("listitem").first.wait_for()
    assert traffic.get_by_role("listitem").count() == operations, "none is shown twice"
    traffic.get_by_role("button", name="Clear").click()
    traffic.get_by_text("Nothing yet.").wait_for()


def test_everything_is_within_reach_of_the_keyboard(sign_in: SignIn, room: str) -> None:
    """Join, write, answer, edit and change the conversation, without a pointer."""
    ana = sign_in("Ana", room)
    keyboard = ana.page.keyboard
    ana.write("First")
    ana.see("First")
    ana.write("Second")
    ana.see("Second")
    keyboard.press("Escape")
    keyboard.press("ArrowUp")
    keyboard.press("ArrowUp")
    ana.wait_until("document.activeElement.textContent.includes('First')")
    outline = "getComputedStyle(document.activeElement.querySelector('.body')).outlineStyle"
    assert ana.page.evaluate(outline) == "solid", "the focus is visible"
    keyboard.press("r")
    ana.wait_until("document.activeElement.tagName === 'TEXTAREA'")
    keyboard.type("Third")
    keyboard.press("Enter")
    ana.see("Third").get_by_role("button", name=f"{ana.name} First").wait_for()
    keyboard.press("Control+k")
    keyboard.type(f"{room} too")
    keyboard.press("Enter")
    ana.page.get_by_role("heading", name=f"{room} too", level=1).wait_for()
    keyboard.press("Alt+ArrowUp")
    ana.page.get_by_role("heading", name=room, exact=True, level=1).wait_for()
    keyboard.press("Escape")
    keyboard.press("?")
    ana.page.get_by_role("heading", name="Keyboard shortcuts").wait_for()


def test_only_new_messages_are_announced(sign_in: SignIn, room: str) -> None:
    ana = sign_in("Ana", room)
    ana.write("Before")
    ana.see("Before")
    ion = sign_in("Ion", room)
    ion.see("Before")
    spoken = ion.page.get_by_role("log")
    assert spoken.inner_text() == ""
    ana.write("Now")
    ion.see("Now")
    ion.write("Mine")
    ion.see("Mine")
    assert spoken.inner_text() == f"{ana.name}: Now"
    assert ion.page.locator("[aria-live], [role=log]").count() == 1


def test_a_link_on_a_page_of_another_site_replaces_no_session(
    sign_in: SignIn, chat: RunningChat
) -> None:
    """The cookie is not sent with it: the page of the chat asks again."""
    eve, ana = sign_in("Eve"), sign_in("Ana", expected=r"evil\.example")
    link = eve.page.evaluate(
        "fetch('api/link', {method: 'POST'}).then(async (answer) => (await answer.json()).url)"
    )
    ana.page.route(
        "http://evil.example/",
        lambda route: route.fulfill(
            content_type="text/html", body=f'<a href="{link}">photographs</a>'
        ),
    )
    ana.page.goto("http://evil.example/")
    with ana.page.expect_request(chat.url):
        ana.page.get_by_text("photographs").click()
    ana.page.get_by_role("button", name="Settings and help").wait_for()
    name = ana.page.evaluate(
        "fetch('api/session').then(async (answer) => (await answer.json()).me.name)"
    )
    assert name == ana.name
