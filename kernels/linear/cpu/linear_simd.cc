#include "kernels/cpu/family.h"
#include "kernels/linear/cpu/linear_floats.h"
#if defined(__AVX512BF16__) || defined(CLOVER_EMULATE_AVX512_BF16)
#include "kernels/linear/cpu/linear_bf16_pairs.h"
#endif

namespace clover::kernels::cpu {

template <>
const LinearLoops LoopsOf<LinearLoops, CLOVER_FAMILY>::loops = linear_of_floats;

#if defined(__AVX512BF16__) || defined(CLOVER_EMULATE_AVX512_BF16)
template <>
const Bf16LinearLoops LoopsOf<Bf16LinearLoops, CLOVER_FAMILY>::loops{linear_of_pairs};
#else
template <>
const Bf16LinearLoops LoopsOf<Bf16LinearLoops, CLOVER_FAMILY>::loops{linear_of_floats};
#endif

}  // namespace clover::kernels::cpu
