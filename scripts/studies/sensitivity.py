"""Study `sensitivity`: how far Clover's result hangs on tree size, learning rate, number of heads, context and data."""

import math
from functools import cached_property
from pathlib import Path
from statistics import mean

from .cells import Output
from .common import Study, auto_sentence, is_plain, rounds_sentence
from .jobs import default_learning_rate
from .pages import Page, draw_lines, spread, table, widest_spread
from .requests import user_texts

BUDGETS = (2, 4, 8, 16, 32)
TOKENS_A_WORD = 1.4


class Sensitivity(Study):
    name = "sensitivity"

    # Heads

    def rate_heads(self, factor: float, seed: int = 1) -> Output:
        return self.heads("clover", factor * default_learning_rate("clover"), seed)

    def count_heads(self, count: int) -> Output:
        return self.heads("clover", default_learning_rate("clover"), 1, "--heads", str(count), label=f"{count} heads")

    def data_heads(self, share: float, seed: int) -> Output:
        if share == 1:
            return self.rate_heads(1, seed)
        count = max(4, int(self.train_count * share))
        questions = self.jobs.file(f"train-{count}", self.questions["train"][:count])
        store = self.jobs.store(self.jobs.answers("training", questions, count))
        return self.jobs.heads("clover", default_learning_rate("clover"), store, count, seed, label=f"Clover on {count} answers")

    # Measurements

    @cached_property
    def dev_bench_questions(self) -> list[dict]:
        return self.jobs.bench_part(self.questions["dev"])

    @cached_property
    def dev_bench_file(self) -> Path:
        return self.jobs.file("dev-bench", self.dev_bench_questions)

    def tree_bench(self, factor: float) -> Output:
        """Every tree size and batch size for heads of one learning rate."""
        return self.jobs.bench(f"tree sizes, learning rate times {factor:g}", [self.rate_heads(factor)], self.dev_bench_file,
                               len(self.dev_bench_questions), "--draft", "off,clover,auto", "--budgets", ",".join(map(str, BUDGETS)),
                               guesses=(0, 0, *BUDGETS))

    def count_bench(self, count: int) -> Output:
        return self.jobs.bench(f"{count} heads", [self.count_heads(count)], self.dev_bench_file, len(self.dev_bench_questions),
                               "--draft", "off,clover,auto", "--budgets", "4", guesses=(0, 0, 4))

    def context_bench(self, context: int) -> Output:
        questions = self.long_questions(context)
        return self.jobs.bench(f"context {context}", [self.rate_heads(1)], self.jobs.file(f"context-{context}", questions), len(questions),
                               "--draft", "off,clover,auto", "--budgets", "4", guesses=(0, 0, 4), prompt_tokens=100 + context)

    @cached_property
    def other_words(self) -> list[str]:
        """Of questions that no heads learned from, if there are others."""
        others = self.jobs.unused_questions() or self.questions["train"]
        return " ".join(text for record in others for text in user_texts(record)).split()

    def long_questions(self, context: int) -> list[dict]:
        """The development questions behind about `context` tokens of other questions, which are not to be answered."""
        words, length = self.other_words, context / TOKENS_A_WORD
        chosen = []
        for number, record in enumerate(self.dev_bench_questions):
            start = number * 97 % max(1, len(words) - int(length))
            before = " ".join(words[start:start + int(length)])
            chosen.append({"messages": [{"role": "user", "content": f"Notes: {before}\n\nNow answer: {' '.join(user_texts(record))}"}]})
        return chosen

    def seed_evaluation(self, share: float, seed: int) -> Output:
        return self.evaluation(f"Clover on {share:g} of the data, seed {seed}", self.data_heads(share, seed))

    def stages(self) -> list[list[Output]]:
        return [[*(self.tree_bench(factor) for factor in self.jobs.size.rate_factors), *(self.count_bench(count) for count in self.jobs.size.head_counts),
                 *(self.context_bench(context) for context in self.jobs.size.contexts),
                 *(self.seed_evaluation(share, seed) for share in self.jobs.size.data_shares for seed in self.jobs.size.seeds)]]

    # The page

    def page(self) -> Page:
        sizes = self.jobs.size.batch_sizes
        trees = {factor: self.read(self.tree_bench(factor))["configurations"] for factor in self.jobs.size.rate_factors}
        counts = {count: self.read(self.count_bench(count))["configurations"] for count in self.jobs.size.head_counts}
        contexts = {context: self.read(self.context_bench(context))["configurations"] for context in self.jobs.size.contexts}
        data = {share: [self.read(self.seed_evaluation(share, seed))["tokens_per_step"] for seed in self.jobs.size.seeds]
                for share in self.jobs.size.data_shares}
        ratios = {size: {(factor, setting_of(row)): row["ratio_to_off"] for factor, rows in trees.items() for row in rows
                         if not is_plain(row) and row["batch_size"] == size} for size in sizes}
        yields = {factor: {row["budget"]: row["tokens_per_step"] for row in rows if row["draft"] == "clover"} for factor, rows in trees.items()}
        figures = {"trees": [{"rate_factor": factor, "setting": setting, "batch_size": size, "ratio_to_plain": ratio}
                             for size, found in ratios.items() for (factor, setting), ratio in found.items()],
                   "tokens_per_step": [{"rate_factor": factor, "guesses": guesses, "tokens_per_step": tokens}
                                       for factor, found in yields.items() for guesses, tokens in found.items()],
                   "heads": {count: kept(rows) for count, rows in counts.items()},
                   "context": {prompt_tokens(rows): kept(rows) for rows in contexts.values()}, "data": data,
                   "differ": sum(row["differs_from_off"] for group in (trees, counts, contexts) for rows in group.values() for row in rows)}
        return Page(f"What Clover's result hangs on: {self.jobs.target.name}", self.answer(ratios, yields, data, counts), figures,
                    [self.tree_section(ratios, trees), self.rate_section(yields), self.count_section(counts), self.context_section(contexts), self.data_section(data)],
                    {"tree-size.png": lambda axes: self.draw_trees(axes, ratios), "data.png": lambda axes: self.draw_data(axes, data)})

    def count_sentence(self, counts: dict) -> str:
        """By tokens a step: each number of heads was measured in a run of its own."""
        yields = {count: next(row["tokens_per_step"] for row in rows if row["draft"] == "clover") for count, rows in counts.items()}
        most, fewest = max(yields, key=yields.get), min(yields, key=yields.get)
        return f"of the numbers of heads {most} yields most tokens a step, {yields[most]:.2f}, and {fewest} fewest, {yields[fewest]:.2f}"

    def answer(self, ratios: dict, yields: dict, data: dict, counts: dict) -> str:
        """Speeds are compared within one run, whose plain decoding is their measure; learning rates by tokens a step, which do not drift."""
        of_default = {size: {setting: ratio for (factor, setting), ratio in found.items() if factor == 1} for size, found in ratios.items()}
        best = {size: max(found, key=found.get) for size, found in of_default.items()}
        said = "; ".join(f"batch {size}: {setting_name(setting)}, {of_default[size][setting]:.2f} times plain decoding" for size, setting in best.items())
        worst = {size: min(found, key=found.get) for size, found in of_default.items()}
        lost = "; ".join(f"batch {size}: {setting_name(setting)}, {of_default[size][setting]:.2f}" for size, setting in worst.items())
        rates = {factor: found[4] for factor, found in yields.items()}
        most = max(rates, key=rates.get)
        rise, doubt = mean(data[1.0]) - mean(data[0.5]), widest_spread(data.values())
        meaning = "of one seed" if math.isnan(doubt) else "so they still rise" if rise > doubt else "so they fall" if rise < -doubt else "no more than seeds differ"
        return (f"Of tree sizes and `auto` the fastest are, at {said}; the slowest, at {lost}. Of the learning rates {most:g} times the "
                f"configuration's yields most tokens a step, {rates[most]:.2f}, the configuration's own {rates[1.0]:.2f}, the worst "
                f"{min(rates.values()):.2f}. From half of the data to all of it tokens a step change by {rise:+.2f}, "
                f"{meaning}; {self.count_sentence(counts)}.")

    def tree_section(self, ratios: dict, trees: dict) -> str:
        rows = [{**row, "factor": factor} for factor, found in trees.items() for row in found]
        parts = []
        for size, found in ratios.items():
            settings = list(dict.fromkeys(setting for _, setting in found))
            parts.append(f"Batch {size}:\n\n" + table(["learning rate, times the configuration's", *map(setting_name, settings)],
                                                      [[f"{factor:g}", *(found[factor, setting] for setting in settings)]
                                                       for factor in self.jobs.size.rate_factors]))
        return (f"## Tree size and learning rate\n\nTarget {self.jobs.target.name}; heads learned from its answers to {self.train_count} "
                f"questions. Tokens/s over plain decoding, on {len(self.dev_bench_questions)} development questions, which chose the best "
                f"setting, too. So do the next two sections. {auto_sentence(rows, factor_name)} {rounds_sentence(trees[1.0])}\n\n" + "\n\n".join(parts))

    def rate_section(self, yields: dict) -> str:
        return ("Tokens a step, which do not hang on the batch:\n\n" +
                table(["learning rate, times the configuration's", *map(setting_name, BUDGETS)],
                      [[f"{factor:g}", *(found[guesses] for guesses in BUDGETS)] for factor, found in yields.items()]))

    def count_section(self, counts: dict) -> str:
        return f"## Number of heads\n\nFour guesses a step, and `auto`. {losses(counts, 'heads')}\n\n" + self.rows_by("heads", counts)

    def context_section(self, contexts: dict) -> str:
        measured = {prompt_tokens(rows): rows for rows in contexts.values()}
        return ("## Context\n\nThe development questions behind text of other questions; tokens of the prompts, on average. "
                f"{losses(measured, 'tokens')}\n\n" +
                self.rows_by("tokens of a prompt", measured))

    def rows_by(self, name: str, groups: dict) -> str:
        sizes = self.jobs.size.batch_sizes
        lines = []
        for value, rows in groups.items():
            of = {(row["draft"], row["batch_size"]): row for row in rows}
            lines.append([str(value), of["clover", sizes[0]]["tokens_per_step"], *(of["clover", size]["ratio_to_off"] for size in sizes),
                          *(of["auto", size]["ratio_to_off"] for size in sizes)])
        return table([name, "tokens a step", *(f"4 guesses over plain, batch {size}" for size in sizes),
                      *(f"`auto` over plain, batch {size}" for size in sizes)], lines)

    def data_section(self, data: dict) -> str:
        return (f"## Data\n\nFour guesses a step, {self.eval_count} unseen questions. {self.seeds_sentence()}\n\n" +
                table(["answers learned from", "tokens a step"],
                      [[f"{max(4, int(self.train_count * share))}", spread(found, 3)] for share, found in data.items()]))

    def draw_trees(self, axes, ratios: dict) -> None:
        draw_lines(axes, list(BUDGETS), {f"batch {size}": [found[1.0, budget] for budget in BUDGETS] for size, found in ratios.items()},
                   ("guesses a step", "tokens/s over plain"))
        axes.axhline(1, color="grey", linewidth=0.8)

    def draw_data(self, axes, data: dict) -> None:
        draw_lines(axes, [max(4, int(self.train_count * share)) for share in data], {"Clover": [mean(found) for found in data.values()]},
                   ("answers learned from", "tokens a step"))


def losses(groups: dict[int, list[dict]], name: str) -> str:
    return auto_sentence([{**row, "group": f"{value} {name}"} for value, rows in groups.items() for row in rows], lambda row: row["group"])


def factor_name(row: dict) -> str:
    return f"{row['factor']:g} times the learning rate"


def setting_of(row: dict) -> int | str:
    return row["budget"] if row["draft"] == "clover" else row["draft"]


def setting_name(setting: int | str) -> str:
    return f"`{setting}`" if isinstance(setting, str) else f"{setting} guesses"


def prompt_tokens(rows: list[dict]) -> int:
    """Of a request, on average, the chat template's tokens included."""
    return round(rows[0]["prompt_tokens"] / rows[0]["requests"])


def kept(rows: list[dict]) -> list[dict]:
    return [{name: row[name] for name in ("draft", "budget", "batch_size", "tokens_per_step", "tokens_per_second", "ratio_to_off")}
            for row in rows]
