#include "kernels/vocabulary/top_k.h"

#include <ATen/ops/empty.h>

#include "kernels/op/check.h"
#include "kernels/op/run.h"

namespace clover::kernels {
namespace {

void check_logits(const char* op, const at::Tensor& logits) {
  check_tensor(op, "logits", logits, {-1, -1}, at::kFloat, device_of(op, logits));
  TORCH_CHECK(logits.size(1) >= 1, op, ": logits have no columns, expected at least one.");
}

void check_k(const char* op, int64_t k, const at::Tensor& logits) {
  TORCH_CHECK(k >= 1 && k <= logits.size(1), op, ": k is ", k, ", expected 1 to ", logits.size(1), ".");
}

/// Checks the arguments and allocates `values` and `indices` [R, k], which the call points to.
TopKCall top_k_call(const char* op, const at::Tensor& logits, int64_t k, const at::Tensor& token_map,
                    at::Tensor& values, at::Tensor& indices) {
  check_logits(op, logits);
  check_k(op, k, logits);
  if (token_map.defined())
    check_tensor(op, "token_map", token_map, {logits.size(1)}, at::kLong, logits.device());
  values = at::empty({logits.size(0), k}, logits.options());
  indices = at::empty({logits.size(0), k}, logits.options().dtype(at::kLong));
  return {.logits = logits.const_data_ptr<float>(),
          .rows = logits.size(0),
          .width = logits.size(1),
          .k = k,
          .values = values.mutable_data_ptr<float>(),
          .indices = indices.mutable_data_ptr<int64_t>(),
          .token_map = token_map.defined() ? token_map.const_data_ptr<int64_t>() : nullptr,
          .log_sums = nullptr};
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> top_k(const at::Tensor& logits, int64_t k, const at::Tensor& token_map) {
  at::Tensor values, indices;
  const TopKCall call = top_k_call("top_k", logits, k, token_map, values, indices);
  if (call.rows > 0) run("top_k", logits, call);
  return {values, indices};
}

std::tuple<at::Tensor, at::Tensor> top_k(const at::Tensor& logits, int64_t k) {
  return top_k(logits, k, at::Tensor());
}

at::Tensor arg_max(const at::Tensor& logits) {
  check_logits("arg_max", logits);
  at::Tensor indices = at::empty({logits.size(0)}, logits.options().dtype(at::kLong));
  if (logits.size(0) == 0) return indices;
  run("arg_max", logits,
      ArgMaxCall{.logits = logits.const_data_ptr<float>(),
                 .rows = logits.size(0),
                 .width = logits.size(1),
                 .indices = indices.mutable_data_ptr<int64_t>()});
  return indices;
}

at::Tensor log_sum_exp(const at::Tensor& logits) {
  check_logits("log_sum_exp", logits);
  at::Tensor out = at::empty({logits.size(0)}, logits.options());
  if (logits.size(0) == 0) return out;
  run("log_sum_exp", logits,
      LogSumCall{.logits = logits.const_data_ptr<float>(),
                 .rows = logits.size(0),
                 .width = logits.size(1),
                 .out = out.mutable_data_ptr<float>()});
  return out;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> top_k_and_log_sum(const at::Tensor& logits, int64_t k,
                                                                 const at::Tensor& token_map) {
  const char* const op = "top_k_and_log_sum";
  at::Tensor values, indices;
  TopKCall call = top_k_call(op, logits, k, token_map, values, indices);
  at::Tensor log_sums = at::empty({call.rows}, logits.options());
  call.log_sums = log_sums.mutable_data_ptr<float>();
  if (call.rows > 0) run(op, logits, call);
  return {values, indices, log_sums};
}

}  // namespace clover::kernels
