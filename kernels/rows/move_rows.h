#pragma once

#include "kernels/op/call.h"

namespace clover::kernels {

/// In each part p of a cache, slot moves[1, i] gets all heads of slot moves[0, i], for all i in order.
///   cache  [P, pages, H, page_size, d] bf16|fp16|fp32 contiguous, written in place; slot s is row
///          s % page_size of page s / page_size
///   moves  i64 [3, N] on the cache's device: from (-1: nothing moves), to, group; nobody checks them
/// Moves of one group stand together; a slot that is written to is read by no later move of its group and by
/// no other group, so that groups may run side by side.  On a GPU a head's d elements are a multiple of 16
/// bytes.
void move_rows(at::Tensor& cache, const at::Tensor& moves);

struct MoveCall {
  void* cache;  // [parts, pages, kv_heads, page_size, row_bytes]
  int64_t parts, pages, kv_heads, page_size, row_bytes;
  const int64_t* moves;  // [3, count]
  int64_t count;
};
void run_on_cpu(const MoveCall& call);
CLOVER_GPU_KERNEL void run_on_gpu(const MoveCall& call, const GpuContext& context);

}  // namespace clover::kernels
