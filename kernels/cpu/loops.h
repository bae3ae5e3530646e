#pragma once

#include "kernels/cpu/cpu_path.h"
#include "kernels/cpu/family.h"

namespace clover::kernels::cpu {

/// The family whose loops run: cpu_path().  loops.cc defines only this, because the test of emulated families
/// replaces it.
CpuPath path_of_loops();

/// The `Loops` of that family.  Amx uses those of Avx512Bf16, unless the struct Loops has a member
/// `own_amx_loops`.
template <class Loops>
const Loops& loops() {
#if defined(__x86_64__)
  switch (path_of_loops()) {
    case CpuPath::portable:
      break;
    case CpuPath::avx2:
      return LoopsOf<Loops, Avx2>::loops;
    case CpuPath::avx512:
      return LoopsOf<Loops, Avx512>::loops;
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
