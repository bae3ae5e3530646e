// Medusa (docs/drafters/medusa.md, shared-head variant): head i is one residual block on the target's
// post-norm hidden state, then the target's LM head.  Heads see no guessed token, so a depth has one table
// for all its nodes.
#include <ATen/ATen.h>

#include "model/drafters/factory.h"
#include "model/drafters/layers.h"

namespace clover::model {
namespace {

class Medusa final : public Drafter {
 public:
  explicit Medusa(const DrafterSpec& spec) : Drafter(spec.target, spec.token_map, spec.trainable) {
    SettingsReader reader("medusa", spec.settings);
    const int64_t count = reader.integer("heads", 3, 1, 16);
    reader.finish();
    for (int64_t i = 0; i < count; ++i) {
      heads_.push_back(register_module("head" + std::to_string(i),
                                       std::make_shared<ResBlock>(spec.target.config->hidden)));
    }
  }

  std::string kind() const override { return "medusa"; }
  FeatureTaps features() const override { return {.post_norm = true}; }
  int64_t max_depth() const override { return static_cast<int64_t>(heads_.size()); }
  bool regressive() const override { return false; }
  nlohmann::json settings() const override { return {{"heads", max_depth()}}; }

  DraftState prime(const Features& features, const at::Tensor& /*next_ids*/,
                   std::span<const Segment> /*segments*/, const at::Tensor& frontier,
                   DraftKv* /*kv*/) override {
    return {features.post_norm.index_select(0, frontier).to(at::kFloat), 0};
  }

  at::Tensor output(const DraftState& state) override {
    return heads_[state.depth]->forward(state.hidden, training_dtype_);
  }

  DraftState extend(const DraftState& state, const at::Tensor& parents, const at::Tensor& /*ids*/,
                    DraftKv* /*kv*/) override {
    return {state.hidden.index_select(0, parents), state.depth + 1};
  }

 private:
  void pack(at::ScalarType dtype) override {
    for (const auto& head : heads_) head->pack(dtype);
  }
  void unpack() override {
    for (const auto& head : heads_) head->unpack();
  }

  std::vector<std::shared_ptr<ResBlock>> heads_;
};

}  // namespace

std::shared_ptr<Drafter> make_medusa(const DrafterSpec& spec) {
  return std::make_shared<Medusa>(spec);
}

}  // namespace clover::model
