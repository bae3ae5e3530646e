#include "kernels/gpu/device.cuh"
#include "kernels/rows/cache_row.h"
#include "kernels/rows/move_rows.h"

namespace clover::kernels {
using namespace cuda;
namespace {

constexpr int threads = 128;
constexpr int at_once = 4;  // rows read before any of them is written

/// One block for each group of each part: the block of the group's first move does them all. A thread moves
/// 16 bytes of a head.
__global__ void __launch_bounds__(threads) move_groups(MoveCall call) {
  launch_dependents();
  wait_for_prior_kernel();
  const int64_t *from = call.moves, *to = from + call.count, *group = to + call.count;
  const int64_t first = blockIdx.x;
  const int words = static_cast<int>(call.row_bytes / 16), word = blockIdx.y * threads + threadIdx.x,
            head = word / words;
  if (head >= call.kv_heads || (first > 0 && group[first - 1] == group[first])) return;
  const int64_t part = blockIdx.z * call.pages * call.kv_heads * call.page_size;
  uint4* const column = static_cast<uint4*>(call.cache) + part * words + word % words;
  const auto at = [&](int64_t slot) -> uint4& {
    return column[cache_row(call, place_of(slot, call.page_size), head) * words];
  };
  int64_t end = first + 1;
  while (end < call.count && group[end] == group[first]) ++end;
  for (int64_t next = first; next < end; next += at_once) {
    uint4 held[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i)
      if (next + i < end && from[next + i] >= 0) held[i] = at(from[next + i]);
#pragma unroll
    for (int i = 0; i < at_once; ++i)
      if (next + i < end && from[next + i] >= 0) at(to[next + i]) = held[i];
  }
}

}  // namespace

void run_on_gpu(const MoveCall& call, const GpuContext& context) {
  const int64_t words = call.kv_heads * call.row_bytes / 16;
  launch("move_rows", move_groups, dim3(call.count, (words + threads - 1) / threads, call.parts), threads, 0,
         context.stream, call);
}

}  // namespace clover::kernels
