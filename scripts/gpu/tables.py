"""Makes gpu.md of what measure_gpu.py measured: Markdown tables, one function each.  `parts` is the content of gpu.json."""


def markdown(parts: dict) -> str:
    machine = next((part["machine"] for part in parts.values() if "machine" in part), {})
    multiplies = {True: ", many rows by wgmma", False: ", many rows by mma.sync"}.get(machine.get("warpgroup_products"), "")
    lines = [(machine.get("gpu") or machine.get("cpu", "")) + multiplies]
    if bandwidth := next((part["copy_bandwidth"] for part in parts.values() if "copy_bandwidth" in part), None):
        lines[0] += f", {bandwidth / 1e9:.0f} GB/s copied"
    lines += ["", "| what | found | aim | |", "|---|---:|---|---|"]
    for name, part in parts.items():
        if "error" in part:
            lines.append(f"| {name} | not measured: {part['error']} | | |")
        for one in part.get("checks", []):
            verdict = "" if not one["aim"] else "reached" if one["holds"] else "**missed**"
            lines.append(f"| {one['what']} | {one['found']:.3g} | {one['aim']} | {verdict} |")
    for table in (probe_table, steps_table, drafting_table, products_table, attention_table, text_table, kernels_table, projection_table):
        lines += table(parts)
    if "table" in parts.get("peers", {}):
        lines += ["", parts["peers"]["table"]]
    return "\n".join(lines) + "\n"


def probe_table(parts: dict) -> list[str]:
    if not (figures := parts.get("probe", {}).get("figures")):
        return []
    in_bulk, again, clusters = figures["read_in_bulk"], figures["read_again"], figures["clusters_at_once"]
    return ["", f"Copied {figures['copied']} GB/s, read {figures['read']} GB/s; out of the second-level cache " +
            ", ".join(f"{rate} ({size} MiB)" for size, rate in again.items()) + " GB/s; clusters at once: " +
            ", ".join(f"{count} of {size}" for size, count in clusters.items()) + ".", "",
            "| KiB on their way a multiprocessor | " + " | ".join(in_bulk) + " |", "|---|" + "---:|" * len(in_bulk),
            "| GB/s read by bulk copies | " + " | ".join(map(str, in_bulk.values())) + " |"]


def measured_steps(parts: dict) -> list[dict]:
    return [part for name, part in parts.items() if name in ("steps", "other-steps") and "configurations" in part]


def steps_table(parts: dict) -> list[str]:
    lines = []
    for part in measured_steps(parts):
        lines += ["", f"| {part['shape']}, ms a step | 1 row each | of copy bandwidth | 5 rows each | of copy bandwidth | 5 rows over 1 |",
                  "|---:|---:|---:|---:|---:|---:|"]
        passes = {(entry["batch_size"], entry["rows"]): entry for entry in part["configurations"] if "rows" in entry}
        for size in sorted({size for size, _ in passes}):
            one, five = passes[size, 1], passes[size, 5]
            share = {entry["rows"]: entry["bytes_read"] / part["copy_bandwidth"] / entry["seconds"] for entry in (one, five)}
            lines.append(f"| batch {size} | {1e3 * one['seconds']:.2f} | {share[1]:.0%} | {1e3 * five['seconds']:.2f} | {share[5]:.0%} | "
                         f"{five['seconds'] / one['seconds']:.2f} |")
    return lines


def drafting_table(parts: dict) -> list[str]:
    """Milliseconds of a draft; a column for each batch size."""
    lines = []
    for part in measured_steps(parts):
        drafting: dict[str, dict[int, float]] = {}
        for entry in part["configurations"]:
            if "kind" in entry:
                drafting.setdefault(f"{entry['kind']}, vocabulary {entry['draft_vocab']}", {})[entry["batch_size"]] = 1e3 * entry["seconds"]
        if not drafting:
            continue
        sizes = sorted({size for of in drafting.values() for size in of})
        lines += ["", f"| {part['shape']}, ms a draft | " + " | ".join(f"batch {size}" for size in sizes) + " |", "|---|" + "---:|" * len(sizes)]
        lines += [f"| {name} | " + " | ".join(f"{of[size]:.2f}" if size in of else "" for size in sizes) + " |" for name, of in drafting.items()]
    return lines


