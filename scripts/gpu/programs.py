"""The programs that measure_gpu.py runs: finds them, the libraries they need, and packs them for a machine that has only torch
and nvcc."""
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BENCHES = ("clover-infer", "clover-train", "linear_bench", "attention_bench")
TESTS = ("cuda_test", "cuda_engine_test", "cuda_training_test")
MEBIBYTE = 1 << 20
# Every program contains the same kernels; with a dictionary of this size, in bytes, LZMA stores them once.  Unpacking takes as much
# memory.
DICTIONARY = 1 << 27
PIECES = ".pieces"


class Failed(Exception):
    """A part could not be measured.  The message says why; a program's own messages are on stderr."""


class Programs:
    """The programs of a build folder (bin/, tests/) or of an unpacked folder, and the environment variables they need."""

    def __init__(self, folder: Path, python: str = sys.executable):
        self.folder, self.python = folder.resolve(), python
        self.environment: dict[str, str] | None = None

    def path(self, name: str) -> Path:
        for place in (self.folder / "bin" / name, self.folder / "tests" / name, self.folder / name):
            if place.is_file():
                return place
        raise Failed(f"{self.folder} holds no {name}: build it there, or unpack it with --unpack")

    def has(self, *names: str) -> bool:
        try:
            return all(self.path(name) for name in names)
        except Failed:
            return False

    def build(self, names: tuple[str, ...]) -> None:
        """Builds them with cmake.  A folder without a CMake cache was unpacked, so its programs are taken as they are."""
        if not (self.folder / "CMakeCache.txt").exists() or shutil.which("cmake") is None:
            return
        command = ["cmake", "--build", str(self.folder), "--target", *names]
        if subprocess.run(command, stdout=sys.stderr).returncode:
            raise Failed("the programs could not be built")

    def environment_of(self, name: str) -> dict[str, str]:
        """The environment to run a program in.  Libraries it does not find come from `python`'s torch and from lib/."""
        if self.environment is None:
            self.environment = dict(os.environ)
            if missing_libraries(self.path(name), self.environment):
                folders = [str(self.folder / "lib"), *library_folders(self.python)]
                before = self.environment.get("LD_LIBRARY_PATH")
                self.environment["LD_LIBRARY_PATH"] = os.pathsep.join(folders + ([before] if before else []))
        if missing := missing_libraries(self.path(name), self.environment):
            raise Failed(f"{name} finds no {', '.join(missing)}: expected torch 2.11.0 with CUDA 13 for {self.python} (--python), "
                         f"the rest in {self.folder / 'lib'}")
        return self.environment


def library_folders(python: str) -> list[str]:
    """The library folders of an interpreter's torch wheel and of the nvidia wheels beside it."""
    script = "import importlib.util as u, os; s = u.find_spec('torch'); print(os.path.dirname(s.origin) if s else '')"
    found = subprocess.run([python, "-c", script], capture_output=True, text=True).stdout.strip()
    if not found:
        return []
    torch = Path(found)
    return [str(torch / "lib"), *sorted(str(folder) for folder in torch.parent.glob("nvidia/*/lib"))]


def libraries_of(program: Path, environment: dict[str, str]) -> dict[str, str | None]:
    """The path of each library that a program is linked with; None for one that is not found."""
    lines = subprocess.run(["ldd", str(program)], capture_output=True, text=True, env=environment).stdout.splitlines()
    pairs = [line.split(" => ") for line in lines if " => " in line]
    return {name.strip(): None if "not found" in where else where.split(" (")[0].strip() for name, where in pairs}


def missing_libraries(program: Path, environment: dict[str, str]) -> list[str]:
    return [name for name, where in libraries_of(program, environment).items() if where is None]


# ---- packing for a machine without our tools


