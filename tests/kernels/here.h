#pragma once

#include <ATen/ATen.h>

#include <limits>
#include <tuple>

#include "kernels/attention/attention.h"
#include "kernels/linear/linear.h"
#include "kernels/rows/activation.h"
#include "kernels/rows/rms_norm.h"
#include "kernels/trees/select_nodes.h"
#include "kernels/vocabulary/sample.h"
#include "kernels/vocabulary/top_k.h"
#include "tests/kernels/paths.h"

namespace clover::kernels {

inline constexpr float infinite = std::numeric_limits<float>::infinity();

/// How many heads of queries and of keys and values a layer has, and the size of each.
struct Heads {
  int64_t query, kv, size;

  int64_t outputs() const { return (query + 2 * kv) * size; }
};

}  // namespace clover::kernels

// The ops on CPU tensors, run where the program under test runs them (see paths.h): one test for all twins.
namespace clover::kernels::here {

/// What ops are called with instead: a copy on the GPU, or the argument itself.
at::Tensor place(const at::Tensor& tensor);
PackedWeight place(const PackedWeight& weight);

/// So slow that large cases are left out.
bool emulated();

/// `op` on the placed tensor, whose new contents come back.
template <class Op>
void in_place(at::Tensor& tensor, const Op& op) {
  at::Tensor placed = place(tensor);
  op(placed);
  if (!placed.is_same(tensor)) tensor.copy_(placed);
}
inline at::Tensor place_if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? place(tensor) : tensor;
}

