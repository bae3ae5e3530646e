#include "kernels/gpu/cuda.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>
#include <map>

#include "kernels/attention/attention_plan.h"
#include "kernels/call_of.h"
#include "kernels/gpu/cuda_stream.h"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/launchers.h"
#include "kernels/linear/linear_plan.h"
#include "kernels/vocabulary/edit_logits_launch.h"

// The CUDA twins: from tensors to launches on the current stream.
namespace clover::kernels::cuda {

static_assert(block_keys == attention_block && split_keys == attention_split);

namespace {

at::Tensor scratch(const at::Tensor& beside, int64_t bytes) {
  return at::empty({bytes}, beside.options().dtype(at::kByte));
}

/// Zeros between one product and the next, for those of one stream.  Made by the first that needs them, which
/// no graph records; they stay until the driver is gone, and so are never freed.
unsigned* arrived_on(at::Device device) {
  static auto& known = *new std::map<c10::DeviceIndex, at::Tensor>;
  at::Tensor& counts = known[device.index()];
  if (!counts.defined()) counts = at::zeros({most_split_tiles}, at::TensorOptions(at::kInt).device(device));
  return reinterpret_cast<unsigned*>(counts.mutable_data_ptr<int32_t>());
}

/// `call` is that of `input`; more rows than the product norms itself are normed for it.
void run(LinearCall call, const LinearInput& input, const PackedWeight& weight) {
  GpuRoom room = gpu_room();
  room.clusters = uses_warpgroup_products(input.x.device());
  at::Tensor x = input.x;
  if (input.norm.defined() && !norms_rows(call)) {
    x = at::empty(x.sizes(), x.options().dtype(weight.dtype()));
    rms_norm(input.x, {}, {}, input.norm, input.eps, x);
    call.x = x.const_data_ptr();
    call.norm = nullptr;
  }
  linear_by(linear_plan(call, room), call, x);
}

/// In how many goes the rows of a call are taken, so that their partial results have room.
int64_t goes_of(const AttentionCall& call) {
  return std::clamp<int64_t>(
      (attention_workspace(call) + most_attention_workspace - 1) / most_attention_workspace, 1, call.rows);
}

at::Tensor plan_of(const AttentionCall& call, const at::Tensor& beside) {
  at::Tensor plan = at::empty({attention_plan_words(call)}, beside.options().dtype(at::kInt));
  launch_plan_attention(call, plan.mutable_data_ptr<int32_t>(), current_stream(beside));
  return plan;
}

}  // namespace

void linear_by(const LinearPlan& plan, const LinearCall& call, const at::Tensor& x) {
  const int64_t floats = linear_workspace(call, plan);
  if (floats == 0) return launch_linear(call, plan, nullptr, nullptr, current_stream(x));
  at::Tensor workspace = at::empty({floats}, x.options().dtype(at::kFloat));
  launch_linear(call, plan, workspace.mutable_data_ptr<float>(), arrived_on(x.device()), current_stream(x));
}

void launch_failed(const char* name, const char* reason) {
  TORCH_CHECK(false, name, ": the CUDA kernel could not be started: ", reason, ".");
}

void linear(const LinearInput& x, const PackedWeight& weight, const at::Tensor& bias, at::Tensor& y,
            bool accumulate) {
  run(call_of(x, weight, bias, y, accumulate), x, weight);
}

at::Tensor linear_arg_max(const LinearInput& x, const PackedWeight& weight) {
  const int64_t rows = x.x.size(0), panels = panels_of(weight.outputs());
  at::Tensor indices = at::empty({rows}, x.x.options().dtype(at::kLong));
  if (rows == 0) return indices;
  at::Tensor keys = at::empty({rows, panels}, indices.options());
  const LinearCall call = best_call_of(x, weight, keys);
  run(call, x, weight);
  launch_best_key(call.best, rows, panels, indices.mutable_data_ptr<int64_t>(), current_stream(indices));
  return indices;
}

void linear_silu_mul(const LinearInput& x, const PackedWeight& gate_up, at::Tensor& out) {
  run(call_of(x, gate_up, out), x, gate_up);
}

void linear_rope_and_store(const LinearInput& x, const QkvWeight& qkv, const at::Tensor& cos,
                           const at::Tensor& sin, const at::Tensor& slots, at::Tensor& q, at::Tensor& k,
                           at::Tensor& v) {
  run(call_of(x, qkv, cos, sin, slots, q, k, v), x, qkv.matrix);
}

void rows(const PackedWeight& weight, const at::Tensor& ids, at::Tensor& dense) {
  if (ids.size(0) == 0) return;
  launch_gather_rows(weight.panels().const_data_ptr(), ids.const_data_ptr<int64_t>(), ids.size(0),
                     weight.inputs(), element_of(weight.dtype()), dense.mutable_data_ptr(),
                     current_stream(ids));
}

at::Tensor plan_attention(const AttentionRows& rows, int64_t query_heads, const at::Tensor& k) {
  const AttentionCall call = call_of(rows, query_heads, k);
  return goes_of(call) == 1 ? plan_of(call, k) : at::Tensor();
}

void tree_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionRows& rows,
                    double scale, at::Tensor& out) {
  const AttentionCall call = call_of(q, k, v, rows, scale, out);
  TORCH_CHECK(call.head_size <= largest_head, "tree_attention: the head size is ", call.head_size,
              ", expected at most ", largest_head, " on a GPU.");
  TORCH_CHECK(k.numel() / 8 <= std::numeric_limits<int32_t>::max(), "tree_attention: a layer's keys are ",
              k.numel(), " numbers, expected fewer than 2^34 on a GPU; lower --kv-memory.");
  const int64_t goes = goes_of(call);
  // In even parts: a small one takes as long as its longest path does.
  const int64_t at_once = (call.rows + goes - 1) / goes;
  const bool planned = rows.plan.defined() && goes == 1;
  TORCH_CHECK(!planned || rows.plan.numel() == attention_plan_words(call),
              "tree_attention: the plan was made for other rows, heads or pages.");
  for (int64_t first = 0; first < call.rows; first += at_once) {
    const AttentionCall some = rows_of(call, first, std::min(at_once, call.rows - first));
    at::Tensor plan = planned ? rows.plan : plan_of(some, q);
    at::Tensor workspace = at::empty({attention_workspace(some)}, q.options());
    launch_tree_attention(some, plan.mutable_data_ptr<int32_t>(), workspace.mutable_data_ptr<float>(),
                          current_stream(q));
  }
}

