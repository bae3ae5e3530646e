#include "kernels/top_k.h"

#include "kernels/check.h"
#include "kernels/cpu.h"
#include "kernels/cuda.h"

namespace clover::kernels {
namespace {

bool check_logits(const char* function, const at::Tensor& logits) {
  const bool cuda = on_cuda(function, logits);
  check_tensor(function, "logits", logits, {-1, -1}, at::kFloat, logits.device());
  TORCH_CHECK(logits.size(1) >= 1, function, ": logits have no columns, expected at least one.");
  return cuda;
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> top_k(const at::Tensor& logits, int64_t k) {
  const bool cuda = check_logits("top_k", logits);
  TORCH_CHECK(k >= 1 && k <= logits.size(1), "top_k: k is ", k, ", expected 1 to ", logits.size(1), ".");
  return (cuda ? cuda::top_k : cpu::top_k)(logits, k);
}

at::Tensor arg_max(const at::Tensor& logits) {
  return (check_logits("arg_max", logits) ? cuda::arg_max : cpu::arg_max)(logits);
}

at::Tensor log_sum_exp(const at::Tensor& logits) {
  return (check_logits("log_sum_exp", logits) ? cuda::log_sum_exp : cpu::log_sum_exp)(logits);
}

}  // namespace clover::kernels