inline LinearInput place(const LinearInput& input) {
  if (!input.norm.defined()) return place(input.x);
  return {place(input.x), place(input.norm), input.eps};
}
inline void linear(const LinearInput& x, const PackedWeight& weight, const at::Tensor& bias, at::Tensor& y,
                   bool accumulate = false) {
  in_place(y, [&](at::Tensor& to) {
    kernels::linear(place(x), weight.defined() ? place(weight) : weight, place_if_defined(bias), to,
                    accumulate);
  });
}
inline at::Tensor linear_arg_max(const LinearInput& x, const PackedWeight& weight) {
  return kernels::linear_arg_max(place(x), place(weight)).cpu();
}
inline void linear_silu_mul(const LinearInput& x, const PackedWeight& gate_up, at::Tensor& out) {
  in_place(out, [&](at::Tensor& to) { kernels::linear_silu_mul(place(x), place(gate_up), to); });
}
inline QkvWeight place(const QkvWeight& qkv) {
  return {place(qkv.matrix), place_if_defined(qkv.bias), place_if_defined(qkv.query_norm),
          place_if_defined(qkv.key_norm), qkv.norm_eps};
}
inline void linear_rope_and_store(const LinearInput& x, const QkvWeight& qkv, const at::Tensor& cos,
                                  const at::Tensor& sin, const at::Tensor& slots, at::Tensor& q,
                                  at::Tensor& k, at::Tensor& v) {
  in_place(q, [&](at::Tensor& to_q) {
    in_place(k, [&](at::Tensor& to_k) {
      in_place(v, [&](at::Tensor& to_v) {
        kernels::linear_rope_and_store(place(x), place(qkv), place(cos), place(sin), place(slots), to_q, to_k,
                                       to_v);
      });
    });
  });
}
inline at::Tensor rows(const PackedWeight& weight, const at::Tensor& ids) {
  return place(weight).rows(place(ids)).cpu();
}
inline void tree_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const AttentionRows& rows, double scale, at::Tensor& out) {
  const AttentionRows placed{place(rows.sequence), place(rows.contiguous), place(rows.path_begin),
                             place(rows.path), place(rows.page_table)};
  in_place(out,
           [&](at::Tensor& to) { kernels::tree_attention(place(q), place(k), place(v), placed, scale, to); });
}
inline void rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, at::Tensor& out) {
  in_place(out, [&](at::Tensor& to) { kernels::rms_norm(place(x), place(weight), eps, to); });
}
inline void add_silu_(at::Tensor& z, const at::Tensor& a) {
  in_place(z, [&](at::Tensor& to) { kernels::add_silu_(to, place(a)); });
}
inline void rms_norm_of(const at::Tensor& x, const at::Tensor& rows, const at::Tensor& weight, double eps,
                        at::Tensor& out) {
  in_place(out, [&](at::Tensor& to) { kernels::rms_norm_of(place(x), place(rows), place(weight), eps, to); });
}
inline void rms_norm_of(const PackedWeight& x, const at::Tensor& rows, const at::Tensor& weight, double eps,
                        at::Tensor& out) {
  in_place(out, [&](at::Tensor& to) { kernels::rms_norm_of(place(x), place(rows), place(weight), eps, to); });
}
inline void silu_rms_norm(const at::Tensor& x, const at::Tensor& a, const at::Tensor& weight, double eps,
                          at::Tensor& out) {
  in_place(out, [&](at::Tensor& to) { kernels::silu_rms_norm(place(x), place(a), place(weight), eps, to); });
}
/// Every row of s, the result in its place; what it rounds to, too.
inline at::Tensor add_gated(at::Tensor& s, const at::Tensor& rows, const at::Tensor& q, const KeyValues& kv,
                            int64_t groups, double eps, at::ScalarType type = at::kBFloat16,
                            GateActivation activation = GateActivation::silu) {
  at::Tensor out = place(at::empty_like(q)), rounded = place(at::empty(q.sizes(), type));
  const KeyValues placed{place(kv.data), kv.rows.defined() ? place(kv.rows) : at::Tensor()};
  kernels::add_gated(place(s), place_if_defined(rows), place(q), placed, groups, eps, activation, out,
                     rounded);
  s = out.cpu();
  return rounded.cpu();
}
inline std::tuple<at::Tensor, at::Tensor, at::Tensor> top_k_and_log_sum(const at::Tensor& logits, int64_t k,
                                                                        const at::Tensor& names = {}) {
  const auto [values, indices, sums] = kernels::top_k_and_log_sum(place(logits), k, place_if_defined(names));
  return {values.cpu(), indices.cpu(), sums.cpu()};
}
inline std::tuple<at::Tensor, at::Tensor> top_k(const at::Tensor& logits, int64_t k) {
  const auto [values, indices] = kernels::top_k(place(logits), k);
  return {values.cpu(), indices.cpu()};
}
inline at::Tensor arg_max(const at::Tensor& logits) {
  return kernels::arg_max(place(logits)).cpu();
}
inline at::Tensor sample(const at::Tensor& logits, const at::Tensor& rules) {
  return kernels::sample(place(logits), place(rules)).cpu();
}
inline void grow_level(const at::Tensor& logits, const at::Tensor& ids, const at::Tensor& log_sums,
                       const LevelRule& rule, int64_t max_live, GrowingTrees& trees) {
  GrowingTrees placed{
      place(trees.ids),  place(trees.parent),    place(trees.score),           place(trees.state),
      place(trees.rows), place(trees.row_count), place_if_defined(trees.plans)};
  kernels::grow_level(place(logits), place(ids), place(log_sums), rule, max_live, placed);
  trees = {placed.ids.cpu(),  placed.parent.cpu(),    placed.score.cpu(), placed.state.cpu(),
           placed.rows.cpu(), placed.row_count.cpu(), trees.plans};
}
/// The trees that remain, with room for `room` nodes each.
inline GrowingTrees select_nodes(const GrowingTrees& grown, const SelectRule& rule, int64_t room) {
  const auto of = [&](int64_t columns, at::ScalarType dtype) {
    return place(at::full({grown.ids.size(0), columns}, -7, dtype));
  };
  GrowingTrees kept;
  kept.ids = of(room, at::kLong), kept.parent = of(room, at::kInt), kept.score = of(room, at::kFloat);
  kept.state = of(tree_state_size, at::kInt);
  GrowingTrees placed;
  placed.ids = place(grown.ids), placed.parent = place(grown.parent), placed.score = place(grown.score);
  placed.state = place(grown.state);
  kernels::select_nodes(placed, rule, kept);
  kept.ids = kept.ids.cpu(), kept.parent = kept.parent.cpu(), kept.score = kept.score.cpu();
  kept.state = kept.state.cpu();
  return kept;
}
inline at::Tensor log_sum_exp(const at::Tensor& logits) {
  return kernels::log_sum_exp(place(logits)).cpu();
}

}  // namespace clover::kernels::here
