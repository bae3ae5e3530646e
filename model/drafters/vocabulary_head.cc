#include "model/drafters/vocabulary_head.h"

#include <ATen/ops/zeros.h>

#include "model/drafters/layers.h"

namespace clover::model {

VocabularyHead::VocabularyHead(const DrafterSpec& spec, const at::Tensor& initial, bool with_bias) {
  head_.outputs = initial.size(0);
  head_.dense = register_parameter("weight", initial.detach().to(at::kCPU, at::kFloat).clone(),
                                   root_mean_square(initial));
  if (with_bias) head_.dense_bias = register_parameter("bias", at::zeros({initial.size(0)}));
  if (spec.token_map.defined()) head_.token_map = spec.token_map.to(spec.target.head->device());
}

void VocabularyHead::pack(at::ScalarType dtype) {
  const at::Device device = head_.dense.device();
  head_.packed = kernels::PackedWeight::pack({head_.dense.detach().cpu().to(dtype)}).to(device);
  if (head_.dense_bias.defined()) head_.bias = rounded_vector(head_.dense_bias, dtype);
}

void VocabularyHead::unpack() {
  head_.packed = {};
  head_.bias = at::Tensor();
}

at::Tensor lm_head_rows(const TargetView& target, const at::Tensor& token_map) {
  if (!token_map.defined()) return target.head->unpack().cpu().to(at::kFloat);
  return target.head->rows(token_map.to(target.head->device())).cpu().to(at::kFloat);
}

std::vector<std::shared_ptr<VocabularyHead>> make_vocabulary_heads(const DrafterSpec& spec, int64_t count,
                                                                   bool with_bias) {
  const at::Tensor initial = lm_head_rows(spec.target, spec.token_map);
  std::vector<std::shared_ptr<VocabularyHead>> heads;
  for (int64_t i = 0; i < count; ++i)
    heads.push_back(std::make_shared<VocabularyHead>(spec, initial, with_bias));
  return heads;
}

}  // namespace clover::model
