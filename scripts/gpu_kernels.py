#!/usr/bin/env python3
"""Lists the compiled CUDA kernels, and checks that they keep within their budget of registers, memory and instructions.  No
GPU is needed.

    scripts/gpu_kernels.py                     a table of build/'s kernels (--markdown: as in docs/gpu.md)
    scripts/gpu_kernels.py --check             prints a sentence for each limit of scripts/gpu_kernels.toml that is exceeded; exit code 1
    scripts/gpu_kernels.py [--check] FILE..    the same for objects, cubins, or the output of cuobjdump -res-usage -sass

For each kernel: registers, shared memory (static, and dynamic where the launch plan is known), blocks per multiprocessor, bytes
of stack (spills), code size, instructions of the innermost loop per tensor-core product; for matrix products also the weights in
flight per multiprocessor and the expected share of memory bandwidth (linear_bench --plans).

Objects and machine code are read by gpu/machine_code.py.
"""
import argparse
import json
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from gpu.machine_code import ROOT, Kernel, find_cuobjdump, is_one_of, kernels_of, read_kernels

KIBIBYTE = 1024
MARKS = "<!-- gpu_kernels: begin -->", "<!-- gpu_kernels: end -->"


@dataclass
class Limits:
    """The limits of the kernels whose name begins with `name`: one table of the budget file."""

    name: str
    arch: str = ".*"
    registers: int = 255
    stack: int = 0  # bytes
    code: int = 16 * KIBIBYTE
    blocks: int = 1  # per multiprocessor, at least
    threads: int = 0  # of a block, for a kernel that does not declare it
    dynamic_shared: int = 0  # bytes of shared memory at launch, for a kernel that linear_bench --plans does not list
    instructions_per_product: float | None = None  # instructions of the innermost loop per tensor-core product
    loop_instructions: int | None = None  # instructions of the loop that waits for data
    required: list[str] = field(default_factory=list)  # opcodes that the kernel must contain
    required_in_loop: list[str] = field(default_factory=list)
    forbidden_in_loop: list[str] = field(default_factory=list)
    optional: bool = False  # a build may have no such kernel

    def covers(self, kernel: Kernel) -> bool:
        return re.match(self.name, kernel.name) is not None and re.fullmatch(self.arch, kernel.arch) is not None


@dataclass
class Plan:
    """How linear_bench --plans says a kernel is launched, over all shapes and rows."""

    shared: int  # bytes of dynamic shared memory, at most
    in_flight: int  # bytes of weights in flight per multiprocessor, at least
    share: tuple[float, float]  # expected share of memory bandwidth, from and to


def main() -> int:
    arguments = parse_arguments()
    kernels = read_files(arguments)
    limits = [Limits(**table) for table in tomllib.loads(arguments.budget.read_text())["kernel"]]
    plans = read_plans(arguments.build)
    if arguments.write:
        page = arguments.write.read_text()
        begin, end = page.index(MARKS[0]) + len(MARKS[0]), page.index(MARKS[1])
        arguments.write.write_text(page[:begin] + "\n" + markdown(kernels, limits, plans) + page[end:])
        return 0
    if not arguments.check:
        print(markdown(kernels, limits, plans) if arguments.markdown else plain(kernels, limits, plans), end="")
        return 0
    violations = [f"{kernel.name} ({kernel.arch}): {violation}" for kernel in kernels for violation in violations_of(kernel, limits_of(kernel, limits), plans)]
    if not arguments.files:  # all kernels are there, so a limit without a kernel is a mistake in the budget
        violations += [f"{arguments.budget.name}: no kernel is called {one.name} ({one.arch})" for one in limits
                   if not one.optional and not any(one is limits_of(kernel, limits) for kernel in kernels)]
    print("\n".join(violations) if violations else f"{len(kernels)} kernels keep to {arguments.budget.name}")
    return 1 if violations else 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="default: the objects of the build")
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="folder that CMake built in, default build/")
    parser.add_argument("--check", action="store_true", help="hold them to the budget")
    parser.add_argument("--budget", type=Path, default=ROOT / "scripts" / "gpu_kernels.toml", help="default scripts/gpu_kernels.toml")
    parser.add_argument("--markdown", action="store_true", help="the table in Markdown, similar kernels of bf16 for sm_90 in one line")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put that table between the marks of a page (docs/gpu.md)")
    return parser.parse_args()


