#include "kernels/vocabulary/sample.h"

#include <ATen/ops/empty.h>

#include "kernels/op/check.h"
#include "kernels/op/run.h"

namespace clover::kernels {

at::Tensor sample(const at::Tensor& logits, const at::Tensor& rules) {
  const at::Device device = device_of("sample", logits);
  check_tensor("sample", "logits", logits, {-1, -1}, at::kFloat, device);
  check_tensor("sample", "rules", rules, {logits.size(0), 5}, at::kDouble, device);
  TORCH_CHECK(logits.size(1) >= 1 && logits.size(1) <= max_sampled_vocabulary, "sample: the vocabulary has ",
              logits.size(1), " tokens, expected 1 to ", max_sampled_vocabulary, ".");
  at::Tensor tokens = at::empty({logits.size(0)}, logits.options().dtype(at::kLong));
  if (logits.size(0) == 0) return tokens;
  run("sample", logits,
      SampleCall{.logits = logits.const_data_ptr<float>(),
                 .rules = static_cast<const RowRule*>(rules.const_data_ptr()),
                 .rows = logits.size(0),
                 .width = logits.size(1),
                 .tokens = tokens.mutable_data_ptr<int64_t>()});
  return tokens;
}

}  // namespace clover::kernels
