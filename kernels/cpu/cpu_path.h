#pragma once

#include <string>
#include <vector>

namespace clover::kernels {

/// The instruction families that CPU kernels are compiled for.  A process uses one of them for all row
/// counts, so that a row's result does not depend on how many rows are computed with it.  Results of two
/// families may differ in the last bits.
enum class CpuPath { portable, avx2, avx512, avx512_bf16, amx };

/// The paths this machine can run, slowest first.
std::vector<CpuPath> available_cpu_paths();

/// The path in use: the one that `set_cpu_path` or else the environment variable CLOVER_CPU_PATH (portable |
/// avx2 | avx512 | avx512_bf16 | amx) names, by default the fastest available one.  c10::Error if the machine
/// lacks it.
CpuPath cpu_path();

/// Sets the path of the whole process; tests use it to compare paths.  Must not be called while kernels run.
void set_cpu_path(CpuPath path);

std::string to_string(CpuPath path);

}  // namespace clover::kernels
