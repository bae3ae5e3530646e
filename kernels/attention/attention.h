#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/attention/attention_call.h"

namespace clover::kernels {

/// Where each of R query rows finds its keys in a paged cache.  There is no attention mask: each row names
/// the slots of its ancestors (on a CPU: span_of in attention_group.h, find_block in attention_rows.h).  Row
/// r attends to logical positions 0 .. length-1 of its own path, in that order: the first contiguous[r] of
/// them sit in slots 0 .. contiguous[r]-1 of its sequence, the rest (the tree ancestors that lie elsewhere,
/// and the row itself) in slots path[path_begin[r] .. path_begin[r+1]). Slot s of sequence b is row s %
/// page_size of page page_table[b, s / page_size].
struct AttentionRows {
  at::Tensor sequence;    // i32 [R], row of page_table
  at::Tensor contiguous;  // i32 [R]
  at::Tensor path_begin;  // i32 [R + 1]
  at::Tensor path;        // i32 [path_begin[R]]
  at::Tensor page_table;  // i32 [B, pages of the longest sequence]
  at::Tensor plan{};      // of plan_attention, or undefined: then each call makes its own
};

/// A GPU's plan of which blocks of threads work on which keys, for calls of tree_attention with these rows,
/// `query_heads` and caches like k. It is made once for all layers of a pass, as AttentionRows::plan.
/// Undefined on the CPU, and where a call takes its rows in several parts.
at::Tensor plan_attention(const AttentionRows& rows, int64_t query_heads, const at::Tensor& k);

/// out[r, h, :] = softmax(scale * q[r, h] . K) V over the row's path, grouped-query heads (Hq a multiple of
/// Hkv).
///   q fp32 [R, Hq, d]; k, v [pages, Hkv, page_size, d] bf16|fp16|fp32; out [R, Hq * d] bf16|fp16|fp32
/// Keys are taken in blocks of `attention_block` logical positions, aligned to position 0, merged in order by
/// a running maximum; every `attention_split` positions (sm_90's own kernel: four times as many) make a
/// partial result, and partial results are merged in order: one row's result is the same bits for any tree,
/// batch, page layout, prefill chunk or thread count. A row with an empty path yields zeros.  On a GPU all of
/// the pages' numbers are finite, those of slots that hold no key, too.
void tree_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionRows& rows,
                    double scale, at::Tensor& out);

/// c10::Error if k and v are not the keys and values of one paged cache.
void check_cache(const char* function, const at::Tensor& k, const at::Tensor& v, at::Device device);

}  // namespace clover::kernels
