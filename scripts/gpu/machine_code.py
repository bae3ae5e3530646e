"""Reads compiled CUDA kernels for gpu_kernels.py: registers, memory and threads from cubins, loops from their machine code (SASS)."""
import collections
import re
import shutil
import struct
import subprocess
import tempfile
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INSTRUCTION_BYTES = 16


@dataclass
class Multiprocessor:
    """The resources of a streaming multiprocessor (CUDA programming guide, "compute capabilities")."""

    shared: int  # bytes
    registers: int = 65536
    threads: int = 2048
    blocks: int = 32
    reserved: int = 1024  # bytes of shared memory that the system takes for each block


MULTIPROCESSORS = {"sm_80": Multiprocessor(164 << 10), "sm_90": Multiprocessor(228 << 10), "sm_90a": Multiprocessor(228 << 10)}


def is_one_of(opcode: str, names: tuple[str, ...]) -> bool:
    """Whether an opcode is one of `names`, with any modifiers: LDG.E is LDG, LDGSTS is not."""
    return any(opcode == name or opcode.startswith(name + ".") for name in names)


@dataclass
class Loop:
    begin: int  # address
    code: list[str]  # instructions

    @cached_property
    def instructions(self) -> collections.Counter:
        """Counts of each opcode, modifiers included."""
        return collections.Counter(text.split()[0] for text in self.code)

    def count(self, *names: str) -> int:
        """The number of instructions with one of these opcodes, with any modifiers."""
        return sum(times for opcode, times in self.instructions.items() if is_one_of(opcode, names))

    @property
    def size(self) -> int:
        return len(self.code)

    @property
    def waits_for_all_products(self) -> int:
        return sum(re.match(r"WARPGROUP\.DEPBAR\S* gsb0, 0x0", text) is not None for text in self.code)


TENSOR_CORES = ("HGMMA", "HMMA")
# Instructions that wait for data: a barrier that copies arrive at, the thread's own copies, all threads of the block.
WAITS = ("SYNCS.PHASECHK", "DEPBAR", "BAR.SYNC")


