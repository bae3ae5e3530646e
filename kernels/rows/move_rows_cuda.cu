#include "kernels/gpu/device.cuh"
#include "kernels/rows/cache_row.h"
#include "kernels/rows/move_rows.h"

namespace clover::kernels {
using namespace cuda;
namespace {

constexpr int threads = 128;
constexpr int moves_at_once = 4;  // their rows are read before the first of them is written

/// Grid: x is a move, y a range of `threads` words of a slot, a word being 16 bytes, and z a part of the
/// cache. The block of a group's first move does all moves of the group, and those of the other moves return
/// at once. A thread copies one word of each slot.
__global__ void __launch_bounds__(threads) move_groups(MoveCall call) {
  launch_dependents();
  wait_for_prior_kernel();
  const int64_t *from = call.moves, *to = from + call.count, *group = to + call.count;
  const int64_t first = blockIdx.x;
  const int row_words = static_cast<int>(call.row_bytes / 16), word = blockIdx.y * threads + threadIdx.x,
            head = word / row_words;
  if (head >= call.kv_heads || (first > 0 && group[first - 1] == group[first])) return;
  const int64_t part_row = blockIdx.z * call.pages * call.kv_heads * call.page_size;  // the part's first row
  uint4* const column = static_cast<uint4*>(call.cache) + part_row * row_words + word % row_words;
  const auto word_of = [&](int64_t slot) -> uint4& {
    return column[cache_row(call, place_of(slot, call.page_size), head) * row_words];
  };
  int64_t end = first + 1;
  while (end < call.count && group[end] == group[first]) ++end;
  for (int64_t next = first; next < end; next += moves_at_once) {
    uint4 row_words_read[moves_at_once];
#pragma unroll
    for (int i = 0; i < moves_at_once; ++i)
      if (next + i < end && from[next + i] >= 0) row_words_read[i] = word_of(from[next + i]);
#pragma unroll
    for (int i = 0; i < moves_at_once; ++i)
      if (next + i < end && from[next + i] >= 0) word_of(to[next + i]) = row_words_read[i];
  }
}

}  // namespace

void run_on_gpu(const MoveCall& call, const GpuContext& context) {
  const int64_t slot_words = call.kv_heads * call.row_bytes / 16;
  launch("move_rows", move_groups, dim3(call.count, (slot_words + threads - 1) / threads, call.parts),
         threads, 0, context.stream, call);
}

}  // namespace clover::kernels
