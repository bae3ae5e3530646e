#include "kernels/device/cuda.h"
#include "kernels/device/launchers.h"

namespace clover::kernels::cuda {
namespace {

constexpr int threads = 128;
constexpr int at_once = 4;  // rows read before any of them is written

/// Sixteen bytes of every slot of a part.
struct Column {
  uint4* first;
  unsigned page_size;
  int words, page_words;  // of a row: a head's elements; of a page: all heads' rows
  __device__ uint4& operator[](int64_t slot) const {
    const unsigned page = static_cast<unsigned>(slot) / page_size;
    return first[int64_t{page} * page_words + (static_cast<unsigned>(slot) - page * page_size) * words];
  }
};

/// A block a group, which the block of its first move takes, in one part; a thread 16 bytes of a head.
__global__ void __launch_bounds__(threads) move_groups(uint4* cache, int64_t pages, int heads, int page_size,
                                                       int words, const int64_t* moves, int64_t count) {
  let_next_begin();
  wait_for_last();
  const int64_t *from = moves, *to = moves + count, *group = moves + 2 * count;
  const int64_t first = blockIdx.x;
  const int word = blockIdx.y * threads + threadIdx.x, head = word / words,
            page_words = heads * page_size * words;
  if (head >= heads || (first > 0 && group[first - 1] == group[first])) return;
  const Column part{cache + static_cast<int64_t>(blockIdx.z) * pages * page_words +
                        static_cast<int64_t>(head) * page_size * words + word % words,
                    static_cast<unsigned>(page_size), words, page_words};
  int64_t end = first + 1;
  while (end < count && group[end] == group[first]) ++end;
  for (int64_t at = first; at < end; at += at_once) {
    uint4 held[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i)
      if (at + i < end && from[at + i] >= 0) held[i] = part[from[at + i]];
#pragma unroll
    for (int i = 0; i < at_once; ++i)
      if (at + i < end && from[at + i] >= 0) part[to[at + i]] = held[i];
  }
}

}  // namespace

void launch_move_rows(const CacheParts& cache, const int64_t* moves, int64_t count, Stream stream) {
  const int heads = static_cast<int>(cache.heads), words = static_cast<int>(cache.row_bytes / 16);
  launch("move_rows", move_groups, dim3(count, (heads * words + threads - 1) / threads, cache.parts), threads,
         0, stream, static_cast<uint4*>(cache.first), cache.pages, heads, static_cast<int>(cache.page_size),
         words, moves, count);
}

}  // namespace clover::kernels::cuda
