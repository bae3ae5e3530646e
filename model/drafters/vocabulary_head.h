#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "model/drafters/factory.h"
#include "model/drafters/layers.h"

namespace clover::model {

/// An output head of the drafter's own in place of the target's LM head: the product of states [F, D] with a
/// matrix [V', D], trained with the drafter's other layers.
class VocabularyHead : public Module {
 public:
  /// `initial` [V', D]: one row for each token of spec.token_map or, if that is undefined, of the vocabulary.
  VocabularyHead(const DrafterSpec& spec, const at::Tensor& initial, bool with_bias);

  const OutputHead& head() const { return head_; }
  void pack(at::ScalarType dtype) override;
  void unpack() override;

 private:
  OutputHead head_;
};

/// The rows of the target's LM head for the tokens of `token_map`, or all rows if it is undefined: fp32 [V',
/// H] on the CPU.
at::Tensor lm_head_rows(const TargetView& target, const at::Tensor& token_map);

/// A VocabularyHead for each of `count` draft heads.  All begin as lm_head_rows.
std::vector<std::shared_ptr<VocabularyHead>> make_vocabulary_heads(const DrafterSpec& spec, int64_t count,
                                                                   bool with_bias);

}  // namespace clover::model
