#include "kernels/call_of.h"

#include <c10/util/Exception.h>

namespace clover::kernels {

Element element_of(at::ScalarType type) {
  TORCH_CHECK(type == at::kFloat || type == at::kBFloat16 || type == at::kHalf,
              "Kernels take bfloat16, float16 or float32, found ", type, ".");
  return type == at::kFloat ? Element::fp32 : type == at::kBFloat16 ? Element::bf16 : Element::fp16;
}

LinearCall call_of(const LinearInput& input, const PackedWeight& weight) {
  LinearCall call{};
  call.x = input.x.const_data_ptr();
  call.panels = weight.panels().const_data_ptr();
  call.rows = input.x.size(0);
  call.outputs = weight.outputs();
  call.inputs = weight.inputs();
  call.element = element_of(weight.dtype());
  if (input.norm.defined()) {
    call.norm = input.norm.const_data_ptr<float>();
    call.norm_eps = static_cast<float>(input.eps);
  }
  return call;
}

LinearCall call_of(const LinearInput& x, const PackedWeight& weight, const at::Tensor& bias, at::Tensor& y,
                   bool accumulate) {
  LinearCall call = call_of(x, weight);
  call.bias = bias.defined() ? bias.const_data_ptr<float>() : nullptr;
  call.y = y.mutable_data_ptr<float>();
  call.accumulate = accumulate;
  return call;
}

LinearCall call_of(const LinearInput& x, const PackedWeight& gate_up, at::Tensor& out) {
  LinearCall call = call_of(x, gate_up);
  call.epilogue = Epilogue::silu_mul;
  call.product = out.mutable_data_ptr();
  return call;
}

LinearCall best_call_of(const LinearInput& x, const PackedWeight& weight, at::Tensor& keys) {
  LinearCall call = call_of(x, weight);
  call.epilogue = Epilogue::best;
  call.best = reinterpret_cast<uint64_t*>(keys.mutable_data_ptr<int64_t>());
  return call;
}

LinearCall call_of(const LinearInput& x, const QkvWeight& qkv, const at::Tensor& cos, const at::Tensor& sin,
                   const at::Tensor& slots, at::Tensor& q, at::Tensor& k, at::Tensor& v) {
  const auto numbers = [](const at::Tensor& vector) {
    return vector.defined() ? vector.const_data_ptr<float>() : nullptr;
  };
  LinearCall call = call_of(x, qkv.matrix);
  call.bias = numbers(qkv.bias);
  call.epilogue = Epilogue::rope_and_store;
  call.rope = {.cos = cos.const_data_ptr<float>(),
               .sin = sin.const_data_ptr<float>(),
               .slots = slots.const_data_ptr<int64_t>(),
               .q = q.mutable_data_ptr<float>(),
               .k = k.mutable_data_ptr(),
               .v = v.mutable_data_ptr(),
               .query_heads = q.size(1),
               .kv_heads = k.size(1),
               .head_size = k.size(3),
               .page_size = k.size(2),
               .cache = element_of(k.scalar_type()),
               .query_norm = numbers(qkv.query_norm),
               .key_norm = numbers(qkv.key_norm),
               .norm_eps = static_cast<float>(qkv.norm_eps)};
  return call;
}

AttentionCall call_of(const AttentionRows& rows, int64_t query_heads, const at::Tensor& k) {
  AttentionCall call{};
  call.sequence = rows.sequence.const_data_ptr<int32_t>();
  call.contiguous = rows.contiguous.const_data_ptr<int32_t>();
  call.path_begin = rows.path_begin.const_data_ptr<int32_t>();
  call.path = rows.path.const_data_ptr<int32_t>();
  call.page_table = rows.page_table.const_data_ptr<int32_t>();
  call.rows = rows.sequence.size(0);
  call.sequences = rows.page_table.size(0);
  call.query_heads = query_heads;
  call.kv_heads = k.size(1);
  call.head_size = k.size(3);
  call.pages = k.size(0);
  call.page_size = k.size(2);
  call.pages_per_sequence = rows.page_table.size(1);
  call.cache = element_of(k.scalar_type());
  return call;
}

AttentionCall call_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const AttentionRows& rows, double scale, at::Tensor& out) {
  AttentionCall call = call_of(rows, q.size(1), k);
  call.q = q.const_data_ptr<float>();
  call.k = k.const_data_ptr();
  call.v = v.const_data_ptr();
  call.out = out.mutable_data_ptr();
  call.result = element_of(out.scalar_type());
  call.scale = static_cast<float>(scale);
  return call;
}

MoveCall call_of(at::Tensor& cache, const at::Tensor& moves) {
  return {.cache = cache.mutable_data_ptr(),
          .parts = cache.size(0),
          .pages = cache.size(1),
          .kv_heads = cache.size(2),
          .page_size = cache.size(3),
          .row_bytes = cache.size(4) * cache.element_size(),
          .moves = moves.const_data_ptr<int64_t>(),
          .count = moves.size(1)};
}

GrowthCall call_of(const at::Tensor& logits, const at::Tensor& ids, const at::Tensor& log_sums,
                   const LevelRule& rule, int64_t most_live, GrowingTrees& trees) {
  return {.logits = logits.const_data_ptr<float>(),
          .ids = ids.const_data_ptr<int64_t>(),
          .log_sums = log_sums.const_data_ptr<float>(),
          .guesses = logits.size(1),
          .width = rule.width,
          .top_p = rule.top_p,
          .relative_cut = rule.relative_cut,
          .one_row_a_tree = rule.one_row_a_tree,
          .most_live = most_live,
          .trees = trees.ids.size(0),
          .nodes = trees.ids.size(1),
          .capacity = trees.rows.size(1),
          .tree_ids = trees.ids.mutable_data_ptr<int64_t>(),
          .tree_parent = trees.parent.mutable_data_ptr<int32_t>(),
          .tree_joint = trees.joint.mutable_data_ptr<float>(),
          .states = static_cast<TreeState*>(trees.state.mutable_data_ptr()),
          .next_rows = trees.rows.mutable_data_ptr<int64_t>(),
          .row_count = trees.row_count.mutable_data_ptr<int32_t>()};
}

FollowCall call_of(const JudgedTrees& judged, FollowedTrees& followed) {
  return {.tokens = judged.tokens.const_data_ptr<int64_t>(),
          .ids = judged.ids.const_data_ptr<int64_t>(),
          .parents = judged.parents.const_data_ptr<int64_t>(),
          .slots = judged.slots.const_data_ptr<int64_t>(),
          .trees = static_cast<const TreePlace*>(judged.trees.const_data_ptr()),
          .rows = judged.tokens.size(0),
          .count = judged.trees.size(0),
          .moves = followed.moves.mutable_data_ptr<int64_t>(),
          .seen = followed.seen.mutable_data_ptr<int64_t>(),
          .next_ids = followed.next_ids.mutable_data_ptr<int64_t>(),
          .frontier = followed.frontier.mutable_data_ptr<int64_t>()};
}

}  // namespace clover::kernels
