"""The circle in a real browser: points that move, a recording that plays, and everything still there on reload."""

from __future__ import annotations

import hashlib
import re
import shutil
import time
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from recon_core.kinds import perform
from recon_core.runs import StopFlag
from recon_core.runs.circle import CircleSettings
from recon_core.store import Run, RunState, RunStore
from tests.browser.pages import TextContrast, assert_readable, click, evaluate, settle, slide
from tests.gates import Gate
from tests.processes import wait_for

SMALL = CircleSettings(n=4, width=50)
OLD_SECONDS = 0.5  # a live view of points gets a new picture after 0.4
ADDRESS = "?view=circle&c_n=4&c_width=50"
# Notes every frame that is drawn: the recording passes them once, faster than a busy machine looks.
NOTE_FRAMES = """() => {
  window.frames_drawn = new Set();
  const search = root => root.querySelector('.player')
    ?? [...root.querySelectorAll('*')].reduce((found, e) => found ?? (e.shadowRoot && search(e.shadowRoot)), null);
  let player = null;
  const note = () => {
    if (!player?.isConnected) player = search(document);
    if (player?.dataset.frame) window.frames_drawn.add(player.dataset.frame);
    requestAnimationFrame(note);
  };
  note();
}"""
FRAMES = "() => { const seen = [...window.frames_drawn]; window.frames_drawn.clear(); return seen; }"
PIXELS = "player => player.querySelector('.screen canvas')?.toDataURL()"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one finished circle, without the slower baseline."""
    root = tmp_path_factory.mktemp("finished") / "runs"
    store = RunStore(root)
    train, attack, inversion, untrained = SMALL.queue(store)
    for run in (train, attack, inversion):
        assert perform(run, StopFlag()) is RunState.DONE
    store.delete(untrained.id)
    return root


@pytest.fixture
def shown(finished: Path, dashboard) -> str:
    """Address of an app that has the finished circle."""
    shutil.copytree(finished, dashboard.store, dirs_exist_ok=True)
    return str(dashboard.url)


def player_of(page: Page) -> Locator:
    player = page.locator(".player")
    expect(player).to_be_visible()
    return player


def look(player: Locator) -> str:
    """Of a page with one player."""
    return hashlib.sha256(evaluate(player.page, ".player", PIXELS).encode()).hexdigest()


def expect_data(player: Locator, name: str, value: str | re.Pattern[str]) -> None:
    expect(player).to_have_attribute(f"data-{name}", value)


def expect_mode(player: Locator, mode: str) -> None:
    """Of a page with one player: for a moment, that of another mode stands beside it."""
    expect(player.page.locator(f".player[data-mode={mode}]")).to_have_count(1)
    expect(player).to_have_count(1)


def time_of(player: Locator) -> float:
    return float(player.get_attribute("data-time") or "nan")


def ids_of(store: RunStore, kind: str) -> list[str]:
    return [run.id for run in store.list(kind)]


def is_pale(text: TextContrast) -> bool:
    """A slider's value stands above its knob, which counts as its background here; the arrow is Streamlit's own."""
    return re.fullmatch(r"[\d.]+|keyboard_.*", text.text) is not None


def test_opens_playing_a_recording_and_starts_over_when_it_is_opened_again(dashboard, visit) -> None:
    page = visit(dashboard.url)
    page.evaluate(NOTE_FRAMES)
    for _ in range(2):
        page.evaluate(FRAMES)  # of what was there before
        click(page, page.get_by_role("button", name="Watch the circle"))
        player = player_of(page)
        expect_mode(player, "recording")
        page.get_by_label("Speed").select_option("0.25")  # far from the end, however late it is looked at
        # From its beginning, through all that moves, with nobody's doing.
        seen: set[str] = set()
        wait_for(lambda: seen.update(page.evaluate(FRAMES)) or any("training:" in one for one in seen))  # noqa: B023
        early = look(player)
        wait_for(lambda: look(player) != early, what="a picture that is new")  # noqa: B023
        page.get_by_role("button", name="Pause").click()
        expect_data(player, "playing", "false")
        assert RunStore(dashboard.store).list() == []
        click(page, page.get_by_role("button", name="Home"))
        expect(page.get_by_role("button", name="Watch the circle")).to_be_visible()


def test_run_it_live_pause_and_step(dashboard, visit) -> None:
    page = visit(f"{dashboard.url}/?view=circle")
    player = player_of(page)
    expect_mode(player, "recording")
    training = dashboard.gates.close("train")
    page.get_by_role("button", name="Run it live").click()
    expect_mode(player, "live")
    training.wait()
    store = RunStore(dashboard.store)
    [train] = map(store.open, ids_of(store, "train"))
    # A slow machine takes more pictures than the one of step 0 before it comes to the gate.
    first = str(int(train.tensors("recording")["steps"][-1]))
    expect_data(player, "step", first)
    page.get_by_role("button", name="Pause").click()
    expect_data(player, "playing", "false")
    page.get_by_role("button", name="One frame on").click()  # asked for before it is there
    _let_it_take_a_picture(training, train)
    expect(player).not_to_have_attribute("data-step", first)
    second = player.get_attribute("data-step") or ""
    _let_it_take_a_picture(training, train)
    wait_for(lambda: float(player.get_attribute("data-received") or 0) > float(second))
    assert player.get_attribute("data-step") == second, "it is paused"
    page.get_by_role("button", name="One frame back").click()
    expect_data(player, "step", first)
    page.get_by_role("button", name="Play").click()
    expect(player).not_to_have_attribute("data-step", re.compile(f"^({first}|{second})$"))

    # A knob leaves it off and starts its own.
    page.get_by_role("combobox", name="Training points").click()
    page.get_by_role("option", name="4", exact=True).click()
    expect(page).to_have_url(re.compile("c_n=4"))
    wait_for(lambda: len(ids_of(store, "train")) == 2)
    wait_for(lambda: train.status().state is RunState.CANCELLED)
    expect_mode(player, "live")
    training.open()


def _let_it_take_a_picture(gate: Gate, run: Run) -> None:
    """On to a step at which the run's last picture is old enough for another."""
    gate.wait()
    [step] = [arrival.step for arrival in gate.arrivals() if arrival.run_id == run.id]
    wait_for(lambda: time.time() - (run.dir / "recording.safetensors").stat().st_mtime > OLD_SECONDS)
    gate.move(step + 10)  # pictures are taken between two reports


