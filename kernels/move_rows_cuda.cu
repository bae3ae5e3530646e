#include "kernels/device/cuda.h"
#include "kernels/device/launchers.h"

namespace clover::kernels::cuda {
namespace {

constexpr int threads = 128;
constexpr int at_once = 4;  // rows read before any of them is written

/// A block a group, which the block of its first move takes, in one part; a thread 16 bytes of its rows.
__global__ void __launch_bounds__(threads)
    move_groups(uint4* cache, int64_t slots, int words, const int64_t* moves, int64_t count) {
  let_next_begin();
  wait_for_last();
  const int64_t *from = moves, *to = moves + count, *group = moves + 2 * count;
  const int64_t first = blockIdx.x;
  const int word = blockIdx.y * threads + threadIdx.x;
  if (word >= words || (first > 0 && group[first - 1] == group[first])) return;
  uint4* part = cache + static_cast<int64_t>(blockIdx.z) * slots * words + word;
  int64_t end = first + 1;
  while (end < count && group[end] == group[first]) ++end;
  for (int64_t at = first; at < end; at += at_once) {
    uint4 held[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i)
      if (at + i < end && from[at + i] >= 0) held[i] = part[from[at + i] * words];
#pragma unroll
    for (int i = 0; i < at_once; ++i)
      if (at + i < end && from[at + i] >= 0) part[to[at + i] * words] = held[i];
  }
}

}  // namespace

void launch_move_rows(void* cache, int64_t parts, int64_t slots, int64_t row_bytes, const int64_t* moves,
                      int64_t count, Stream stream) {
  const int words = static_cast<int>(row_bytes / 16);
  launch("move_rows", move_groups, dim3(count, (words + threads - 1) / threads, parts), threads, 0, stream,
         static_cast<uint4*>(cache), slots, words, moves, count);
}

}  // namespace clover::kernels::cuda
