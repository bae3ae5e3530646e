"""Study `ablation`: from Medusa to Clover, one ingredient at a time (the paper's ablation), over several seeds."""

import math
from statistics import mean

from .cells import Output
from .common import Study, extra_ratio, slashed, tokens_by_task, tops
from .pages import Page, draw_bars, spread, table, widest_spread

# Name, kind and further options of `fit`; each adds one thing to the one before it.
RUNGS = [
    ("Medusa", "medusa", ()),
    ("+ regression by concatenation", "clover", ("--regression", "concat", "--block", "none")),
    ("+ attention decoder", "clover", ("--regression", "attention", "--block", "none")),
    ("+ augmenting block, attention", "clover", ("--regression", "attention", "--block", "attention")),
    ("+ augmenting block, full", "clover", ()),  # the configuration's
]


class Ablation(Study):
    name = "ablation"

    def stages(self) -> list[list[Output]]:
        return [*self.searched([self.rates_of(kind, *options, name=name) for name, kind, options in RUNGS]),
                [self.rung_evaluation(rung, seed) for seed in self.jobs.size.seeds for rung in range(len(RUNGS))]]

    def rung_evaluation(self, rung: int, seed: int) -> Output:
        name, kind, options = RUNGS[rung]
        heads = self.heads(kind, self.best_rate(kind, *options), seed, *options, label=name)
        return self.evaluation(f"{name}, seed {seed}", heads)

    def page(self) -> Page:
        found = [[self.read(self.rung_evaluation(rung, seed)) for seed in self.jobs.size.seeds] for rung in range(len(RUNGS))]
        tokens = [[evaluation["tokens_per_step"] for evaluation in of_rung] for of_rung in found]
        by_task = [{task: [tokens_by_task(one)[task] for one in of_rung] for task in tokens_by_task(of_rung[0])} for of_rung in found]
        recipes = {name: (kind, *options) for name, kind, options in RUNGS}
        figures = {"rungs": [{"name": name, "learning_rate": self.best_rate(*recipes[name]), "tokens_per_step": tokens[rung],
                              "by_task": by_task[rung], "top1": [tops(one, 1) for one in found[rung]],
                              "top5": [tops(one, 5) for one in found[rung]]} for rung, (name, _, _) in enumerate(RUNGS)]}
        means = [mean(of_rung) for of_rung in tokens]
        order = self.order_sentence({RUNGS[rung][0]: means[rung] - means[rung - 1] for rung in range(1, len(RUNGS))}, widest_spread(tokens))
        answer = (f"From Medusa's {means[0]:.2f} tokens a step Clover's ingredients lead to {means[-1]:.2f}, "
                  f"{self.extra(means)}. {order}")
        lines = [[name, spread(tokens[rung], 3), slashed(self.over_seeds(found[rung], 1)), slashed(self.over_seeds(found[rung], 5))]
                 for rung, (name, _, _) in enumerate(RUNGS)]
        section = (f"## Versions\n\nEach version adds one ingredient to the one before it. {self.data_sentence()} {self.rates_sentence(recipes)} Accuracy by head, "
                   f"first head first. {self.seeds_sentence()}\n\n" + table(["", "tokens a step", "top-1, %", "top-5, %"], lines))
        return Page(f"Clover's ingredients on {self.jobs.target.name}", answer, figures, [section, self.task_section(by_task)],
                    {"ablation.png": lambda axes: draw_bars(axes, [name.replace(", ", ",\n").replace(" by", "\nby") for name, _, _ in RUNGS],
                                                           {"": means}, "tokens a step")})

    def task_section(self, by_task: list[dict[str, list[float]]]) -> str:
        lines = [[name, *map(spread, by_task[rung].values())] for rung, (name, _, _) in enumerate(RUNGS)]
        lines.append(["extra tokens, full over Medusa", *(extra_ratio(mean(full), mean(medusa))
                                                        for full, medusa in zip(by_task[-1].values(), by_task[0].values()))])
        return f"## Tasks\n\nTokens a step. {self.seeds_sentence()}\n\n" + table(["", *by_task[0]], lines)

    def order_sentence(self, added: dict[str, float], doubt: float) -> str:
        """added: tokens a step of each rung beyond the one before it; doubt: what seeds differ by."""
        if math.isnan(doubt):
            return "With one seed the order of the versions is uncertain."
        loses = [f"\"{name}\"" for name, tokens in added.items() if tokens < -doubt]
        nothing = [f"\"{name}\"" for name, tokens in added.items() if abs(tokens) <= doubt]
        if not loses and not nothing:
            return "Each ingredient adds more tokens than seeds differ, as the paper has it."
        said = [f"{', '.join(names)} {what}" for names, what in ((loses, "yields fewer tokens than the version before it"),
                                                               (nothing, "changes them by no more than seeds differ")) if names]
        return f"Against the paper {'; '.join(said)}."

    def extra(self, means: list[float]) -> str:
        return f"{extra_ratio(means[-1], means[0]):.2f} times the extra tokens" if means[0] > 1 else "and Medusa yields no extra tokens"

    def over_seeds(self, evaluations: list[dict], rank: int) -> list[float]:
        return [mean(values) for values in zip(*(tops(one, rank) for one in evaluations))]