void move_rows(at::Tensor& cache, const at::Tensor& moves) {
  const MoveCall call = call_of(cache, moves);
  TORCH_CHECK(call.row_bytes % 16 == 0, "move_rows: a head's row takes ", call.row_bytes,
              " bytes, expected a multiple of 16 on a GPU.");
  launch_move_rows(call, current_stream(cache));
}

namespace {

NormCall norm_call(const at::Tensor& rows, const at::Tensor& weight, double eps, at::Tensor& out) {
  return {.x = nullptr,
          .chosen = rows.defined() ? rows.const_data_ptr<int64_t>() : nullptr,
          .added = nullptr,
          .weight = weight.const_data_ptr<float>(),
          .eps = static_cast<float>(eps),
          .rows = out.size(0),
          .width = out.size(1),
          .out = out.mutable_data_ptr(),
          .element = element_of(out.scalar_type())};
}

}  // namespace

void rms_norm(const at::Tensor& x, const at::Tensor& rows, const at::Tensor& a, const at::Tensor& weight,
              double eps, at::Tensor& out) {
  NormCall call = norm_call(rows, weight, eps, out);
  call.x = x.const_data_ptr<float>();
  if (a.defined()) call.added = a.const_data_ptr<float>();
  launch_rms_norm(call, current_stream(x));
}

void rms_norm_of(const PackedWeight& x, const at::Tensor& rows, const at::Tensor& weight, double eps,
                 at::Tensor& out) {
  launch_rms_norm_of_panels(x.panels().const_data_ptr(), element_of(x.dtype()),
                            norm_call(rows, weight, eps, out), current_stream(rows));
}

void add_silu_(at::Tensor& z, const at::Tensor& a) {
  launch_add_silu(z.mutable_data_ptr<float>(), a.const_data_ptr<float>(), z.numel(), current_stream(z));
}

void add_gated(const at::Tensor& s, const at::Tensor& rows, const at::Tensor& q, const KeyValues& kv,
               int64_t groups, double eps, GateActivation activation, at::Tensor& out, at::Tensor& rounded) {
  launch_add_gated({.s = s.const_data_ptr<float>(),
                    .chosen = rows.defined() ? rows.const_data_ptr<int64_t>() : nullptr,
                    .q = q.const_data_ptr<float>(),
                    .kv = kv.of.const_data_ptr(),
                    .kv_rows = kv.rows.defined() ? kv.rows.const_data_ptr<int64_t>() : nullptr,
                    .rows = out.size(0),
                    .width = out.size(1),
                    .groups = groups,
                    .eps = static_cast<float>(eps),
                    .silu = activation == GateActivation::silu,
                    .out = out.mutable_data_ptr<float>(),
                    .rounded = rounded.mutable_data_ptr(),
                    .element = element_of(rounded.scalar_type())},
                   current_stream(s));
}

