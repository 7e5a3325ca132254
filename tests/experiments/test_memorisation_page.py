"""The page to point at, in a browser without a network: what is shaded is what the data say."""

import json
import math
import re
import shutil

import numpy as np
import pytest

from experiments.characters.model import Sized
from experiments.characters.writing import Passage
from experiments.memorisation.figures import DECADES, interactive_page, shares_of_largest
from experiments.memorisation.measure import LIKELIEST, Results, Traced

MODELS = ("gru", "lstm", "mamba")
TEXTS = ("def <b>f</b>(x):\n    return x & 1", "A second passage, 'as' \"long\" a")
LIGHT, DARK = np.array([255, 255, 255]), np.array([86, 180, 233])
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def traced(seed, length):
    generator = np.random.default_rng(seed)
    strength = np.tril(10 ** generator.uniform(-5, 1, (len(TEXTS), length, length)), -1)
    strength[0, 5] = 0  # a prediction that depends on nothing
    chances = -np.sort(-generator.dirichlet(np.ones(96), (len(TEXTS), length)))[..., :LIKELIEST]
    likeliest = generator.permuted(np.tile(np.arange(96), (len(TEXTS), length, 1)), axis=-1)
    truth = generator.uniform(0.01, 0.9, (len(TEXTS), length))
    return Traced(
        Sized(MODELS[seed], 8, 1), (), strength, likeliest[..., :LIKELIEST], chances, truth
    )


@pytest.fixture(scope="module")
def page():
    length = min(map(len, TEXTS))
    passages = [Passage(f"topic {i}", text[:length], "") for i, text in enumerate(TEXTS)]
    return interactive_page(Results(passages, tuple(traced(seed, length) for seed in range(3))))


def data_of(page):
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])


def test_the_data_are_what_was_measured_and_end_no_script(page):
    assert page.count("</script>") == 2
    data = data_of(page)
    assert data["passages"][0]["text"] == TEXTS[0][: len(data["passages"][0]["text"])]
    own = traced(1, len(data["passages"][0]["text"]))
    shown = data["models"][1]["passages"][1]
    assert [len(row) for row in shown["rows"]] == list(range(len(own.truth[1])))
    strength = own.strength[1, 9, :9]
    np.testing.assert_allclose(shown["rows"][9], strength / strength.max(), rtol=5e-3)
    assert shown["bits"] == pytest.approx(-np.log2(own.truth[1]).mean())
    assert not any(data["models"][0]["passages"][0]["rows"][5])


def test_nothing_outside_is_asked_for(page):
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!data:,)""", page)
    assert "http" not in page and "import" not in page and "fetch" not in page


def test_shares_of_nothing_are_none():
    assert shares_of_largest(np.zeros(3)).tolist() == [0, 0, 0]
    assert shares_of_largest(np.array([1.0, 4.0, 0.0])).tolist() == [0.25, 1, 0]


def shade(share):
    level = max(0, 1 + math.log10(share) / DECADES) if share > 0 else 0
    return LIGHT + level * (DARK - LIGHT)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    chromium = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver_path = shutil.which("chromedriver")
    if chromium is None or driver_path is None:
        pytest.skip("a browser test needs chromium and chromedriver, one of them is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    profile = tmp_path_factory.mktemp("profile")
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        f"--user-data-dir={profile}",
        "--window-size=1300,1000",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(driver_path)
    driver = webdriver.Chrome(options=options, service=service)
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture(scope="module")
def opened(browser, page, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "memorisation.html"
    path.write_text(page, encoding="utf-8")
    browser.get("about:blank")
    browser.get_log("performance")  # forgets what the page of a new tab asked for
    browser.get(path.as_uri())
    return browser


def spans(driver, model):
    return driver.find_elements("css selector", f"#{model} .text span")


def colors(driver, model):
    """The background of every character of a model, `[T, 3]`; of one without any white."""
    script = (
        "return [...document.querySelectorAll('#' + arguments[0] + ' .text span')]"
        ".map(span => getComputedStyle(span).backgroundColor)"
    )
    found = []
    for color in driver.execute_script(script, model):
        numbers = [float(number) for number in re.findall(r"[\d.]+", color)]
        found.append(LIGHT if len(numbers) == 4 and numbers[3] == 0 else numbers[:3])
    return np.array(found)


def expected(data, model, passage, t):
    """White but for the characters in front of t, which are shaded as their number says."""
    rows = data["models"][MODELS.index(model)]["passages"][passage]["rows"]
    made = np.tile(LIGHT, (len(rows), 1)).astype(float)
    made[:t] = [shade(share) for share in rows[t]] if t else made[:t]
    return made


def point_at(driver, element):
    from selenium.webdriver import ActionChains

    ActionChains(driver).move_to_element(element).perform()


def agree(driver, page, passage, t):
    for model in MODELS:
        found, wanted = colors(driver, model), expected(data_of(page), model, passage, t)
        np.testing.assert_allclose(found, wanted, atol=0.51, err_msg=model)
        assert (found[t:] == LIGHT).all(), model
        chosen = driver.find_elements("css selector", f"#{model} .chosen")
        assert [element.get_attribute("data-t") for element in chosen] == [str(t)]


def test_pointing_at_a_character_shades_what_it_depends_on_in_all_models(opened, page):
    point_at(opened, spans(opened, "lstm")[12])
    before = colors(opened, "mamba")
    agree(opened, page, 0, 12)
    point_at(opened, spans(opened, "lstm")[20])
    agree(opened, page, 0, 20)
    after = colors(opened, "mamba")
    assert (after[:12] != before[:12]).any() and (after[12:20] != LIGHT).any()
    assert not (colors(opened, "gru") == colors(opened, "lstm")).all()
    guesses = opened.find_elements("css selector", "#gru tbody tr")
    likeliest = data_of(page)["models"][0]["passages"][0]["likeliest"][20]
    assert LIKELIEST <= len(guesses) <= LIKELIEST + 1
    top = next(character for character, _ in likeliest)
    assert guesses[0].text.startswith({" ": "␣", "\n": "⏎"}.get(top, top))
    assert len(opened.find_elements("css selector", "#gru tr.truth")) == 1


def test_the_keyboard_moves_and_another_passage_can_be_chosen(opened, page):
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import Select

    point_at(opened, spans(opened, "gru")[15])
    text = opened.find_element("css selector", "#gru .text")
    text.send_keys(Keys.ARROW_LEFT)
    agree(opened, page, 0, 14)
    text.send_keys(Keys.HOME)
    agree(opened, page, 0, 0)
    text.send_keys(Keys.ARROW_LEFT)
    agree(opened, page, 0, 0)
    text.send_keys(Keys.ARROW_RIGHT * 5)
    agree(opened, page, 0, 5)
    select = opened.find_element("id", "passage")
    point_at(opened, select)  # a pointer that rests on the text would point at the new one
    Select(select).select_by_index(1)
    last = len(data_of(page)["passages"][1]["text"]) - 1
    agree(opened, page, 1, last)


def test_the_page_asks_for_nothing_and_complains_about_nothing(opened):
    messages = [json.loads(entry["message"])["message"] for entry in opened.get_log("performance")]
    requests = [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]
    assert [url.partition(":")[0] for url in requests if not url.startswith("data:")] == ["file"]
    assert opened.get_log("browser") == []
    width, shown = opened.execute_script(
        "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert width <= shown
