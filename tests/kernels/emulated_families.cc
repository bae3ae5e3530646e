#include <atomic>

#include "kernels/cpu/loops.h"
#include "tests/kernels/here.h"

// Families whose instructions few machines have: this program links the same sources with the instructions
// emulated, in place of the library's, and lets ops choose them whatever this machine has.
namespace clover::kernels {
namespace {

std::atomic<CpuPath> chosen{CpuPath::amx};

}  // namespace

CpuPath cpu::path_of_loops() {
  return chosen;
}

void on_every_path(const std::function<void()>& body) {
  const CpuPath before = chosen;
  for (const CpuPath path : {CpuPath::avx512_bf16, CpuPath::amx}) {
    SCOPED_TRACE(to_string(path));
    chosen = path;
    body();
  }
  chosen = before;
}

bool here::emulated() {
  return true;
}

}  // namespace clover::kernels
