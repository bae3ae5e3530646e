#pragma once

#include <string>
#include <vector>

namespace clover::kernels {

/// The instruction families a CPU kernel may be built from.  One family serves every row count, so that a
/// row's result does not depend on how many rows travel with it.  Results of two families may differ in the
/// last bits.
enum class CpuPath { portable, avx2, avx512_bf16, amx };

/// The paths this machine can run, slowest first.
std::vector<CpuPath> available_cpu_paths();

/// The path in use: the fastest available one unless `set_cpu_path` or the environment variable
/// CLOVER_CPU_PATH (portable | avx2 | avx512_bf16 | amx) chose another.  Throws c10::Error when the machine
/// lacks the chosen one.
CpuPath cpu_path();

/// Forces a path for the whole process (tests compare paths).  Not to be called while kernels run.
void set_cpu_path(CpuPath path);

std::string to_string(CpuPath path);

}  // namespace clover::kernels
