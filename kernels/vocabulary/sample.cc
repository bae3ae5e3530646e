#include "kernels/vocabulary/sample.h"

#include "kernels/check.h"
#include "kernels/cpu.h"
#include "kernels/gpu/cuda.h"

namespace clover::kernels {

at::Tensor sample(const at::Tensor& logits, const at::Tensor& rules) {
  const bool cuda = on_cuda("sample", logits);
  check_tensor("sample", "logits", logits, {-1, -1}, at::kFloat, logits.device());
  check_tensor("sample", "rules", rules, {logits.size(0), 5}, at::kDouble, logits.device());
  TORCH_CHECK(logits.size(1) >= 1 && logits.size(1) <= most_sampled, "sample: the vocabulary has ",
              logits.size(1), " tokens, expected 1 to ", most_sampled, ".");
  return (cuda ? cuda::sample : cpu::sample)(logits, rules);
}

}  // namespace clover::kernels
