"""gpu_kernels.py finds what is wrong with a kernel that was damaged on purpose, in recorded machine code and, where nvcc is,
in what it makes of damaged sources; and nothing in what is as it should be."""

import contextlib
import io
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
sys.dont_write_bytecode = True
import gpu_kernels  # noqa: E402
from gpu.machine_code import find_cuobjdump  # noqa: E402

# What cuobjdump prints of linear_clusters<Bf16, 10, store>, nvcc 13.0: its resources, its loop, and of the rest what counts.
RECORDED = (pathlib.Path(__file__).parent / "linear_clusters.sass").read_text()
IN_LOOP, BEHIND = 0x1900, 0x1FB0
NVCC = shutil.which("nvcc") or next((str(path) for path in [pathlib.Path("/usr/local/cuda/bin/nvcc")] if path.exists()), None)


def checked(*files: pathlib.Path) -> tuple[int, str]:
    sys.argv = ["gpu_kernels.py", "--check", "--build", "/nowhere", *map(str, files)]
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        code = gpu_kernels.main()
    return code, output.getvalue()


def check(text: str) -> tuple[int, str]:
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "recorded.sass")
        file.write_text(text)
        return checked(file)


def with_instructions(address: int, *instructions: str, text: str = RECORDED) -> str:
    """Behind the one at an address."""
    line = re.search(rf"^ +/\*{address:04x}\*/.*$", text, re.M)
    added = [f"        /*{address + 1 + i:04x}*/ {instruction} ;" for i, instruction in enumerate(instructions)]
    return text.replace(line[0], "\n".join([line[0], *added]))


class RecordedCode(unittest.TestCase):
    def expect(self, text: str, *faults: str):
        code, printed = check(text)
        self.assertEqual(code, 1)
        for fault in faults:
            self.assertIn(fault, printed)
        self.assertEqual(len(printed.splitlines()), len(faults), printed)

    def test_the_kernel_as_it_should_be(self):
        self.assertEqual(check(RECORDED)[0], 0, check(RECORDED)[1])

    def test_what_may_not_stand_in_the_loop(self):
        for instruction in ("MEMBAR.ALL.CTA", "FENCE.VIEW.ASYNC.S", "BAR.SYNC.DEFER_BLOCKING 0x0", "LDGSTS.E.BYPASS.128 [R5], [R6.64]", "LDG.E R1, [R2.64]"):
            opcode = instruction.split(".")[0] if not instruction.startswith("BAR") else "BAR.SYNC"
            self.expect(with_instructions(IN_LOOP, instruction), f"1 {opcode} in its loop at")

    def test_where_else_it_may(self):
        self.assertEqual(check(with_instructions(BEHIND, "BAR.SYNC.DEFER_BLOCKING 0x0", "MEMBAR.ALL.GPU", "STG.E [R2.64], R1"))[0], 0)

    def test_spills(self):
        spilt = with_instructions(IN_LOOP, "STL [R1], R5", "LDL R5, [R1]").replace("STACK:0", "STACK:16")
        self.expect(spilt, "16 bytes of stack a thread", "1 LDL in its loop", "1 STL in its loop")

    def test_too_many_registers_for_two_blocks(self):
        self.expect(RECORDED.replace("REG:82", "REG:200"), "200 registers, at most 128", "1 blocks a multiprocessor, at least 2")

    def test_an_epilogue_of_thousands_of_instructions(self):
        last = re.findall(r"/\*([0-9a-f]{4})\*/", RECORDED)[-1]
        lines = [f"        /*{int(last, 16) + 16 * (i + 1):05x}*/ FADD R1, R2, R3 ;" for i in range(2800)]
        self.expect(RECORDED + "\n".join(lines), "KiB of code, at most")

    def test_products_of_other_instructions(self):
        self.expect(RECORDED.replace("HGMMA.64x80x16.F32.BF16", "HMMA.16816.F32.BF16"), "no HGMMA in its loop", "4 HMMA in its loop")

    def test_products_that_wait_for_each_other(self):
        serial = RECORDED.replace("WARPGROUP.DEPBAR.LE gsb0, 0x1", "WARPGROUP.DEPBAR.LE gsb0, 0x0")
        self.expect(serial, "each product of tensor cores is waited for")

    def test_too_much_beside_each_product(self):
        padded = RECORDED
        for address in (0x1390, 0x1400, 0x1880, 0x1900):
            padded = with_instructions(address, *["IMAD.MOV.U32 R5, RZ, RZ, R6"] * 6, text=padded)
        self.expect(padded, "instructions for each of tensor cores in its innermost loop, at most 36")

    def test_copies_by_threads(self):
        self.expect(re.sub(r"UTMALDG\S*", "MOV", RECORDED), "no UTMALDG in its code")

    def test_no_loop(self):
        self.expect(re.sub(r"^.*\bBRA\b.*$", "", RECORDED, flags=re.M), "no loop with products of tensor cores")


WAIT = r"wait_for_phase\(\w+\.full\([^;]*\);"  # for a stage of the ring that is to be multiplied
KERNEL = """
#include "kernels/linear/linear_clusters.cuh"
const void* kept() {
  using namespace clover::kernels;
  return reinterpret_cast<const void*>(&cuda::linear_clusters<cuda::Bf16, 12, Epilogue::silu_mul>);
}
"""


@unittest.skipUnless(NVCC and find_cuobjdump(), "neither nvcc nor cuobjdump is here: sources are not compiled")
class CompiledSources(unittest.TestCase):
    """The kernel's own source, damaged where it waits for a stage of its ring."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)

    def compiled(self, name: str, damaged: str, pattern: str, replacement: str) -> tuple[int, str]:
        work = pathlib.Path(self.folder.name, name)
        shutil.copytree(ROOT / "kernels", work / "kernels", ignore=shutil.ignore_patterns("*.cc", "*.cu"))
        header = work / "kernels" / "linear" / damaged
        self.assertRegex(header.read_text(), pattern)
        header.write_text(re.sub(pattern, replacement, header.read_text(), count=1))
        (work / "kernel.cu").write_text(KERNEL)
        command = [NVCC, "-std=c++17", "-O3", "--fmad=false", "--generate-code=arch=compute_90a,code=[sm_90a]", "-I", str(work), "-c", "-o",
                   str(work / "kernel.o"), str(work / "kernel.cu")]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return checked(work / "kernel.o")

    def expect(self, name: str, damaged: str, pattern: str, replacement: str, fault: str):
        code, printed = self.compiled(name, damaged, pattern, replacement)
        self.assertEqual(code, 1, printed)
        self.assertRegex(printed, fault)

    def test_as_it_is(self):
        code, printed = self.compiled("whole", "linear_cluster_ring.cuh", WAIT, r"\g<0>")
        self.assertEqual(code, 0, printed)

    def test_a_fence(self):
        self.expect("fence", "linear_cluster_ring.cuh", WAIT, r'\g<0> asm volatile("fence.proxy.async;" ::: "memory");', "(MEMBAR|FENCE) in its loop")

    def test_a_barrier(self):
        self.expect("barrier", "linear_cluster_ring.cuh", WAIT, r'\g<0> asm volatile("bar.sync 1, 256;" ::: "memory");', "BAR.SYNC in its loop")

    def test_an_epilogue_that_is_chosen_at_run_time(self):
        self.expect("epilogue", "linear_clusters.cuh", r"call\.epilogue = End;", "", "KiB of code")


if __name__ == "__main__":
    unittest.main()