def read_files(arguments: argparse.Namespace) -> list[Kernel]:
    files = arguments.files or built_objects(arguments.build)
    if not files:
        sys.exit(f"gpu_kernels: {arguments.build} holds no CUDA kernels: build with nvcc there, or name files")
    cuobjdump, kernels = find_cuobjdump(), []
    for file in files:
        if file.read_bytes()[:4] != b"\x7fELF":
            kernels += read_kernels(file.read_text())
        elif cuobjdump is None:
            sys.exit("gpu_kernels: there is no cuobjdump: it comes with the CUDA toolkit, and in .venv with torch")
        else:
            kernels += kernels_of(cuobjdump, file)
    return kernels


def built_objects(build: Path) -> list[Path]:
    """The objects of kernels/**/*.cu that CMake compiles."""
    commands = build / "compile_commands.json"
    if not commands.exists():
        return []
    outputs = (re.search(r" -o (\S+\.cu\.o)", entry["command"]) for entry in json.loads(commands.read_text()))
    files = sorted({build / found[1] for found in outputs if found and found[1].startswith("kernels/")})
    return [file for file in files if file.exists()]


def limits_of(kernel: Kernel, limits: list[Limits]) -> Limits:
    """The first limits that cover the kernel."""
    return next((one for one in limits if one.covers(kernel)), Limits(".*"))


def read_plans(build: Path) -> dict[str, Plan]:
    """The plans of linear_bench by kernel; empty when it is not built."""
    program = build / "bin" / "linear_bench"
    if not program.exists():
        return {}
    printed = subprocess.run([str(program), "--plans"], capture_output=True, text=True)
    if printed.returncode:
        return {}
    plans: dict[str, Plan] = {}
    for entry in json.loads(printed.stdout):
        before = plans.get(entry["kernel"])
        share = entry["expected_share"]
        if entry["whole_blocks"]:  # too few inputs to have more weights in flight
            continue
        plans[entry["kernel"]] = Plan(max(entry["shared_bytes"], before.shared if before else 0),
                                      min(entry["weights_in_flight"], before.in_flight if before else sys.maxsize),
                                      (min(share, before.share[0]), max(share, before.share[1])) if before else (share, share))
    return plans


def plan_of(kernel: Kernel, plans: dict[str, Plan]) -> Plan | None:
    """The plan of a kernel: linear_clusters<Bf16, 10, store> is listed as linear_clusters<10>."""
    inner = kernel.name[kernel.name.find("<") + 1 : -1].split(", ")
    return next((plan for name, plan in plans.items() if name == f"{kernel.family}<{inner[1] if len(inner) > 1 else ''}>"), None)


def blocks_of(kernel: Kernel, limits: Limits, plans: dict[str, Plan]) -> int:
    plan = plan_of(kernel, plans)
    return kernel.blocks(limits.threads, plan.shared if plan else limits.dynamic_shared)


def violations_of(kernel: Kernel, limits: Limits, plans: dict[str, Plan]) -> list[str]:
    """A sentence for each limit that a kernel exceeds."""
    violations = []

    def require(holds: bool, violation: str) -> None:
        if not holds:
            violations.append(violation)

    require(kernel.registers <= limits.registers, f"{kernel.registers} registers, at most {limits.registers} are allowed")
    require(kernel.stack <= limits.stack, f"{kernel.stack} bytes of stack a thread, at most {limits.stack} are allowed: it spills")
    require(kernel.code_bytes <= limits.code, f"{kernel.code_bytes / KIBIBYTE:.1f} KiB of code, at most {limits.code / KIBIBYTE:.0f} are allowed: "
         "a cold instruction cache is read from memory in every launch")
    blocks = blocks_of(kernel, limits, plans)
    require(blocks >= limits.blocks, f"{blocks} blocks a multiprocessor, at least {limits.blocks} are wanted")
    everywhere = {text.split()[0] for _, text in kernel.code}
    for opcode in limits.required:  # "A|B": A or B
        require(any(is_one_of(found, tuple(opcode.split("|"))) for found in everywhere), f"no {opcode} in its code")
    if not (limits.instructions_per_product or limits.loop_instructions or limits.required_in_loop or limits.forbidden_in_loop):
        return violations
    loop = kernel.wait_loop
    if loop is None:
        return violations + ["no loop with products of tensor cores"]
    for opcode in limits.required_in_loop:
        require(loop.count(opcode) > 0, f"no {opcode} in its loop at {loop.begin:#x}")
    for opcode in limits.forbidden_in_loop:
        require(loop.count(opcode) == 0, f"{loop.count(opcode)} {opcode} in its loop at {loop.begin:#x}, where none may stand")
    if limits.loop_instructions:
        require(loop.size <= limits.loop_instructions, f"{loop.size} instructions in its loop at {loop.begin:#x}, at most {limits.loop_instructions} are allowed")
    inner = kernel.product_loop
    require(not 1 < inner.count("HGMMA") <= inner.waits_for_all_products, "each product of tensor cores is waited for: ptxas made them wait for each other")
    if limits.instructions_per_product:
        require(kernel.instructions_per_product <= limits.instructions_per_product, f"{kernel.instructions_per_product:.1f} instructions for each of tensor cores in its innermost loop, at most "
             f"{limits.instructions_per_product:g} are allowed")
    return violations


