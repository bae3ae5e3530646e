#include "kernels/attention/attention_tile_group.h"
#include "kernels/cpu/family.h"

namespace clover::kernels::cpu {

template <>
const AttentionLoops LoopsOf<AttentionLoops, CLOVER_FAMILY>::loops{tile_attention_group, attention_merge};

}  // namespace clover::kernels::cpu
