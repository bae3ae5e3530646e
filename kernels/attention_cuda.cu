#include "kernels/device/attention_steps.h"
#include "kernels/device/launchers.h"

// Attention of the rows of a pass to their paths.  A tile of 16 queries, successive rows of one sequence by
// the query heads of one kv head, takes keys in blocks of 64 absolute positions; 256 of them make a partial
// result, and partial results are merged in order: what a row gets depends on its own path alone.
namespace clover::kernels::cuda {
namespace {

/// A partial result of one query in the workspace: head_size sums, the largest score, the mass.
CLOVER_BOTH int64_t partial_size(int64_t head_size) {
  return head_size + 2;
}

/// An empty path has no mass.
__device__ inline float mean_of(float sum, float mass) {
  return mass == 0 ? 0 : sum / mass;
}

template <int Pieces>
__device__ inline void write_partial(const Work& work, const Tile& tile, const Span* spans, int split,
                                     int splits, const Sums<Pieces>& sums, float* workspace) {
  const int warp = threadIdx.x / warp_size, group = threadIdx.x % warp_size / 4, in_group = threadIdx.x % 4;
  const int64_t d = work.call.head_size;
  const auto at = [&](int query) {
    return workspace + (work.index_of(query) * splits + split) * partial_size(d);
  };
  const auto has = [&](int query) {
    return query < work.queries() && split < splits_of(spans[query / work.heads].length);
  };
#pragma unroll
  for (int piece = 0; piece < Pieces; ++piece) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int query = group + i / 2 * 8, dimension = 8 * (warp + warps * piece) + 2 * in_group + i % 2;
      if (has(query) && dimension < d) at(query)[dimension] = sums.x[piece][i];
    }
  }
  const int query = threadIdx.x;
  if (query < tile_queries && has(query)) {
    at(query)[d] = tile.largest[query];
    at(query)[d + 1] = tile.mass[query];
  }
}

/// Of no keys.
template <int Pieces>
__device__ __forceinline__ void begin_result(const Tile& tile, Sums<Pieces>& sums) {
  sums = {};
  if (threadIdx.x >= tile_queries) return;
  tile.largest[threadIdx.x] = minus_infinity();
  tile.mass[threadIdx.x] = 0;
}

/// Where no path is longer than one partial result: as merge_partials makes it of one, -0 included.
template <int Pieces>
__device__ inline void write_result(const Work& work, const Tile& tile, const Sums<Pieces>& sums) {
  const int warp = threadIdx.x / warp_size, group = threadIdx.x % warp_size / 4, in_group = threadIdx.x % 4;
  const int64_t d = work.call.head_size;
#pragma unroll
  for (int piece = 0; piece < Pieces; ++piece) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int query = group + i / 2 * 8, dimension = 8 * (warp + warps * piece) + 2 * in_group + i % 2;
      if (query >= work.queries() || dimension >= d) continue;
      store_as(work.call.out, work.call.result, work.index_of(query) * d + dimension,
               mean_of(0.0f + sums.x[piece][i], tile.mass[query]));
    }
  }
}

/// Page tables may have room for more splits than any row of a tile has keys for.
__device__ inline bool any_reaches(const Span* spans, int rows, int split) {
  for (int row = 0; row < rows; ++row)
    if (split < splits_of(spans[row].length)) return true;
  return false;
}

/// Partial results blockIdx.z * splits_a_block and on, of `splits`, of the tiles of kv head blockIdx.y.
template <class T, int Pieces, int Size>
__global__ void __launch_bounds__(threads, 2)
    attend(AttentionCall call, int splits, int splits_a_block, float* workspace) {
  let_next_begin();
  wait_for_last();
  __shared__ Span spans[tile_queries];
  const TileShape shape(call);
  const Tile tile = Tile::of < T, pipelined<T, Pieces> ? 2 : 1 > (Size > 0 ? Size : call.head_size);
  const int64_t kv_head = blockIdx.y / shape.head_parts(), part = blockIdx.y % shape.head_parts();
  const int first_split = blockIdx.z * splits_a_block,
            count = splits - first_split < splits_a_block ? splits - first_split : splits_a_block;
  for (int64_t wanted = blockIdx.x;; wanted += gridDim.x) {
    int64_t first_row = 0;
    const int rows = find_tile(call, shape.rows, wanted, first_row);
    if (rows == 0) return;
    __syncthreads();  // the last tile's spans have been read
    if (static_cast<int>(threadIdx.x) < rows) spans[threadIdx.x] = span_of(call, first_row + threadIdx.x);
    __syncthreads();
    if (!any_reaches(spans, rows, first_split)) continue;
    const int64_t head = part * shape.heads_here;
    const int heads =
        static_cast<int>(shape.heads - head < shape.heads_here ? shape.heads - head : shape.heads_here);
    const Work work{call,
                    call.page_table + call.sequence[first_row] * call.pages_per_sequence,
                    first_row,
                    kv_head,
                    kv_head * shape.heads + head,
                    rows,
                    heads};
    Sums<Pieces> sums;
    begin_result(tile, sums);
    Steps steps(work, spans, first_split, count);
    int split = first_split;
    const auto end_before = [&](int next) {
      for (; split < next; ++split) {
        write_partial(work, tile, spans, split, splits, sums, workspace);
        begin_result(tile, sums);  // what each thread sets here it alone has read
      }
    };
    if constexpr (pipelined<T, Pieces>) {
      attend_pipelined<T, Size>(work, tile, spans, steps, sums, end_before);
    } else {
      attend_steps<T, Size>(work, tile, spans, steps, sums, end_before);
    }
    if (splits == 1) {
      write_result(work, tile, sums);
    } else {
      end_before(first_split + count);
    }
  }
}

