#include <atomic>

#include "kernels/cpu/cpu_bodies.h"
#include "tests/kernels/here.h"

// Families whose instructions few machines have, emulated: the same sources, in place of this machine's
// families.
namespace clover::kernels {
namespace cpu {

const CpuBodies& emulated_avx512_bf16_bodies();
const CpuBodies& emulated_amx_bodies();

namespace {
std::atomic<const CpuBodies*> chosen{&emulated_amx_bodies()};
}

const CpuBodies& bodies() {
  return *chosen;
}

}  // namespace cpu

void on_every_path(const std::function<void()>& body) {
  const cpu::CpuBodies* before = cpu::chosen;
  for (const cpu::CpuBodies* family : {&cpu::emulated_avx512_bf16_bodies(), &cpu::emulated_amx_bodies()}) {
    SCOPED_TRACE(family == &cpu::emulated_amx_bodies() ? "amx" : "avx512_bf16");
    cpu::chosen = family;
    body();
  }
  cpu::chosen = before;
}

bool here::emulated() {
  return true;
}

}  // namespace clover::kernels
