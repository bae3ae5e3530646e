"""What a study shows: a page of Markdown, its plots, and all figures as JSON."""

import json
import math
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, stdev
from typing import Callable, Iterable


@dataclass
class Page:
    """title; answer: three sentences; sections: Markdown, each with a headline; plots: file name -> function that draws on axes."""

    title: str
    answer: str
    figures: dict
    sections: list[str] = field(default_factory=list)
    plots: dict[str, Callable] = field(default_factory=dict)

    def write(self, folder: Path, about: str, command: str, machine: dict, notes: str) -> None:
        """notes: Markdown that people have added, such as what was tried without effect; shown behind the figures."""
        folder.mkdir(parents=True, exist_ok=True)
        figures = without_nan({"about": about, "command": command, "machine": machine, **self.figures})
        (folder / "study.json").write_text(json.dumps(figures, indent=1, allow_nan=False) + "\n")
        for name, draw in self.plots.items():
            draw_plot(folder / name, draw)
        images = [f"![{name.removesuffix('.png').replace('-', ' ')}]({name})" for name in self.plots]
        measured = [f"# {self.title}", self.answer, *images[:1], *self.sections, *images[1:]]
        parts = [wrapped("\n\n".join(measured)), *([notes.strip()] if notes.strip() else []), wrapped(f"{about}\n\n```sh\n{continued(command)}\n```")]
        (folder / "study.md").write_text("\n\n".join(parts) + "\n")


def without_nan(value):
    """The same with null in place of what is no number, which JSON cannot say."""
    match value:
        case dict():
            return {name: without_nan(one) for name, one in value.items()}
        case list() | tuple():
            return [without_nan(one) for one in value]
        case float() if math.isnan(value):
            return None
    return value


def wrapped(markdown: str) -> str:
    """The same with paragraphs in lines of at most 100 characters; headlines, tables and code stay as they are."""
    paragraphs = markdown.split("\n\n")
    return "\n\n".join(part if part.startswith(("#", "|", "!", "```")) else textwrap.fill(part, 100, break_long_words=False, break_on_hyphens=False)
                       for part in paragraphs)


def continued(command: str) -> str:
    """The same in lines of at most 100 characters, as long as no word is quoted."""
    return command if "'" in command else " \\\n    ".join(textwrap.wrap(command, 94, break_long_words=False, break_on_hyphens=False))


def draw_plot(file: Path, draw: Callable) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
    draw(axes)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(file, dpi=160)
    plt.close(figure)


def draw_bars(axes, groups: list[str], series: dict[str, list[float]], label: str, form: str = "%.2f") -> None:
    """A bar of each series in each group."""
    width = 0.8 / len(series)
    for index, (name, values) in enumerate(series.items()):
        places = [place + (index - (len(series) - 1) / 2) * width for place in range(len(groups))]
        bars = axes.bar(places, values, width, label=name)
        axes.bar_label(bars, fmt=form, fontsize=5)
    slanted = {"rotation": 25, "horizontalalignment": "right"} if len(groups) > 5 else {}  # else names run into each other
    axes.set_xticks(range(len(groups)), groups, fontsize=8, **slanted)
    axes.set_ylabel(label)


def draw_lines(axes, places: list[float], series: dict[str, list[float]], labels: tuple[str, str], log: bool = True) -> None:
    """A line of each series over the same places."""
    for name, values in series.items():
        axes.plot(places, values, marker="o", markersize=3, label=name)
    if log:
        axes.set_xscale("log")
    axes.set_xticks(places, [f"{place:g}" for place in places], fontsize=8)
    axes.minorticks_off()
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])


def table(header: list[str], rows: list[list]) -> str:
    """Markdown; numbers are aligned to the right and floats shown with two digits behind the point."""
    def cell(value) -> str:
        if isinstance(value, float):
            return "–" if math.isnan(value) else f"{value:.2f}"
        return str(value)

    numeric = [all(isinstance(row[column], (int, float)) for row in rows) for column in range(len(header))]
    lines = [f"| {' | '.join(header)} |", f"|{'|'.join('---:' if right else '---' for right in numeric)}|"]
    return "\n".join(lines + [f"| {' | '.join(map(cell, row))} |" for row in rows])


def widest_spread(groups: Iterable[list[float]]) -> float:
    """The largest standard deviation over seeds, of several settings: what differs by no more says nothing.  NaN of one seed."""
    return max((stdev(values) for values in groups if len(values) > 1), default=math.nan)


def spread(values: list[float], digits: int = 2) -> str:
    """"1.93 ± 0.02": mean and standard deviation; of one value alone itself."""
    return f"{mean(values):.{digits}f}" + (f" ± {stdev(values):.{digits}f}" if len(values) > 1 else "")
