// Hydra and Hydra++ (arXiv 2402.05109; docs/drafters/hydra.md): like Medusa, but head i also reads the
// guesses of the heads before it.
//
//   f_t = h_t, the target's post-norm feature; with the setting `prefix` (Hydra++) f_t = norm(Layer(h))_t
//   z_i = [f_t; e(x_{t+1}); ..; e(x_{t+1+i})]       e(x): input embedding; x_{t+2} .. are guesses
//   guess i = LM head . blocks_i(R_i z_i + r_i + silu(W_i z_i + w_i))
//
// Layer is a decoder layer (decoder_block.h); blocks_i are residual blocks (layers.h); R_i, W_i are matrices
// and r_i, w_i biases of head i.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "model/drafters/decoder_block.h"
#include "model/drafters/factory.h"
#include "model/drafters/layers.h"
#include "model/drafters/vocabulary_head.h"

namespace clover::model {
namespace {

/// R z + r + silu(W z + w): fp32 [F, K] -> fp32 [F, H].  It begins as the first H elements of z.
class FirstBlock : public Module {
 public:
  FirstBlock(int64_t hidden, int64_t inputs) {
    residual_ = register_module("residual", std::make_shared<Linear>(hidden, inputs, true));
    linear_ = register_module("linear", std::make_shared<Linear>(hidden, inputs, true));
    const at::NoGradGuard no_grad;
    residual_->weight.narrow(1, 0, hidden).copy_(at::eye(hidden));
  }

  at::Tensor forward(const at::Tensor& z, at::ScalarType training_dtype) const {
    return add_silu(residual_->forward(z, training_dtype), linear_->forward(z, training_dtype));
  }

 private:
  std::shared_ptr<Linear> residual_, linear_;
};

class Hydra final : public Drafter {
 public:
  explicit Hydra(const DrafterSpec& spec)
      : Drafter(spec.target), layer_config_(*spec.target.config, "hydra", spec.settings) {
    build_prefix(spec.settings);
    build_heads(spec.settings);
    if (!spec.settings.at("own_heads").get<bool>()) {
      share_lm_head(spec.token_map, spec.trainable);
      return;
    }
    vocabularies_ = make_vocabulary_heads(spec, std::ssize(heads_), /*with_bias=*/true);
    for (size_t i = 0; i < heads_.size(); ++i)
      register_module("vocabulary" + std::to_string(i), vocabularies_[i]);
  }

  std::string kind() const override { return "hydra"; }
  FeatureTaps taps() const override { return {.post_norm = true}; }
  int64_t max_depth() const override { return std::ssize(heads_); }
  int64_t kv_layers() const override { return prefix_ ? 1 : 0; }
  const Rope* own_rope() const override { return prefix_ ? layer_config_.own_rope() : nullptr; }
  const OutputHead& head(int64_t depth) const override {
    return vocabularies_.empty() ? head_ : vocabularies_[depth]->head();
  }

  DraftState prime(const Features& features, const at::Tensor& next_ids, std::span<const Segment> segments,
                   const at::Tensor& frontier, DraftKv* kv) override {
    const at::Tensor feature = apply_prefix(features.post_norm, segments, frontier, kv);
    return {at::cat({feature, input_embedding(next_ids.index_select(0, frontier))}, 1)};
  }

  at::Tensor head_input(const DraftState& state) override {
    const Head& head = heads_[state.depth];
    at::Tensor z = head.first->forward(state.hidden, training_dtype_);
    for (const auto& block : head.blocks) z = block->forward(z, training_dtype_);
    return z;
  }

  DraftState extend(const DraftState& state, const at::Tensor& parents, const at::Tensor& ids,
                    DraftKv* /*kv*/) override {
    return {at::cat({state.hidden.index_select(0, parents), input_embedding(ids)}, 1), state.depth + 1};
  }

 private:
  struct Head {
    std::shared_ptr<FirstBlock> first;
    std::vector<std::shared_ptr<ResBlock>> blocks;
  };

  void build_prefix(const nlohmann::json& settings) {
    if (!settings.at("prefix").get<bool>()) {
      for (const char* prefix_setting : {"rope_theta", "mlp_width"})
        if (settings.at(prefix_setting) != 0)
          refuse_setting("hydra", prefix_setting, settings.at(prefix_setting),
                         "0 without the setting prefix");
      return;
    }
    prefix_ = register_module("prefix",
                              std::make_shared<DecoderBlock>(layer_config_.config, *target_.last_layer,
                                                             BlockForm{.drop_biases_and_head_norms = true}));
    prefix_norm_ = register_module(
        "prefix_norm", std::make_shared<RmsNorm>(*target_.final_norm, layer_config_.config.norm_eps));
  }

  void build_heads(const nlohmann::json& settings) {
    const int64_t hidden = layer_config_.config.hidden;
    heads_.resize(settings.at("heads").get<int64_t>());
    const auto layers = settings.at("layers").get<int64_t>();
    for (int64_t i = 0; i < std::ssize(heads_); ++i) {
      const std::string name = "head" + std::to_string(i);
      heads_[i].first = register_module(name, std::make_shared<FirstBlock>(hidden, (i + 2) * hidden));
      for (int64_t j = 1; j < layers; ++j)
        heads_[i].blocks.push_back(
            register_module(name + "." + std::to_string(j), std::make_shared<ResBlock>(hidden)));
    }
  }

  /// f at the rows `frontier`, fp32 [F, H]; h [R, H].
  at::Tensor apply_prefix(const at::Tensor& h, std::span<const Segment> segments, const at::Tensor& frontier,
                          DraftKv* kv) const {
    if (!prefix_) return h.index_select(0, frontier).to(at::kFloat);
    if (!kv)
      return prefix_norm_->forward(prefix_->forward(h.to(at::kFloat), segments, frontier, training_dtype_));
    at::Tensor x = h.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
    prefix_->forward_in_place(x, kv->placement, *kv->cache, kv->first_layer);
    return prefix_norm_->forward_rows(x, frontier).to(at::kFloat);
  }

  OwnLayerConfig layer_config_;           // of the prefix
  std::shared_ptr<DecoderBlock> prefix_;  // null without `prefix`
  std::shared_ptr<RmsNorm> prefix_norm_;
  std::vector<Head> heads_;
  std::vector<std::shared_ptr<VocabularyHead>>
      vocabularies_;  // one for each head with `own_heads`, else empty
};

}  // namespace

DrafterKind hydra_drafter() {
  return {
      "hydra",
      [](const DrafterSpec& spec) { return std::make_shared<Hydra>(spec); },
      {heads_setting(4), residual_blocks_setting(1),
       Setting::boolean("prefix", false,
                        "a decoder layer reads the text before the heads do (Hydra++'s prefix attention)"),
       Setting::boolean("own_heads", false,
                        "a vocabulary matrix for each head, in place of the target's LM head"),
       mlp_width_setting(), rope_theta_setting()}};
}

}  // namespace clover::model
