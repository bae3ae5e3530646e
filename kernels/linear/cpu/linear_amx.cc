#include "kernels/cpu/family.h"
#include "kernels/linear/cpu/linear_tiles.h"

namespace clover::kernels::cpu {

template <>
const Bf16LinearLoops LoopsOf<Bf16LinearLoops, CLOVER_FAMILY>::loops{linear_of_tiles};

}  // namespace clover::kernels::cpu
