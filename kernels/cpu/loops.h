#pragma once

#include "kernels/cpu/cpu_path.h"
#include "kernels/cpu/family.h"

namespace clover::kernels::cpu {

/// The family whose loops run: cpu_path(), in a file of its own, which the test of emulated families
/// replaces.
CpuPath path_of_loops();

/// The loops of that family.  Amx has the flags of Avx512Bf16 and shares its loops but for those that say
/// `own_amx_loops`.
template <class Loops>
const Loops& loops() {
#if defined(__x86_64__)
  switch (path_of_loops()) {
    case CpuPath::portable:
      break;
    case CpuPath::avx2:
      return LoopsOf<Loops, Avx2>::loops;
    case CpuPath::avx512_bf16:
      return LoopsOf<Loops, Avx512Bf16>::loops;
    case CpuPath::amx:
      if constexpr (requires { Loops::own_amx_loops; }) {
        return LoopsOf<Loops, Amx>::loops;
      } else {
        return LoopsOf<Loops, Avx512Bf16>::loops;
      }
  }
#endif
  return LoopsOf<Loops, Portable>::loops;
}

}  // namespace clover::kernels::cpu