def products_table(parts: dict) -> list[str]:
    """Microseconds of a product and its share of copy bandwidth; a line for each number of rows, a column for each product."""
    entries, lines = parts.get("products", {}).get("products", []), []
    for shape in dict.fromkeys(entry["shape"] for entry in entries):
        of_shape = {(entry["rows"], entry["product"]): entry for entry in entries if entry["shape"] == shape}
        names = list(dict.fromkeys(product for _, product in of_shape))
        lines += ["", f"| {shape}, us (of copy bandwidth) | " + " | ".join(names) + " |", "|---:|" + "---:|" * len(names)]
        for rows in sorted({rows for rows, _ in of_shape}):
            cells = [f"{of_shape[rows, name]['microseconds']:.1f} ({of_shape[rows, name]['of_bandwidth']:.0%})" for name in names
                     if (rows, name) in of_shape]
            lines.append(f"| {rows} rows | " + " | ".join(cells) + " |")
    return lines


def attention_table(parts: dict) -> list[str]:
    if not (cases := parts.get("attention", {}).get("cases")):
        return []
    lines = ["", "| attention of one layer | us | GB/s | of copy bandwidth | TFLOP/s | LibTorch's time over ours |", "|---|---:|---:|---:|---:|---:|"]
    return lines + [f"| {case['name']} | {case['microseconds']:.1f} | {case['gigabytes_per_second']:.0f} | {case['of_bandwidth']:.0%} | "
                    f"{case['gigaflops'] / 1e3:.1f} | {case['libtorch_over_ours']:.2f} |" for case in cases]


def text_table(parts: dict) -> list[str]:
    speeds: dict[str, dict[int, float]] = {}
    for entry in parts.get("text", {}).get("configurations", []):
        method = entry["draft"] if entry["draft"] == "auto" else ""
        method = "plain" if entry["draft"] == "off" else ", ".join(filter(None, [entry["kind"], method]))
        speeds.setdefault(method, {}).setdefault(entry["batch_size"], entry["tokens_per_second"])
    return ["", "Tokens/s of real text:", "", *speed_table(speeds)] if speeds else []


def kernels_table(parts: dict) -> list[str]:
    lines = []
    for step, kernels in parts.get("trace", {}).get("kernels", {}).items():
        lines += ["", f"| kernel of {step} | share of the time |", "|---|---:|"] if kernels else []
        lines += [f"| `{name[:100]}` | {share:.1%} |" for name, share in kernels]
    return lines


def projection_table(parts: dict) -> list[str]:
    """Tokens/s of the shape if its heads had the acceptance of the example model's heads, with four draft tokens per step."""
    accepted = {entry["kind"]: tokens_per_pass(entry["accepted_histogram"]) for entry in reversed(parts.get("text", {}).get("configurations", []))
                if entry["draft"] == "clover" and entry.get("budget") == 4}
    steps = parts.get("steps", {})
    if not accepted or "configurations" not in steps:
        return []
    passes = {(entry["batch_size"], entry["rows"]): entry["seconds"] for entry in steps["configurations"] if "rows" in entry}
    speeds = {"plain": {size: size / seconds for (size, rows), seconds in passes.items() if rows == 1}}
    for entry in steps["configurations"]:
        if tokens := accepted.get(entry.get("kind")):
            size = entry["batch_size"]
            speeds.setdefault(f"{entry['kind']}, vocabulary {entry['draft_vocab']}", {})[size] = size * tokens / (passes[size, 5] + entry["seconds"])
    return ["", f"Tokens/s of {steps['shape']}, a projection: measured steps of random weights, acceptance of the heads above:", "",
            *speed_table(speeds)]


def tokens_per_pass(histogram: list[int]) -> float:
    """The mean number of tokens per pass; `histogram`: [a] passes accepted a draft tokens."""
    passes = sum(histogram)
    return sum(count * (accepted + 1) for accepted, count in enumerate(histogram)) / passes if passes else 0


def speed_table(speeds: dict) -> list[str]:
    """A line for each batch size, a column for each method; in brackets the speed relative to plain decoding."""
    lines = ["| batch | " + " | ".join(speeds) + " |", "|---:|" + "---:|" * len(speeds)]
    for size in sorted({size for of in speeds.values() for size in of}):
        cells = [f"{of[size]:.0f} ({of[size] / speeds['plain'][size]:.2f})" if size in of else "" for of in speeds.values()]
        lines.append(f"| {size} | " + " | ".join(cells) + " |")
    return lines
