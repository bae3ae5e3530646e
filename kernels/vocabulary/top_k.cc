#include "kernels/vocabulary/top_k.h"

#include <ATen/Functions.h>

#include "kernels/check.h"
#include "kernels/cpu.h"
#include "kernels/gpu/cuda.h"

namespace clover::kernels {
namespace {

bool check_logits(const char* function, const at::Tensor& logits) {
  const bool cuda = on_cuda(function, logits);
  check_tensor(function, "logits", logits, {-1, -1}, at::kFloat, logits.device());
  TORCH_CHECK(logits.size(1) >= 1, function, ": logits have no columns, expected at least one.");
  return cuda;
}

void check_k(const char* function, int64_t k, const at::Tensor& logits) {
  TORCH_CHECK(k >= 1 && k <= logits.size(1), function, ": k is ", k, ", expected 1 to ", logits.size(1), ".");
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> top_k(const at::Tensor& logits, int64_t k) {
  const bool cuda = check_logits("top_k", logits);
  check_k("top_k", k, logits);
  return (cuda ? cuda::top_k : cpu::top_k)(logits, k);
}

at::Tensor arg_max(const at::Tensor& logits) {
  return (check_logits("arg_max", logits) ? cuda::arg_max : cpu::arg_max)(logits);
}

at::Tensor log_sum_exp(const at::Tensor& logits) {
  return (check_logits("log_sum_exp", logits) ? cuda::log_sum_exp : cpu::log_sum_exp)(logits);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> top_k_and_log_sum(const at::Tensor& logits, int64_t k,
                                                                 const at::Tensor& names) {
  const bool cuda = check_logits("top_k_and_log_sum", logits);
  check_k("top_k_and_log_sum", k, logits);
  if (names.defined())
    check_tensor("top_k_and_log_sum", "names", names, {logits.size(1)}, at::kLong, logits.device());
  if (cuda) return cuda::top_k_and_log_sum(logits, k, names);
  auto [values, indices] = cpu::top_k(logits, k);
  if (names.defined()) indices = names.index_select(0, indices.view(-1)).view(indices.sizes());
  return {values, indices, cpu::log_sum_exp(logits)};
}

}  // namespace clover::kernels