std::tuple<at::Tensor, at::Tensor> top_k(const at::Tensor& logits, int64_t k) {
  const int64_t rows = logits.size(0);
  at::Tensor values = at::empty({rows, k}, logits.options()),
             indices = at::empty({rows, k}, logits.options().dtype(at::kLong));
  if (rows == 0) return {values, indices};
  at::Tensor workspace = scratch(logits, top_k_workspace(rows, logits.size(1), k));
  launch_top_k(logits.const_data_ptr<float>(), rows, logits.size(1), k, workspace.mutable_data_ptr(),
               values.mutable_data_ptr<float>(), indices.mutable_data_ptr<int64_t>(), current_stream(logits));
  return {values, indices};
}

at::Tensor arg_max(const at::Tensor& logits) {
  const int64_t rows = logits.size(0), width = logits.size(1);
  at::Tensor indices = at::empty({rows}, logits.options().dtype(at::kLong));
  if (rows == 0) return indices;
  at::Tensor workspace = scratch(logits, top_k_workspace(rows, width, 1));
  launch_arg_max(logits.const_data_ptr<float>(), rows, width, workspace.mutable_data_ptr(),
                 indices.mutable_data_ptr<int64_t>(), current_stream(logits));
  return indices;
}

at::Tensor log_sum_exp(const at::Tensor& logits) {
  const int64_t rows = logits.size(0), width = logits.size(1);
  at::Tensor out = at::empty({rows}, logits.options());
  if (rows == 0) return out;
  at::Tensor workspace = scratch(logits, log_sum_exp_workspace(rows, width));
  launch_log_sum_exp(logits.const_data_ptr<float>(), rows, width, workspace.mutable_data_ptr(),
                     out.mutable_data_ptr<float>(), current_stream(logits));
  return out;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> top_k_and_log_sum(const at::Tensor& logits, int64_t k,
                                                                 const at::Tensor& names) {
  const int64_t rows = logits.size(0), width = logits.size(1);
  at::Tensor values = at::empty({rows, k}, logits.options()), log_sums = at::empty({rows}, logits.options()),
             indices = at::empty({rows, k}, logits.options().dtype(at::kLong));
  if (rows == 0) return {values, indices, log_sums};
  at::Tensor workspace =
      scratch(logits, top_k_workspace(rows, width, k) + log_sum_exp_workspace(rows, width));
  launch_top_k_and_log_sum(logits.const_data_ptr<float>(), rows, width, k,
                           names.defined() ? names.const_data_ptr<int64_t>() : nullptr,
                           workspace.mutable_data_ptr(), values.mutable_data_ptr<float>(),
                           indices.mutable_data_ptr<int64_t>(), log_sums.mutable_data_ptr<float>(),
                           current_stream(logits));
  return {values, indices, log_sums};
}

at::Tensor sample(const at::Tensor& logits, const at::Tensor& rules) {
  at::Tensor tokens = at::empty({logits.size(0)}, logits.options().dtype(at::kLong));
  if (logits.size(0) == 0) return tokens;
  launch_sample(logits.const_data_ptr<float>(), rules.const_data_ptr<double>(), logits.size(0),
                logits.size(1), tokens.mutable_data_ptr<int64_t>(), current_stream(logits));
  return tokens;
}

void edit_logits(at::Tensor& logits, const at::Tensor& edits, const at::Tensor& rows) {
  at::Tensor held = at::empty({edits.size(0)}, logits.options());
  launch_edit_logits(logits.mutable_data_ptr<float>(), logits.size(1), edits.const_data_ptr(),
                     rows.const_data_ptr(), rows.size(0), held.mutable_data_ptr<float>(),
                     current_stream(logits));
}

void grow_level(const at::Tensor& logits, const at::Tensor& ids, const at::Tensor& log_sums,
                const LevelRule& rule, int64_t most_live, GrowingTrees& trees) {
  launch_grow_level(call_of(logits, ids, log_sums, rule, most_live, trees), current_stream(logits));
}

void follow_trees(const JudgedTrees& judged, FollowedTrees& followed) {
  launch_follow_trees(call_of(judged, followed), current_stream(judged.tokens));
}

}  // namespace clover::kernels::cuda
