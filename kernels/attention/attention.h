#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/attention/attention_call.h"

namespace clover::kernels {

/// Where each of R query rows finds its keys in a paged cache.  There is no attention mask: each row names
/// the cache slots of its path, which are those of its ancestors and of itself.  Row r attends to logical
/// positions 0 .. length-1 of its path, in that order.  The first contiguous[r] positions are in slots 0 ..
/// contiguous[r]-1 of its sequence.  The others (tree ancestors, and the row itself) are in slots
/// path[path_begin[r] .. path_begin[r+1]).  Slot s of sequence b is row s % page_size of page
/// page_table[b, s / page_size].
struct AttentionRows {
  at::Tensor sequence;    // i32 [R], row of page_table
  at::Tensor contiguous;  // i32 [R]
  at::Tensor path_begin;  // i32 [R + 1]
  at::Tensor path;        // i32 [path_begin[R]]
  at::Tensor page_table;  // i32 [B, pages of the longest sequence]
  at::Tensor plan{};      // result of plan_attention; undefined: each call makes a plan
};

/// Makes AttentionRows::plan: which thread blocks of a GPU work on which keys.  One plan serves all layers of
/// a pass, that is, all calls of tree_attention with these rows, `query_heads` and caches of k's shape and
/// dtype. Undefined on the CPU, and for calls of so many rows that a GPU takes them in several portions.
at::Tensor plan_attention(const AttentionRows& rows, int64_t query_heads, const at::Tensor& k);

/// out[r, h, :] = softmax(scale * q[r, h] . K) V over the row's path, with grouped-query attention (Hq is a
/// multiple of Hkv).
///   q fp32 [R, Hq, d]; k, v [pages, Hkv, page_size, d] bf16|fp16|fp32; out [R, Hq * d] bf16|fp16|fp32
/// Keys are taken in blocks of `attention_block` logical positions, aligned to position 0; the blocks of
/// `attention_split` positions (four times as many in sm_90's kernel) are merged in order by online softmax
/// into a partial result, and partial results are merged in order.  So a row's result has the same bits for
/// any tree, batch, page layout, prefill chunk or thread count. A row with an empty path yields zeros.  On a
/// GPU all numbers in k and v must be finite, even in slots that hold no key.
void tree_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionRows& rows,
                    double scale, at::Tensor& out);

/// c10::Error if k and v are not the keys and values of one paged cache.
void check_cache(const char* function, const at::Tensor& k, const at::Tensor& v, at::Device device);

}  // namespace clover::kernels
