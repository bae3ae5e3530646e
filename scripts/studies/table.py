"""Study `table`: every kind of heads on one target: tokens a step, tokens/s, accuracy by head, answers that differ."""

import math

from .cells import Output
from .common import ALL, BUDGET, NAMES, Study, auto_sentence, extra_ratio, is_of, is_plain, rounds_sentence, slashed, tokens_by_task, tops
from .jobs import KINDS
from .pages import Page, draw_bars, table

# Tokens a step, the bonus token included, that publications report for greedy decoding of 7B and 8B models.
PUBLISHED = {
    "medusa": (2.31, "Vicuna-7B, Spec-Bench, 64 nodes a tree"),
    "clover2": (3.68, "Vicuna-7B, mean of Spec-Bench's six tasks, 26 nodes a tree, the first token of an answer not counted as a step"),
    "hydra": (3.26, "Vicuna-7B, Spec-Bench, 64 nodes a tree"),
    "redrafter": (2.73, "Vicuna-7B, MT-Bench, 4 beams, distilled (arXiv 2403.09919)"),
    "eagle": (3.58, "Vicuna-7B, Spec-Bench, 26 nodes a tree"),
    "eagle3": (3.84, "Llama-3-8B, MT-Bench, a chain (arXiv 2602.23881)"),
}


def name_of(kind: str | None) -> str:
    return NAMES[kind] if kind else "no heads"


