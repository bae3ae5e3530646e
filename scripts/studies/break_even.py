"""Study `break-even`: what heads cost to make, what they save for each token served, and when the cost has come back."""

import math

from .cells import Output
from .common import NAMES, Study, auto_sentence, is_of, is_plain, rounds_sentence
from .pages import Page, draw_bars, table

DEFAULT_KINDS = ("medusa", "clover", "redrafter")  # unless the user names others
TOKENS_AN_ANSWER = 200  # of which the page speaks


class BreakEven(Study):
    name = "break-even"

    @property
    def kinds(self) -> tuple[str, ...]:
        return self.jobs.size.kinds or DEFAULT_KINDS

    def stages(self) -> list[list[Output]]:
        return [*self.rate_search(self.kinds), [self.speed(), self.copying()]]

    def speed(self) -> Output:
        return self.jobs.bench("speed of trained heads", [self.costed_heads(kind) for kind in self.kinds], self.bench_file, len(self.bench_questions),
                               "--draft", "off,auto", guesses=[0] * (1 + len(self.kinds)))

    def costed_heads(self, kind: str) -> Output:
        """Of the better learning rate; the fit computes the target's features itself, so that its cost is whole."""
        return self.heads(kind, self.best_rate(kind), features=False)

    def page(self) -> Page:
        sizes = self.jobs.size.batch_sizes
        rows = self.read(self.speed())["configurations"]
        plain = {row["batch_size"]: row["tokens_per_second"] for row in rows if is_plain(row)}
        copied = {size: row["ratio_to_off"] for size, row in self.copying_rows().items()}
        heads = {kind: self.costed_heads(kind) for kind in self.kinds}
        kinds = {}
        for kind in self.kinds:
            with_heads = {row["batch_size"]: row for row in rows if row["draft"] == "auto" and is_of(row, heads[kind])}
            kinds[kind] = {
                "cost": with_heads[sizes[0]]["training_cost"],
                "saved_seconds_per_1000_tokens": {size: 1000 / plain[size] - 1000 / row["tokens_per_second"]
                                                  for size, row in with_heads.items()},
                "break_even_tokens": {size: row["break_even_tokens"] for size, row in with_heads.items()},
                "break_even_tokens_beside_copying": {
                    size: tokens_until(with_heads[sizes[0]]["training_cost"]["seconds"], plain[size] * max(1.0, copied[size]), row["tokens_per_second"])
                    for size, row in with_heads.items()},
                "ratio_to_plain": {size: row["ratio_to_off"] for size, row in with_heads.items()}}
        return Page(f"When heads have paid for themselves: {self.jobs.target.name}", self.answer(kinds),
                    {"plain_tokens_per_second": plain, "copying_ratio_to_plain": copied, "kinds": kinds},
                    [self.section(kinds), self.speed_section(plain, copied, kinds, rows, heads)], {"break-even.png": lambda axes: draw_bars(
                        axes, [f"batch {size}" for size in sizes],
                        {NAMES[kind]: [of["saved_seconds_per_1000_tokens"][size] for size in sizes] for kind, of in kinds.items()},
                        "seconds saved for 1000 tokens")})

    def answer(self, kinds: dict) -> str:
        sizes = self.jobs.size.batch_sizes
        best = min(kinds, key=lambda kind: kinds[kind]["break_even_tokens"][sizes[0]] or math.inf)
        cost, tokens = kinds[best]["cost"], kinds[best]["break_even_tokens"]
        beside = kinds[best]["break_even_tokens_beside_copying"]
        return (f"Making {NAMES[best]} heads took {cost['seconds']:.0f} seconds on this machine, {cost['fit_seconds']:.0f} of them training. "
                f"Beside plain decoding they {pay(tokens[sizes[0]])} at batch {sizes[0]} and {pay(tokens[sizes[-1]])} at batch {sizes[-1]}. Beside "
                f"`auto` without heads, which copies guesses from the text, they {pay(beside[sizes[0]])} at batch {sizes[0]}.")

    def section(self, kinds: dict) -> str:
        sizes = self.jobs.size.batch_sizes
        told = all("joules" in of["cost"] for of in kinds.values())
        energy = "The energy is that of CPUs and GPU, of each as far as the machine tells it, while they answered and trained." if told else \
            "Energy is not claimed: the machine does not tell it."
        lines = [[NAMES[kind], f"{of['cost']['answers_seconds']:.0f}", f"{of['cost']['fit_seconds']:.0f}", f"{of['cost']['operations'] / 1e12:.1f}",
                  *([f"{of['cost']['joules'] / 1000:.1f}"] if told else []),
                  *(of["saved_seconds_per_1000_tokens"][size] for size in sizes),
                  *(answers(of["break_even_tokens"][size]) for size in sizes),
                  *(answers(of["break_even_tokens_beside_copying"][size]) for size in sizes)] for kind, of in kinds.items()]
        header = ["", "answers, s", "fit, s", "10^12 operations of the fit", *(["energy, kJ"] if told else []),
                  *(f"saved for 1000 tokens, batch {size}, s" for size in sizes), *(f"answers until it pays, batch {size}" for size in sizes),
                  *(f"beside copying alone, batch {size}" for size in sizes)]
        return (f"## Cost and gain\n\n{self.learned_sentence()}. {self.speed_sentence()} Heads decode under `auto`; an answer counts as {TOKENS_AN_ANSWER} "
                "tokens; the last columns count what heads save beyond `auto` without them, where that is faster than plain decoding. The cost "
                "is wall-clock time on the machine that "
                "decodes: the target's answers to the training questions, `prepare`, and the fit. Choosing among learning rates is not "
                f"counted, nor is loading. Each fit computes the target's features itself. {energy}\n\n" + table(header, lines))

    def speed_section(self, plain: dict, copied: dict, kinds: dict, rows: list[dict], heads: dict[str, Output]) -> str:
        sizes = self.jobs.size.batch_sizes
        ratios = {"no heads": copied, **{NAMES[kind]: of["ratio_to_plain"] for kind, of in kinds.items()}}
        lines = [[name, *(of[size] for size in sizes)] for name, of in ratios.items()]
        alone = ", ".join(f"{plain[size]:.0f} at batch {size}" for size in sizes)
        autos = auto_sentence([row for row in rows if not is_plain(row)],
                              lambda row: next(NAMES[kind] for kind, of_kind in heads.items() if is_of(row, of_kind)))
        return (f"## Speed\n\nTokens/s of `auto` over plain decoding's, which are {alone}. {rounds_sentence(rows)} {autos}\n\n" +
                table(["", *(f"batch {size}" for size in sizes)], lines))


def tokens_until(cost: float, tokens_per_second: float, with_heads: float) -> float | None:
    """How many tokens heads must decode until they have saved `cost` seconds; None if they save nothing."""
    saved = 1 / tokens_per_second - 1 / with_heads
    return cost / saved if saved > 0 else None


def pay(tokens: float | None) -> str:
    if tokens is None:
        return "never pay, since they save nothing,"
    return f"have paid after {answers(tokens)} answers of {TOKENS_AN_ANSWER} tokens"


def answers(tokens: float | None) -> str:
    return "never" if tokens is None else f"{tokens / TOKENS_AN_ANSWER:,.0f}"
