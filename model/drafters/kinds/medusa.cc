// Medusa (arXiv 2401.10774; docs/drafters/medusa.md): head i applies residual blocks to the target's
// post-norm feature, then the target's LM head or, with the setting `own_heads`, a vocabulary matrix of its
// own.  Heads do not read guesses, so all nodes of one depth have the same guesses.
#include <ATen/ATen.h>

#include "model/drafters/factory.h"
#include "model/drafters/layers.h"
#include "model/drafters/vocabulary_head.h"

namespace clover::model {
namespace {

class Medusa final : public Drafter {
 public:
  explicit Medusa(const DrafterSpec& spec) : Drafter(spec.target) {
    heads_.resize(spec.settings.at("heads").get<int64_t>());
    const auto layers = spec.settings.at("layers").get<int64_t>();
    for (size_t i = 0; i < heads_.size(); ++i) {
      for (int64_t j = 0; j < layers; ++j) {  // "head0", then "head0.1", "head0.2", ..
        const std::string name = "head" + std::to_string(i) + (j > 0 ? "." + std::to_string(j) : "");
        heads_[i].push_back(register_module(name, std::make_shared<ResBlock>(spec.target.config->hidden)));
      }
    }
    if (!spec.settings.at("own_heads").get<bool>()) {
      share_lm_head(spec.token_map, spec.trainable);
      return;
    }
    vocabularies_ = make_vocabulary_heads(spec, std::ssize(heads_), /*with_bias=*/false);
    for (size_t i = 0; i < heads_.size(); ++i)
      register_module("vocabulary" + std::to_string(i), vocabularies_[i]);
  }

  std::string kind() const override { return "medusa"; }
  FeatureTaps taps() const override { return {.post_norm = true}; }
  int64_t max_depth() const override { return std::ssize(heads_); }
  bool autoregressive() const override { return false; }
  const OutputHead& head(int64_t depth) const override {
    return vocabularies_.empty() ? head_ : vocabularies_[depth]->head();
  }

  DraftState prime(const Features& features, const at::Tensor& /*next_ids*/,
                   std::span<const Segment> /*segments*/, const at::Tensor& frontier,
                   DraftKv* /*kv*/) override {
    return {features.post_norm.index_select(0, frontier).to(at::kFloat), 0};
  }

  at::Tensor head_input(const DraftState& state) override {
    at::Tensor z = state.hidden;
    for (const auto& block : heads_[state.depth]) z = block->forward(z, training_dtype_);
    return z;
  }

  DraftState extend(const DraftState& state, const at::Tensor& parents, const at::Tensor& /*ids*/,
                    DraftKv* /*kv*/) override {
    return {state.hidden.index_select(0, parents), state.depth + 1};
  }

 private:
  std::vector<std::vector<std::shared_ptr<ResBlock>>> heads_;  // the blocks of each head
  std::vector<std::shared_ptr<VocabularyHead>>
      vocabularies_;  // one for each head with `own_heads`, else empty
};

}  // namespace

DrafterKind medusa_drafter() {
  return {"medusa",
          [](const DrafterSpec& spec) { return std::make_shared<Medusa>(spec); },
          {heads_setting(3), residual_blocks_setting(1),
           Setting::boolean("own_heads", false,
                            "a vocabulary matrix for each head, in place of the target's LM head")}};
}

}  // namespace clover::model