def pack(programs: Programs, target: Path, heads: list[Path], into: Path, part_bytes: int) -> list[Path]:
    """Writes folders part-1, part-2, .. of at most `part_bytes` bytes each: first the programs with their libraries and the heads,
    then the model.  The script itself, configs/ and the questions come with the repository."""
    if into.exists():
        shutil.rmtree(into)
    work = into / "work"
    work.mkdir(parents=True)
    names = [name for name in (*BENCHES, *TESTS) if programs.has(name)]
    if not names:
        raise Failed(f"{programs.folder} holds no programs: build {', '.join((*BENCHES, *TESTS))} there")
    files: dict[str, Path] = {}
    for name in names:
        stripped = work / name
        shutil.copy2(programs.path(name), stripped)
        subprocess.run(["strip", "--strip-all", str(stripped)], check=False)
        files[f"{'tests' if name in TESTS else 'bin'}/{name}"] = stripped
        for library, where in libraries_of(programs.path(name), dict(os.environ)).items():
            if where and not comes_with_the_machine(where):
                files[f"lib/{library}"] = Path(where).resolve()
    for folder in heads:
        files |= {f"heads/{folder.name}/{file.name}": file for file in folder.iterdir() if file.is_file()}
    archives = [("programs", files)]
    if target.is_dir():
        archives.append(("model", {f"models/{target.name}/{file.name}": file for file in target.iterdir() if file.is_file()}))
    parts = write_parts([(name, archive(work / f"{name}.tar.xz", of)) for name, of in archives], into, part_bytes)
    shutil.rmtree(work)
    return parts


def comes_with_the_machine(library: str) -> bool:
    """Whether a library need not be packed: the C and C++ runtimes, torch and the libraries in its wheels."""
    name = Path(library).name
    runtimes = ("libc.so", "libm.so", "libdl.so", "librt.so", "libpthread.so", "libutil.so", "libstdc++.so", "libgcc_s.so", "ld-linux")
    return name.startswith(runtimes) or "/torch/lib/" in library or "/nvidia/" in library


def archive(file: Path, members: dict[str, Path]) -> Path:
    code = [{"id": lzma.FILTER_X86}] if any(name.startswith("bin/") for name in members) else []
    filters = [*code, {"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": DICTIONARY}]
    with lzma.open(file, "wb", filters=filters) as packed, tarfile.open(fileobj=packed, mode="w|") as tar:
        for name, source in sorted(members.items()):
            tar.add(source.resolve(), arcname=name)
    return file


def write_parts(archives: list[tuple[str, Path]], into: Path, part_bytes: int) -> list[Path]:
    """Splits archives into pieces NAME.tar.xz.I-of-COUNT and fills part folders with them.  Returns the folders."""
    parts: list[tuple[Path, int]] = []
    for name, file in archives:
        data, pieces, at = file.read_bytes(), [], 0
        while at < len(data):
            if not parts or parts[-1][1] >= part_bytes:
                parts.append((into / f"part-{len(parts) + 1}", 0))
                parts[-1][0].mkdir()
            folder, used = parts[-1]
            piece = data[at : at + part_bytes - used]
            pieces.append((folder, piece))
            parts[-1] = (folder, used + len(piece))
            at += len(piece)
        for number, (folder, piece) in enumerate(pieces, start=1):
            (folder / f"{name}.tar.xz.{number}-of-{len(pieces)}").write_bytes(piece)
    return [folder for folder, _ in parts]


def unpack(parts: list[Path], into: Path) -> list[str]:
    """Takes the pieces in part folders, in any order and over several calls.  An archive is unpacked once all its pieces are there.
    Returns the names of archives that are still incomplete."""
    kept = into / PIECES
    kept.mkdir(parents=True, exist_ok=True)
    for part in parts:
        if not part.is_dir():
            raise Failed(f"{part} is no folder: expected one that --pack made")
        for piece in part.glob("*.tar.xz.*-of-*"):
            shutil.copy2(piece, kept / piece.name)
    incomplete = []
    for name in sorted({piece.name.partition(".tar.xz.")[0] for piece in kept.glob("*.tar.xz.*-of-*")}):
        pieces = {int(file.name.rpartition(".")[2].partition("-of-")[0]): file for file in kept.glob(f"{name}.tar.xz.*-of-*")}
        count = int(next(iter(pieces.values())).name.rpartition("-of-")[2])
        if len(pieces) < count:
            incomplete.append(name)
            continue
        whole = kept / f"{name}.tar.xz"
        with whole.open("wb") as joined:
            for number in range(1, count + 1):
                joined.write(pieces[number].read_bytes())
        with lzma.open(whole) as unpacked, tarfile.open(fileobj=unpacked, mode="r|") as tar:
            tar.extractall(into, filter="data")
        for file in (whole, *pieces.values()):
            file.unlink()
    return incomplete
