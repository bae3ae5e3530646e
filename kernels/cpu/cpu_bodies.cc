#include "kernels/cpu/cpu_bodies.h"

#include "kernels/cpu/cpu_path.h"

namespace clover::kernels::cpu {

const CpuBodies& bodies() {
#if defined(__x86_64__)
  switch (cpu_path()) {
    case CpuPath::portable:
      return portable_bodies();
    case CpuPath::avx2:
      return avx2_bodies();
    case CpuPath::avx512_bf16:
      return avx512_bf16_bodies();
    case CpuPath::amx:
      return amx_bodies();
  }
#endif
  return portable_bodies();
}

}  // namespace clover::kernels::cpu
