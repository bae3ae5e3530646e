// The attention loops for AMX: kernels/cpu/family.h says how an instruction family's loops are chosen, and
// attention_tile_group.h computes a group, the rows and query heads that share a KV head.
#include "kernels/attention/attention_tile_group.h"
#include "kernels/cpu/family.h"

namespace clover::kernels::cpu {

template <>
const AttentionLoops LoopsOf<AttentionLoops, CLOVER_FAMILY>::loops{tile_attention_group, attention_merge};

}  // namespace clover::kernels::cpu
