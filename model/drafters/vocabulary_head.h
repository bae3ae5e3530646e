#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "model/drafters/factory.h"
#include "model/drafters/layers.h"

namespace clover::model {

/// A vocabulary product of a drafter's own, trained with its other layers.
class VocabularyHead : public Module {
 public:
  /// `initial` [V', D]: a row for each token of the spec's token map or, without one, of the vocabulary.
  VocabularyHead(const DrafterSpec& spec, const at::Tensor& initial, bool with_bias);

  const OutputHead& head() const { return head_; }
  void pack(at::ScalarType dtype) override;
  void unpack() override;

 private:
  OutputHead head_;
};

/// The rows [V', H] of the target's LM head that guess the tokens of `token_map`, or all, in fp32 on the CPU.
at::Tensor lm_head_rows(const TargetView& target, const at::Tensor& token_map);

/// One for each of `count` heads, all of which begin as these rows.
std::vector<std::shared_ptr<VocabularyHead>> own_vocabularies(const DrafterSpec& spec, int64_t count,
                                                              bool with_bias);

}  // namespace clover::model