def test_start_and_see_the_points_move(dashboard, visit) -> None:
    page = visit(dashboard.url)
    page.goto(f"{dashboard.url}/{ADDRESS}")
    player = player_of(page)
    expect(page.get_by_text("on these 4 points")).to_be_visible()
    expect_mode(player, "still")
    looks = {look(player)}
    training, attack = (dashboard.gates.close(kind) for kind in ("train", "reconstruct"))
    click(page, page.get_by_role("button", name="Start", exact=True))
    expect_mode(player, "live")
    training.wait()
    training.open()
    store = RunStore(dashboard.store)
    [run] = [run for run in map(store.open, ids_of(store, "reconstruct")) if run.config["baseline"] is None]
    for _ in range(3):
        wait_for(lambda: run.id in {arrival.run_id for arrival in attack.arrivals()})
        [step] = [arrival.step for arrival in attack.arrivals() if arrival.run_id == run.id]
        shown = player.get_attribute("data-step") or ""
        # The run takes a picture where the last one is old enough.
        wait_for(lambda: time.time() - (run.dir / "snapshots.safetensors").stat().st_mtime > OLD_SECONDS)
        attack.move(step + 1)
        expect(player).not_to_have_attribute("data-step", shown)
        expect_mode(player, "live")
        wait_for(lambda: look(player) not in looks, what="a picture that is new")
        looks.add(look(player))
    attack.open()
    # From the live view it goes on by itself to the result.
    expect_mode(player, "recording")
    expect_data(player, "stage", "f")
    expect(page.get_by_test_id("stMetric")).to_have_count(2)
    expect(page.get_by_text("which the attack never sees")).to_be_visible()


