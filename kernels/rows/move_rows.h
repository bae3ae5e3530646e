#pragma once

#include "kernels/op/call.h"

namespace clover::kernels {

/// Copies rows of a KV cache: for i = 0, 1, ..., slot moves[1, i] becomes a copy of slot moves[0, i], with
/// all heads and in all P parts of the cache (keys and values of its layers).
///   cache  [P, pages, Hkv, page_size, d] bf16|fp16|fp32 contiguous, written in place; slot s is row
///          s % page_size of page s / page_size
///   moves  i64 [3, N] on the cache's device: source slot (-1: no move), destination slot, group
/// The caller guarantees, unchecked: moves of a group are adjacent; no later move of the same group and no
/// move of another group reads a slot that a move has written.  So groups may run in parallel.  On a GPU the
/// d elements of a head must take a multiple of 16 bytes.
void move_rows(at::Tensor& cache, const at::Tensor& moves);

struct MoveCall {
  void* cache;  // [parts, pages, kv_heads, page_size, row_bytes]
  int64_t parts, pages, kv_heads, page_size;
  int64_t row_bytes;     // of the d elements of a head
  const int64_t* moves;  // [3, count]
  int64_t count;
};
void run_on_cpu(const MoveCall& call);
CLOVER_GPU_KERNEL void run_on_gpu(const MoveCall& call, const GpuContext& context);

}  // namespace clover::kernels
