"""The playground's real model in headless chromium: loading, the first token, the ones after it,
memory, and how near that comes to what the kernel could do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks.records import Results
from rmutils import load_model
from rmutils.book.chapters.speed import FOLDER
from rmutils.book.site import playground
from rmutils.book.site.pdf import browsing, serving
from rmutils.book.site.steps import HTML
from rmutils.core.config import Config
from rmutils.core.paths import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

LOAD = """async name => {
    const model = Playground.models.find(model => model.name === name);
    const started = performance.now();
    globalThis.thread = await Playground.LoadedModel.load(model, () => {});
    return (performance.now() - started) / 1000;
}"""
ASK = """([run, change, sentences, seed]) => new Promise((resolve, reject) => {
    // Sentences in an order of the round's own, so that no beginning has been read before.
    const scene = Playground.models.find(model => model.name === thread.name).scenes[0];
    const all = scene.haystack.match(/[^.]+[.]\\s*/g);
    const turned = [...all.slice(seed % all.length), ...all.slice(0, seed % all.length)];
    const question = {...scene, haystack: turned.slice(0, sentences).join(''), change};
    const started = performance.now(), times = [];
    let tokens;
    thread.ask(run, question, event => {
        if (event.kind === 'failure') reject(new Error(event.text));
        if (event.kind === 'prompt') tokens = event.ids.length;
        if (event.kind === 'token') times.push((performance.now() - started) / 1000);
        if (event.kind === 'end') resolve({tokens, times});
    });
})"""
KERNEL = """([rows, repeats]) => {  // multiply-adds a second, as Llama.#times asks for them
    const memory = new WebAssembly.Memory({initial: 64, maximum: 65536});
    const module = new WebAssembly.Module(Playground.Engine.bytes(Playground.KERNEL));
    const {product, unpackQ4_1} = new WebAssembly.Instance(module, {page: {memory}}).exports;
    const depth = 576, columns = Playground.Llama.ROWS, packed = 1 << 20, out = 3 << 20;
    const started = performance.now();
    for (let i = 0; i < repeats; i++) {
        unpackQ4_1(packed, 0, columns * depth / 32);
        product(out, 4 * columns, 1 << 17, 4 * depth, 0, 4 * depth, rows, columns, depth);
    }
    return repeats * rows * columns * depth / (performance.now() - started) * 1000;
}"""
ROWS = 9
"""Of a complete file: the model, two ways to load, three kinds of answers, memory, the kernel."""
WHOLE = {"kind": "WholeModel"}


class Settings(Config):
    """How often, and with how much text before the question."""

    rounds: int = 5
    sentences: int = 8


QUICK = {"rounds": 1, "sentences": 4}


def measure(settings: Settings = Settings(), folder: Path = FOLDER) -> bool:
    """Measure what is not measured yet, in the built book.

    Returns
    -------
    bool
        True; answers are compared with PyTorch's by the tests.
    """
    results, name = Results("playground", settings, folder), playground.REAL
    if len(results.rows) == ROWS:
        return True
    results.rows.clear()
    lm = load_model(name)
    results.add({"what": "weights", "words": lm.model.lm_head.weight.numel(), "layers": sum(
        weight.numel() for weight in lm.model.model.layers.parameters() if weight.ndim == 2)})
    with serving(ROOT / HTML) as address, browsing() as browser:
        folder_address = f"{(ROOT / HTML).as_uri()}/"
        for where, page_address in {"server": address, "folder": folder_address}.items():
            seconds = []
            for _ in range(settings.rounds):
                with _opened(browser, page_address) as page:
                    seconds.append(page.evaluate(LOAD, name))
            results.add({"what": "load", "from": where, "seconds": seconds})
        with _opened(browser, address) as page:
            page.evaluate(LOAD, name)
            page.evaluate("name => { thread.name = name; }", name)
            loaded = _memory()
            _answers(page, results, settings)
            results.add({"what": "memory", "loaded": loaded, "answered": _memory()})
            for rows, repeats in ((32, 8_000), (1, 60_000)):
                rates = [page.evaluate(KERNEL, [rows, repeats]) for _ in range(settings.rounds + 1)]
                results.add({"what": "kernel", "tokens": rows, "per_second": rates[1:]})
    return True


def _answers(page: Page, results: Results, settings: Settings) -> None:
    """Ask the whole model, the same again, and the one without its highest heads."""
    heads = page.evaluate("() => Array.from({length: 10}, (_, i) => 9 * 18 + i)")
    asked: dict[str, list[dict[str, Any]]] = {"first": [], "again": [], "masked": []}
    for seed in range(settings.rounds):
        for what, run, change in (
                ("first", "whole", WHOLE), ("again", "whole", WHOLE),
                ("masked", "changed", {"kind": "MaskedModel", "heads": heads})):
            asked[what].append(page.evaluate(ASK, [run, change, settings.sentences, seed + 1]))
    for what, answers in asked.items():
        results.add({
            "what": what, "tokens": [answer["tokens"] for answer in answers],
            "seconds": [answer["times"][0] for answer in answers],
            "per_second": [(len(times) - 1) / (times[-1] - times[0])
                           for times in (answer["times"] for answer in answers)],
        })


@contextmanager
def _opened(browser: Browser, address: str) -> Iterator[Page]:
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(300_000)
    page.goto(f"{address}playground.html")
    yield page
    context.close()


def _memory() -> int:
    """Bytes of the largest of the browser's processes that hold pages."""
    return max(one.memory_info().rss for one in psutil.Process().children(recursive=True)
               if "--type=renderer" in one.cmdline())