class Table(Study):
    name = "table"

    @property
    def kinds(self) -> list[str]:
        """Medusa and Clover are always there: the page compares them."""
        return [kind for kind in KINDS if kind in ("medusa", "clover", *(self.jobs.size.kinds or KINDS))]

    def stages(self) -> list[list[Output]]:
        best = [self.best_heads(kind) for kind in self.kinds]
        evaluations = [self.kind_evaluation(kind) for kind in self.kinds]
        return [*self.rate_search(self.kinds), [*evaluations, self.speed(best), self.copying()]]

    def kind_evaluation(self, kind: str) -> Output:
        return self.evaluation(NAMES[kind], self.best_heads(kind))

    def speed(self, heads: list[Output]) -> Output:
        return self.jobs.bench("speed of all kinds", heads, self.bench_file, len(self.bench_questions), "--draft", "off,clover,auto", "--budgets",
                               str(BUDGET), guesses=[0, *[0, BUDGET] * len(heads)])

    def page(self) -> Page:
        best = {kind: self.best_heads(kind) for kind in self.kinds}
        rows, measured = [], self.read(self.speed(list(best.values())))["configurations"]
        for row in [*measured, *self.copying_rows().values()]:
            kind = None if not row["heads"] else next(kind for kind, heads in best.items() if is_of(row, heads))
            rows.append({"kind": kind, **{name: row[name] for name in ("draft", "batch_size", "tokens_per_step", "tokens_per_second",
                                                                       "ratio_to_off", "differs_from_off")}})
        accuracy = {kind: self.read(self.kind_evaluation(kind)) for kind in self.kinds}
        differ = sum(row["differs_from_off"] for row in rows)
        tokens = {kind: tokens_by_task(found) for kind, found in accuracy.items()}
        figures = {"tokens_per_step": tokens, "rates": {kind: self.best_rate(kind) for kind in self.kinds}, "rows": rows, "answers_that_differ": differ,
                   "top1": {kind: tops(found, 1) for kind, found in accuracy.items()},
                   "top5": {kind: tops(found, 5) for kind, found in accuracy.items()}}
        return Page(f"Kinds of heads on {self.jobs.target.name}", self.answer(rows, tokens, differ), figures,
                    [self.task_section(tokens), self.speed_section(rows, rounds_sentence(measured)), self.accuracy_section(accuracy, figures["rates"]),
                     self.published_section(tokens)],
                    {"table.png": lambda axes: self.draw(axes, rows)})

    def of(self, rows: list[dict], kind: str | None, draft: str, size: int) -> dict:
        return next(row for row in rows if row["kind"] == kind and row["draft"] == draft and row["batch_size"] == size)

    def answer(self, rows: list[dict], tokens: dict[str, dict[str, float]], differ: int) -> str:
        first = min(self.jobs.size.batch_sizes)
        longest = max(self.kinds, key=lambda kind: tokens[kind][ALL])
        speeds = {kind: self.of(rows, kind, "auto", first)["ratio_to_off"] for kind in self.kinds}
        slowest, fastest = min(speeds, key=speeds.get), max(speeds, key=speeds.get)
        extra = {task: extra_ratio(tokens["clover"][task], tokens["medusa"][task]) for task in tokens["clover"]}
        over_medusa = "Medusa yields no extra tokens" if math.isnan(extra[ALL]) else \
            f"Clover's extra tokens are {extra[ALL]:.2f} times Medusa's"
        if not math.isnan(extra.get("gsm8k", math.nan)):
            over_medusa += f", {extra['gsm8k']:.2f} times on GSM8K"
        return (f"With {BUDGET} guesses a step {NAMES[longest]} yields the most tokens a step, {tokens[longest][ALL]:.2f}; {over_medusa} "
                f"(the paper: 1.5 to 1.76 times). Under `auto` and at batch {first} heads decode {speeds[slowest]:.2f} ({NAMES[slowest]}) to "
                f"{speeds[fastest]:.2f} ({NAMES[fastest]}) times as fast as plain decoding, where copying guesses from the text, which needs no heads, "
                f"has {self.of(rows, None, 'auto', first)['ratio_to_off']:.2f}. {differ} answers differ from plain decoding's.")

    def speed_section(self, rows: list[dict], rounds: str) -> str:
        sizes, lines = self.jobs.size.batch_sizes, []
        for kind, draft in [(None, "off"), (None, "auto"), *((kind, draft) for draft in ("clover", "auto") for kind in self.kinds)]:
            found = [self.of(rows, kind, draft, size) for size in sizes]
            name = "plain decoding" if draft == "off" else f"{name_of(kind)}, {'`auto`' if draft == 'auto' else f'{BUDGET} guesses'}"
            medusa = [self.of(rows, "medusa", draft, size)["tokens_per_second"] if kind else float("nan") for size in sizes]
            lines.append([name, found[0]["tokens_per_step"], *(f"{row['tokens_per_second']:.0f}" for row in found),
                          *(row["ratio_to_off"] for row in found),
                          *(row["tokens_per_second"] / other for row, other in zip(found, medusa))])
        header = ["", f"tokens a step, batch {sizes[0]}", *(f"{what}{size}" for what in ("tokens/s, batch ", "to plain, ", "to Medusa, ") for size in sizes)]
        autos = auto_sentence([row for row in rows if row["draft"] != "off"], lambda row: name_of(row["kind"]))
        return (f"## Speed\n\n{self.speed_sentence()} All kinds were measured in one run, `auto` without heads in another, each beside plain decoding; "
                "tokens/s are also shown over plain decoding's and over Medusa's under the same policy. `auto` copies guesses from the text, too, where "
                f"that pays. {rounds} {autos}\n\n" + table(header, lines))

    def task_section(self, tokens: dict[str, dict[str, float]]) -> str:
        tasks = list(tokens["medusa"])
        lines = [[NAMES[kind], *(found[task] for task in tasks), extra_ratio(found[ALL], tokens["medusa"][ALL])] for kind, found in tokens.items()]
        return (f"## Tokens a step\n\n{self.data_sentence()} {self.rates_sentence({NAMES[kind]: (kind,) for kind in self.kinds})} The last "
                "column is extra tokens a step over Medusa's.\n\n" + table(["", *tasks, "extra, to Medusa"], lines))

    def accuracy_section(self, accuracy: dict[str, dict], rates: dict[str, float]) -> str:
        lines = [[NAMES[kind], f"{rates[kind]:g}", slashed(tops(found, 1)), slashed(tops(found, 5))] for kind, found in accuracy.items()]
        return ("## Accuracy by head\n\nShare of right tokens that are the head's best guess, or among its best five, in per cent, first head "
                "first. Each head is given the right earlier tokens, not its own guesses.\n\n" + table(["", "learning rate", "top-1, %", "top-5, %"], lines))

    def published_section(self, tokens: dict[str, dict[str, float]]) -> str:
        lines = []
        for kind, (published, about) in PUBLISHED.items():
            if kind not in tokens:
                continue
            ours = tokens[kind][ALL]
            lines.append([NAMES[kind], ours, published, f"{100 * (ours - 1) / (published - 1):.0f} %", about])
        return (f"## Beside what publications report\n\nTheirs are of larger models, much more data and, but for the chain, larger trees; ours "
                f"have {BUDGET} guesses a step. Clover's paper reports no tokens a step of an open model, but 1.5 to 1.76 times Medusa's extra "
                "tokens.\n\n" +
                table(["", "tokens a step", "published", "share of its extra tokens", "measured with"], lines))

    def draw(self, axes, rows: list[dict]) -> None:
        sizes = self.jobs.size.batch_sizes
        draw_bars(axes, [f"batch {size}" for size in sizes],
                  {name_of(kind): [self.of(rows, kind, "auto", size)["ratio_to_off"] for size in sizes]
                   for kind in [None, *self.kinds]},
                  "tokens/s over plain decoding, auto")
        axes.axhline(1, color="grey", linewidth=0.8)
