"""Study `synthesis`: do conversations that the model makes up alone do in place of its answers to questions?"""

import math
from statistics import mean

from .cells import Output
from .common import ALL, Study, extra_ratio, tokens_by_task
from .jobs import default_learning_rate
from .pages import Page, draw_bars, spread, table
from .requests import not_among, read_lines


class Synthesis(Study):
    name = "synthesis"

    def stages(self) -> list[list[Output]]:
        return [[self.measured(made_up, seed) for seed in self.jobs.size.seeds for made_up in (False, True)]]

    @property
    def count(self) -> int:
        """Of the conversations made up."""
        return self.jobs.size.conversations or self.train_count

    def measured(self, made_up: bool, seed: int) -> Output:
        store, count = (self.jobs.store(self.jobs.synthesized(self.count)), self.count) if made_up else (self.store, self.train_count)
        learned = "conversations made up" if made_up else "answers to questions"
        heads = self.jobs.heads("clover", default_learning_rate("clover"), store, count, seed, label=f"Clover on {learned}")
        return self.evaluation(f"Clover on {learned}, seed {seed}", heads)

    def page(self) -> Page:
        found = {name: [tokens_by_task(self.read(self.measured(made_up, seed))) for seed in self.jobs.size.seeds]
                 for name, made_up in (("answers to questions", False), ("conversations made up", True))}
        by_task = {name: {task: [one[task] for one in of_seeds] for task in of_seeds[0]} for name, of_seeds in found.items()}
        asked, made_up = by_task.values()
        shares = {task: extra_ratio(mean(made_up[task]), mean(asked[task])) for task in asked}
        return Page(f"Training data that {self.jobs.target.name} makes up", self.answer(by_task, shares), {"tokens_per_step": by_task, "shares": shares},
                    [self.section(by_task, shares)],
                    {"synthesis.png": lambda axes: draw_bars(axes, list(shares), {name: [mean(values) for values in tasks.values()]
                                                                                 for name, tasks in by_task.items()}, "tokens a step")})

    def answer(self, measured: dict, shares: dict[str, float]) -> str:
        asked, made_up = (mean(tasks[ALL]) for tasks in measured.values())
        by_task = ", ".join(f"{share:.0%} on {task}" for task, share in shares.items() if task != ALL and not math.isnan(share))
        others = f" By task: {by_task}." if by_task else ""
        yielded = "neither yields extra tokens" if math.isnan(shares[ALL]) else f"that is {shares[ALL]:.0%} of the extra tokens"
        return (f"Clover heads that learned from {self.count} conversations which the model made up alone yield {made_up:.2f} tokens a step, heads that "
                f"learned from its answers to {self.train_count} questions {asked:.2f}: {yielded}.{others}")

    def overlap_sentence(self) -> str:
        """Whether the model made up a question that is measured."""
        made_up = read_lines(self.jobs.runner.path(self.jobs.synthesized(self.count)))
        overlap = len(made_up) - len(not_among(made_up, self.questions["eval"]))
        return f"{overlap or 'None'} of the {len(made_up)} conversations ask{'s' if overlap < 2 else ''} what is measured, compared by text."

    def section(self, by_task: dict, shares: dict[str, float]) -> str:
        lines = [[name, *map(spread, tasks.values())] for name, tasks in by_task.items()] + [["share of the extra tokens", *shares.values()]]
        return (f"## Tasks\n\n{self.data_sentence()} The other heads learned from {self.count} conversations of `clover-train synthesize`, "
                f"of which answers longer than {self.jobs.size.answer_tokens} tokens are dropped; those to questions are cut there. {self.overlap_sentence()} "
                f"{self.seeds_sentence()}\n\n" + table(["learned from", *shares], lines))