def test_play_pause_step_and_scrub(shown: str, visit) -> None:
    page = visit(f"{shown}/{ADDRESS}")
    player = player_of(page)
    expect_mode(player, "recording")
    expect_data(player, "stage", "f")  # the result first
    expect_data(player, "theme", "light")
    expect(page.get_by_test_id("stMetric")).to_have_count(2)
    assert_readable(page, 11, is_pale)
    result = look(player)

    click(page, page.get_by_role("button", name="a Data"))
    expect_data(player, "stage", "a")
    expect(player).to_contain_text("The training set")
    assert look(player) != result
    for stage, words in (("b", "The network learns"), ("c", "Random candidates"), ("d", "The attack")):
        click(page, page.get_by_role("button", name=re.compile(f"^{stage} ")))
        expect_data(player, "stage", stage)
        expect(player).to_contain_text(words)

    length = float(player.get_attribute("data-length") or 0)
    page.get_by_role("slider", name="Position in the recording").fill("600")
    expect_data(player, "frame", re.compile("attack:"))
    assert time_of(player) == pytest.approx(0.6 * length, abs=0.02)
    before = time_of(player)
    click(page, page.get_by_role("button", name="One frame on"))
    expect(player).not_to_have_attribute("data-time", f"{before:.3f}")
    assert before < time_of(player) < before + 0.1

    before = time_of(player)
    page.get_by_label("Speed").select_option("0.25")  # far from the end, however late it is paused
    click(page, page.get_by_role("button", name="Play"))
    expect_data(player, "playing", "true")
    wait_for(lambda: time_of(player) > before + 0.2)
    page.get_by_role("button", name="Pause").click()
    expect_data(player, "playing", "false")
    paused = time_of(player)
    assert before + 0.2 < paused < length
    settle(page)  # nothing moves any more
    assert time_of(player) == paused

    # The same with the keyboard.
    player.focus()
    page.keyboard.press("Home")
    expect_data(player, "time", "0.000")
    page.keyboard.press("ArrowRight")
    expect(player).not_to_have_attribute("data-time", "0.000")
    first = player.get_attribute("data-time") or ""
    page.keyboard.press("ArrowRight")
    expect(player).not_to_have_attribute("data-time", first)
    page.keyboard.press("ArrowLeft")
    expect_data(player, "time", first)
    page.keyboard.press(" ")
    expect_data(player, "playing", "true")
    page.keyboard.press(" ")
    expect_data(player, "playing", "false")
    page.keyboard.press("4")
    expect_data(player, "stage", "d")
    page.keyboard.press("End")
    expect_data(player, "time", player.get_attribute("data-length") or "")


def test_reload_and_sliders_leave_the_recording_where_it_was(shown: str, visit) -> None:
    page = visit(f"{shown}/{ADDRESS}")
    player = player_of(page)
    expect_mode(player, "recording")
    settle(page)
    page.get_by_role("slider", name="Position in the recording").fill("500")
    page.get_by_label("Speed").select_option("2")
    expect_data(player, "frame", re.compile("attack:"))
    moment = player.get_attribute("data-time") or ""

    slide(page, "Drop multipliers below", "End")
    expect(page.get_by_test_id("stMetric").first).to_contain_text("0 of 4")
    expect(page).to_have_url(re.compile("c_lam=40"))
    click(page, page.get_by_role("button", name="First-layer weights"))
    expect(player).to_contain_text("first-layer weights")
    expect(page).to_have_url(re.compile("c_over="))
    assert player.get_attribute("data-time") == moment
    settle(page)
    page.wait_for_function("() => (window.looks = (window.looks ?? 0) + 1) > 2")  # it looks once in each frame
    picture = look(player)

    page.reload()
    player = player_of(page)
    expect_data(player, "time", moment)
    expect(page.get_by_label("Speed")).to_have_value("2")
    expect(page.get_by_test_id("stMetric").first).to_contain_text("0 of 4")
    expect(player).to_contain_text("first-layer weights")
    assert "c_n=4" in page.url
    wait_for(lambda: look(player) == picture, what="the picture from before")


def test_two_side_by_side_in_the_dark(shown: str, visit) -> None:
    page = visit(f"{shown}/{ADDRESS}", "dark", 1920, 1080)
    expect_data(player_of(page), "theme", "dark")
    click(page, page.get_by_text("Compare with another setting"))
    players = page.locator(".player")
    expect(players).to_have_count(2)
    expect(page).to_have_url(re.compile("c_two=true"))
    expect_data(players.nth(1), "mode", "still")
    assert_readable(page, 11, is_pale)
    # The same setting on both sides has a recording on both sides, and one button moves both.
    page.goto(f"{shown}/{ADDRESS}&c_two=true&d_n=4&d_width=50&d_labels=alternating")
    for slot in (0, 1):
        expect_data(players.nth(slot), "mode", "recording")
    click(page, page.get_by_role("button", name="c Start").first)
    for slot in (0, 1):
        expect_data(players.nth(slot), "stage", "c")
    settle(page)
    brightness = evaluate(
        page,
        ".player",
        """player => {
          const canvas = player.querySelector('.screen canvas');
          const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
          return data.reduce((sum, value, place) => place % 4 === 3 ? sum : sum + value, 0) / data.length * 4 / 3;
        }""",
    )
    assert brightness < 100, "the picture is light although the page is dark"


def test_bring_your_own_model_leads_to_the_import(dashboard, visit) -> None:
    page = visit(dashboard.url)
    click(page, page.get_by_role("button", name="Bring your own model"))
    expect(page).to_have_url(re.compile("/Train"))
    expect(page.get_by_role("tab", name="Import", selected=True)).to_be_visible()