# ---- the table


COLUMNS = ("kernel", "GPU", "threads", "registers", "shared, KiB", "blocks", "stack", "code, KiB", "instructions a product", "weights in flight, KiB",
           "expected of bandwidth")


def row_of(kernel: Kernel, limits: Limits, plans: dict[str, Plan]) -> tuple[str, ...]:
    plan = plan_of(kernel, plans)
    dynamic = plan.shared if plan else limits.dynamic_shared
    low, high = plan.share if plan else (0, 0)
    return (kernel.name, kernel.arch, str(kernel.threads or ""), str(kernel.registers), f"{(kernel.static_shared + dynamic) / KIBIBYTE:.1f}",
            str(blocks_of(kernel, limits, plans)), str(kernel.stack), f"{kernel.code_bytes / KIBIBYTE:.1f}",
            f"{kernel.instructions_per_product:.1f}" if kernel.instructions_per_product else "", f"{plan.in_flight / KIBIBYTE:.0f}" if plan else "",
            f"{low:.0%} to {high:.0%}" if plan else "")


def plain(kernels: list[Kernel], limits: list[Limits], plans: dict[str, Plan]) -> str:
    rows = [COLUMNS, *(row_of(kernel, limits_of(kernel, limits), plans) for kernel in kernels)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    lines = ("  ".join(f"{cell:<{width}}" if i < 2 else f"{cell:>{width}}" for i, (cell, width) in enumerate(zip(row, widths))) for row in rows)
    return "".join(line + "\n" for line in lines)


def markdown(kernels: list[Kernel], limits: list[Limits], plans: dict[str, Plan]) -> str:
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---|---|" + "---:|" * (len(COLUMNS) - 2)]
    for group in grouped([kernel for kernel in kernels if kernel.arch != "sm_80" and "Fp16" not in kernel.name and "float" not in kernel.name]):
        rows = [row_of(kernel, limits_of(kernel, limits), plans) for kernel in group]
        lines.append(f"| `{group_name(group)}` | " + " | ".join(joined([row[i] for row in rows]) for i in range(1, len(COLUMNS))) + " |")
    return "".join(line + "\n" for line in lines)


def grouped(kernels: list[Kernel]) -> list[list[Kernel]]:
    """Groups of kernels that differ only in their epilogue or in small template arguments."""
    groups: dict[tuple, list[Kernel]] = {}
    for kernel in kernels:
        inner = kernel.name[kernel.name.find("<") + 1 : -1].split(", ") if "<" in kernel.name else []
        kept = inner[1] if kernel.family == "linear_clusters" and len(inner) > 1 else re.sub(r".*?(\w+)Chunks.*", r"\1", inner[0]) if inner and "Chunks" in inner[0] else ""
        groups.setdefault((kernel.family, kernel.arch, kept), []).append(kernel)
    return [groups[key] for key in sorted(groups, key=lambda key: (key[0], key[1], int(key[2]) if key[2].isdigit() else 0, key[2]))]


def group_name(group: list[Kernel]) -> str:
    if len(group) == 1:
        return group[0].name
    names = [kernel.name for kernel in group]
    inner = [name[name.find("<") + 1 : -1].split(", ") for name in names]
    if len({len(one) for one in inner}) != 1:
        return f"{group[0].family}<..>"
    return f"{group[0].family}<" + ", ".join(column[0] if len(set(column)) == 1 else ".." for column in zip(*inner)) + ">"


def joined(cells: list[str]) -> str:
    """The common value of all cells, or the range of their numbers."""
    if len(set(cells)) == 1:
        return cells[0]
    try:
        numbers = sorted(float(cell) for cell in cells if cell)
        return f"{numbers[0]:g} to {numbers[-1]:g}"
    except ValueError:
        return cells[0]


if __name__ == "__main__":
    sys.exit(main())