/// A block a query head of a row, a thread a dimension.  Every warp finds for itself what partial results
/// count, a lane for each of 32 in turn.
__global__ void __launch_bounds__(largest_head)
    merge_partials(AttentionCall call, int splits, const float* workspace) {
  let_next_begin();
  wait_for_last();
  const int64_t index = blockIdx.x, d = call.head_size, size = partial_size(d);
  const int lane = threadIdx.x % warp_size, own = splits_of(path_length(call, index / call.query_heads));
  const float* partials = workspace + index * splits * size;
  const float *largest = partials + d, *masses = partials + d + 1;
  float top = minus_infinity();
  for (int split = lane; split < own; split += warp_size) top = larger(largest[split * size], top);
  top = warp_max(top);
  const bool inside = threadIdx.x < d;
  const float* sums = partials + (inside ? threadIdx.x : 0);
  float sum = 0, mass = 0;
  for (int first = 0; first < own; first += warp_size) {
    const int count = own - first < warp_size ? own - first : warp_size;
    const int mine = first + (lane < count ? lane : 0);
    // No keys yet leave -inf, whose difference with itself is not a number.
    const float share = largest[mine * size] == top ? 1 : exp_one(largest[mine * size] - top);
    mass += lane < count ? share * masses[mine * size] : 0;
#pragma unroll 8
    for (int i = 0; i < count; ++i) sum += __shfl_sync(all_lanes, share, i) * sums[(first + i) * size];
  }
  mass = warp_sum(mass);
  if (inside) store_as(call.out, call.result, index * d + threadIdx.x, mean_of(sum, mass));
}

/// As many as leave several blocks for each place on a GPU: those of one block follow each other without a
/// pause.
int splits_a_block(int64_t tiles, int splits) {
  constexpr int64_t enough_blocks = 8 * 2 * 132;
  int together = 1;
  while (together < 4 && tiles * ((splits + 2 * together - 1) / (2 * together)) >= enough_blocks)
    together *= 2;
  return together;
}

template <class T, int Pieces>
void launch_attend(const AttentionCall& call, int splits, float* workspace, Stream stream) {
  const TileShape shape(call);
  const int64_t tiles = shape.tiles(call.rows, call.sequences), heads = call.kv_heads * shape.head_parts();
  const int together = splits_a_block(tiles * heads, splits);
  constexpr int whole = parts_of<T> == 1 && Pieces <= 2 ? 64 * Pieces : 0;
  const auto kernel = call.head_size == whole ? attend<T, Pieces, whole> : attend<T, Pieces, 0>;
  launch("tree_attention", kernel, dim3(tiles, heads, (splits + together - 1) / together), threads,
         Tile::bytes < T, pipelined<T, Pieces> ? 2 : 1 > (call.head_size), stream, call, splits, together,
         workspace);
}

template <class T>
void launch_attend(const AttentionCall& call, int splits, float* workspace, Stream stream) {
  if (call.head_size <= 64) return launch_attend<T, 1>(call, splits, workspace, stream);
  if (call.head_size <= 128) return launch_attend<T, 2>(call, splits, workspace, stream);
  launch_attend<T, 4>(call, splits, workspace, stream);
}

}  // namespace

int64_t attention_workspace(const AttentionCall& call, int64_t longest) {
  const int splits = splits_of(static_cast<int>(longest));
  return splits == 1 ? 0 : call.rows * call.query_heads * splits * partial_size(call.head_size);
}

void launch_tree_attention(const AttentionCall& call, int64_t longest, float* workspace, Stream stream) {
  const int splits = splits_of(static_cast<int>(longest));
  with_element(call.cache,
               [&](auto zero) { launch_attend<decltype(zero)>(call, splits, workspace, stream); });
  if (splits == 1) return;
  const int merging = static_cast<int>(call.head_size + warp_size - 1) / warp_size * warp_size;
  launch("tree_attention", merge_partials, dim3(call.rows * call.query_heads), merging, 0, stream, call,
         splits, workspace);
}

}  // namespace clover::kernels::cuda
