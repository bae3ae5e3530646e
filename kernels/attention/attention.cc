#include "kernels/attention/attention.h"

#include <ATen/ops/empty.h>

#include <limits>

#include "kernels/attention/attention_plan.h"
#include "kernels/op/check.h"
#include "kernels/op/run.h"

namespace clover::kernels {
namespace {

void check_rows(const AttentionRows& rows, int64_t count, at::Device device) {
  check_tensor("tree_attention", "sequence", rows.sequence, {count}, at::kInt, device);
  check_tensor("tree_attention", "contiguous", rows.contiguous, {count}, at::kInt, device);
  check_tensor("tree_attention", "path_begin", rows.path_begin, {count + 1}, at::kInt, device);
  check_tensor("tree_attention", "path", rows.path, {-1}, at::kInt, device);
  check_tensor("tree_attention", "page_table", rows.page_table, {-1, -1}, at::kInt, device);
}

/// The call without q, k, v, out, result and scale.
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

void check_for_gpu(const AttentionCall& call, const at::Tensor& k) {
  TORCH_CHECK(call.head_size <= cuda::max_gpu_head_size, "tree_attention: the head size is ", call.head_size,
              ", expected at most ", cuda::max_gpu_head_size, " on a GPU.");
  TORCH_CHECK(k.numel() / 8 <= std::numeric_limits<int32_t>::max(), "tree_attention: a layer's keys are ",
              k.numel(), " numbers, expected fewer than 2^34 on a GPU; lower --kv-memory.");
}

/// The plan of `rows`, or null where the call's rows are taken in several portions.
int32_t* plan_for(const AttentionCall& call, const at::Tensor& plan) {
  const int64_t words = attention_plan_words(call);
  if (words == 0) return nullptr;
  TORCH_CHECK(plan.numel() == words, "tree_attention: the plan was made for other rows, heads or pages.");
  return plan.mutable_data_ptr<int32_t>();
}

}  // namespace

void check_cache(const char* function, const at::Tensor& k, const at::Tensor& v, at::Device device) {
  check_tensor(function, "k", k, {-1, -1, -1, -1}, std::nullopt, device);
  check_tensor(function, "v", v, k.sizes(), k.scalar_type(), device);
  TORCH_CHECK(k.size(1) >= 1 && k.size(2) >= 1, function, ": k has shape ", k.sizes(),
              ", expected at least one head and one row a page.");
  TORCH_CHECK(k.size(3) >= 8 && k.size(3) <= max_head_size && k.size(3) % 8 == 0, function,
              ": the head size is ", k.size(3), ", expected a multiple of 8 from 8 to ", max_head_size, ".");
}

at::Tensor plan_attention(const AttentionRows& rows, int64_t query_heads, const at::Tensor& k) {
  if (!on_gpu("plan_attention", k) || rows.sequence.size(0) == 0) return {};
  check_cache("plan_attention", k, k, k.device());
  check_rows(rows, rows.sequence.size(0), k.device());
  const GpuContext context("plan_attention", k);
  const AttentionCall call = call_of(rows, query_heads, k);
  const int64_t words = attention_plan_words(call);
  if (words == 0) return {};
  at::Tensor plan = at::empty({words}, k.options().dtype(at::kInt));
  make_attention_plan(call, plan.mutable_data_ptr<int32_t>(), context);
  return plan;
}

void tree_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionRows& rows,
                    double scale, at::Tensor& out) {
  const char* const op = "tree_attention";
  const at::Device device = device_of(op, q);
  check_cache(op, k, v, device);
  check_tensor(op, "q", q, {-1, -1, k.size(3)}, at::kFloat, device);
  TORCH_CHECK(q.size(1) >= 1 && q.size(1) % k.size(1) == 0, op, ": ", q.size(1),
              " query heads are not a multiple of ", k.size(1), " key heads.");
  check_tensor(op, "out", out, {q.size(0), q.size(1) * q.size(2)}, std::nullopt, device);
  check_rows(rows, q.size(0), device);
  if (q.size(0) == 0) return;
  AttentionCall call = call_of(rows, q.size(1), k);
  call.q = q.const_data_ptr<float>();
  call.k = k.const_data_ptr();
  call.v = v.const_data_ptr();
  call.out = out.mutable_data_ptr();
  call.result = element_of(out.scalar_type());
  call.scale = static_cast<float>(scale);
  if (!device.is_cpu()) {
    check_for_gpu(call, k);
    if (rows.plan.defined()) call.plan = plan_for(call, rows.plan);
  }
  run(op, q, call);
}

}  // namespace clover::kernels
