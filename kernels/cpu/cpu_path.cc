#include "kernels/cpu/cpu_path.h"

#include <c10/util/Exception.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstdlib>

namespace clover::kernels {
namespace {

constexpr int unset = -1;
std::atomic<int> current_path{unset};
constexpr CpuPath all_paths[] = {CpuPath::portable, CpuPath::avx2, CpuPath::avx512, CpuPath::avx512_bf16,
                                 CpuPath::amx};

/// Linux lets a process use the tile registers only after a request (arch_prctl(2)).  Older kernels, which do
/// not support them, refuse it.
bool tile_registers_permitted() {
#if defined(__linux__) && defined(__x86_64__)
  constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool permitted = syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
  return permitted;
#else
  return false;
#endif
}

bool machine_has(CpuPath path) {
#if defined(__x86_64__)
  // These builtins report a family as missing if the operating system does not save its registers.
  __builtin_cpu_init();
  const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  const bool avx512_bf16 = avx512 && __builtin_cpu_supports("avx512bf16");
  switch (path) {
    case CpuPath::portable:
      return true;
    case CpuPath::avx2:
      return avx2;
    case CpuPath::avx512:
      return avx512;
    case CpuPath::avx512_bf16:
      return avx512_bf16;
    case CpuPath::amx:
      return avx512_bf16 && __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16") &&
             tile_registers_permitted();
  }
#endif
  return path == CpuPath::portable;
}

std::string available_names() {
  std::string names;
  for (CpuPath path : available_cpu_paths()) {
    names += (names.empty() ? "" : ", ") + to_string(path);
  }
  return names;
}

CpuPath path_from_environment(const char* name) {
  for (CpuPath path : all_paths) {
    if (to_string(path) != name) continue;
    TORCH_CHECK(machine_has(path), "CLOVER_CPU_PATH is ", name, ", which this machine lacks: choose one of ",
                available_names(), ", or unset it.");
    return path;
  }
  TORCH_CHECK(false, "CLOVER_CPU_PATH is '", name, "', expected one of ", available_names(), ".");
}

}  // namespace

std::vector<CpuPath> available_cpu_paths() {
  std::vector<CpuPath> paths;
  for (CpuPath path : all_paths) {
    if (machine_has(path)) paths.push_back(path);
  }
  return paths;
}

CpuPath cpu_path() {
  const int current = current_path.load(std::memory_order_relaxed);
  if (current != unset) return static_cast<CpuPath>(current);
  const char* name = std::getenv("CLOVER_CPU_PATH");
  const CpuPath path =
      name != nullptr && *name != '\0' ? path_from_environment(name) : available_cpu_paths().back();
  current_path.store(static_cast<int>(path), std::memory_order_relaxed);
  return path;
}

void set_cpu_path(CpuPath path) {
  TORCH_CHECK(machine_has(path), "The CPU path ", to_string(path),
              " needs instructions that this machine lacks: choose one of ", available_names(), ".");
  current_path.store(static_cast<int>(path), std::memory_order_relaxed);
}

std::string to_string(CpuPath path) {
  switch (path) {
    case CpuPath::portable:
      return "portable";
    case CpuPath::avx2:
      return "avx2";
    case CpuPath::avx512:
      return "avx512";
    case CpuPath::avx512_bf16:
      return "avx512_bf16";
    case CpuPath::amx:
      return "amx";
  }
  return "unknown";
}

}  // namespace clover::kernels