@dataclass
class Kernel:
    name: str  # demangled, without our namespaces
    arch: str
    registers: int
    stack: int  # bytes per thread: spilled registers, and arrays that are not in registers
    static_shared: int  # bytes
    threads: int  # of a block, at most, as the kernel declares (__launch_bounds__); 0: it does not declare it
    code: list[tuple[int, str]] = field(default_factory=list, repr=False)  # address, instruction without its predicate

    @property
    def family(self) -> str:
        return self.name.split("<")[0]

    @property
    def code_bytes(self) -> int:
        """The size of the code without its padding."""
        return INSTRUCTION_BYTES * sum(text.split()[0] != "NOP" for _, text in self.code)

    @cached_property
    def loops(self) -> list[Loop]:
        """The loops, small ones first: from the target of a backward branch to that branch.  A branch after an exit is not a loop: it
        returns from the code of a spinning wait, which the compiler puts at the end."""
        at = {address: index for index, (address, _) in enumerate(self.code)}
        spans = set()
        for index, (address, text) in enumerate(self.code):
            target = re.match(r"BRA\b.*?(0x[0-9a-f]+)", text)
            begin = at.get(int(target[1], 16)) if target else None
            if begin is not None and begin < index and not any(code == "EXIT" for _, code in self.code[begin:index]):
                spans.add((begin, index))
        ordered = sorted(spans, key=lambda span: (span[1] - span[0], span[0]))
        return [Loop(self.code[begin][0], [text for _, text in self.code[begin : end + 1]]) for begin, end in ordered]

    @cached_property
    def product_loop(self) -> Loop | None:
        """The innermost loop with tensor-core products; of several, the unrolled one, which has the most products."""
        found = [loop for loop in self.loops if loop.count(*TENSOR_CORES)]
        inner = [loop for loop in found if not any(self.lies_in(other, loop) for other in found)]
        return max(inner, key=lambda loop: loop.count(*TENSOR_CORES), default=None)

    @cached_property
    def wait_loop(self) -> Loop | None:
        """The smallest loop around product_loop that waits for the data of the next products."""
        inner = self.product_loop
        if inner is None:
            return None
        around = [loop for loop in self.loops if loop is inner or self.lies_in(inner, loop)]
        return next((loop for wait in WAITS for loop in around if loop.count(wait)), inner)

    @staticmethod
    def lies_in(inner: Loop, outer: Loop) -> bool:
        return inner is not outer and outer.begin <= inner.begin and inner.begin + inner.size * INSTRUCTION_BYTES <= outer.begin + outer.size * INSTRUCTION_BYTES

    @property
    def instructions_per_product(self) -> float | None:
        """Instructions of product_loop for each tensor-core product."""
        return self.product_loop.size / self.product_loop.count(*TENSOR_CORES) if self.product_loop else None

    def blocks(self, threads: int = 0, dynamic_shared: int = 0) -> int:
        """The number of blocks that a multiprocessor runs at once."""
        of = MULTIPROCESSORS[self.arch]
        warps = ((self.threads or threads or 1024) + 31) // 32
        registers_per_warp = (self.registers * 32 + 255) // 256 * 256
        shared = max(self.static_shared + dynamic_shared, of.reserved)
        return min(of.registers // (registers_per_warp * warps), of.threads // (32 * warps), of.shared // shared, of.blocks)


def find_cuobjdump() -> str | None:
    """The cuobjdump of the CUDA toolkit, or the one in the triton package that comes with torch."""
    places = [shutil.which("cuobjdump"), "/usr/local/cuda/bin/cuobjdump",
              *ROOT.glob(".venv/lib/python*/site-packages/triton/backends/nvidia/bin/cuobjdump")]
    return next((str(place) for place in places if place and Path(place).is_file()), None)


def demangled(names: list[str]) -> list[str]:
    tool = shutil.which("c++filt") or shutil.which("cu++filt")
    if tool:
        names = subprocess.run([tool], input="\n".join(names), capture_output=True, text=True).stdout.splitlines()
    return [short_name(name) for name in names]


EPILOGUES = ("store", "silu_mul", "rope_and_store", "arg_max")  # kernels/linear/linear_call.h


def short_name(name: str) -> str:
    name = re.sub(r"\(clover::kernels::Epilogue\)(\d)", lambda found: EPILOGUES[int(found[1])], name)
    name = re.sub(r"\(anonymous namespace\)::|clover::kernels::(cuda::)?", "", name)
    name = re.sub(r"\bcuda::", "", name.removeprefix("void "))
    name = name[: name.index("(")] if "(" in name else name
    return re.sub(r">\s+>", ">>", name).strip()


def kernels_of(cuobjdump: str, file: Path) -> list[Kernel]:
    """The kernels of an object or cubin, for every architecture in it."""
    def ask(option: str) -> str:
        return subprocess.run([cuobjdump, option, str(file)], capture_output=True, text=True).stdout

    kernels = parse(ask("-res-usage") + ask("-sass"))
    threads = {}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([cuobjdump, "-xelf", "all", str(file.resolve())], cwd=folder, capture_output=True)
        cubins = sorted(Path(folder).glob("*.cubin")) or ([file] if file.suffix == ".cubin" else [])
        for cubin in cubins:
            arch = next((part for part in cubin.name.split(".") if part.startswith("sm_")), "")
            threads |= {(arch, name): count for name, count in declared_threads(cubin.read_bytes()).items()}
    for (arch, name), kernel in kernels.items():
        kernel.threads = threads.get((arch, name)) or threads.get((arch.rstrip("a"), name), 0)
    return named(kernels)


def read_kernels(text: str) -> list[Kernel]:
    """The kernels in what cuobjdump printed for -res-usage and -sass."""
    return named(parse(text))


def named(kernels: dict[tuple[str, str], Kernel]) -> list[Kernel]:
    for kernel, name in zip(kernels.values(), demangled([name for _, name in kernels])):
        kernel.name = name
    return list(kernels.values())


def parse(text: str) -> dict[tuple[str, str], Kernel]:
    """Parses what cuobjdump printed.  Keys are architecture and mangled name."""
    kernels: dict[tuple[str, str], Kernel] = {}
    arch, now, awaited = "", None, None
    for line in text.splitlines():
        if found := re.match(r"\s*arch = (\S+)", line):
            arch, now = found[1], None
        elif found := re.match(r"\s*Function (\S+):\s*$", line):
            awaited = found[1]
        elif awaited and "REG:" in line:
            use = {name: int(value) for name, value in re.findall(r"(\w+):(\d+)", line)}
            kernels[arch, awaited] = Kernel(awaited, arch, use["REG"], use["STACK"] + use.get("LOCAL", 0), use["SHARED"], 0)
            awaited = None
        elif found := re.match(r"\s*Function : (\S+)", line):
            now = kernels.get((arch, found[1]))
        elif now is not None and (found := re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;", line)):
            text_of = re.sub(r"^@!?U?P\w+\s+", "", found[2])
            now.code.append((int(found[1], 16), text_of))
    return kernels


def declared_threads(cubin: bytes) -> dict[str, int]:
    """The __launch_bounds__ of each function (EIATTR_MAX_THREADS in its section .nv.info)."""
    max_threads, sized_value = 0x05, 0x04
    sections_at, = struct.unpack_from("<Q", cubin, 0x28)
    entry_size, count, names_index = struct.unpack_from("<HHH", cubin, 0x3A)
    sections = []
    for i in range(count):
        name, _, _, _, offset, size = struct.unpack_from("<IIQQQQ", cubin, sections_at + i * entry_size)
        sections.append((name, offset, size))
    names_offset = sections[names_index][1]
    found = {}
    for name, offset, size in sections:
        end = cubin.index(b"\0", names_offset + name)
        title = cubin[names_offset + name : end].decode()
        if not title.startswith(".nv.info."):
            continue
        at = offset
        while at < offset + size:  # u8 format, u8 attribute, u16 value or the value's size
            form, attribute, value = struct.unpack_from("<BBH", cubin, at)
            at += 4
            if form == sized_value:
                if attribute == max_threads:
                    x, y, z = struct.unpack_from("<III", cubin, at)
                    found[title.removeprefix(".nv.info.")] = x * y * z
                at += value
    return found
