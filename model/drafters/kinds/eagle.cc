// EAGLE (arXiv 2401.15077; docs/drafters/eagle.md): one decoder layer guesses the target's next feature,
// which the target's LM head reads.
//
//   g_t = fc([e(x_{t+1}); h_t])      e(x): x's input embedding; h_t: the target's post-norm feature
//   h'_{t+1} = Layer(g)_t            a decoder layer without a norm before its attention
//   guess = LM head . h'_{t+1};      the next row reads [e(guess); h'_{t+1}]
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "model/drafters/eagle_layer.h"
#include "model/drafters/factory.h"
#include "model/drafters/layers.h"

namespace clover::model {
namespace {

class Eagle final : public Drafter {
 public:
  explicit Eagle(const DrafterSpec& spec)
      : Drafter(spec.target, spec.token_map, spec.trainable),
        own_(*spec.target.config, "eagle", spec.settings, /*writes_guesses=*/true) {
    spec.settings.at("heads").get_to(count_);
    const TargetConfig& config = own_.config;
    mix_ = register_module("fc", std::make_shared<Linear>(config.hidden, 2 * config.hidden,
                                                          spec.settings.at("fc_bias").get<bool>()));
    layer_ =
        register_module("decoder", std::make_shared<EagleLayer>(config, *target_.last_layer, config.hidden));
    // Fresh heads pass the feature on to the layer and leave the token out.
    const at::NoGradGuard no_grad;
    mix_->weight.narrow(1, config.hidden, config.hidden).copy_(at::eye(config.hidden));
  }

  std::string kind() const override { return "eagle"; }
  FeatureTaps taps() const override { return {.post_norm = true}; }
  int64_t max_depth() const override { return deepest_guess; }
  int64_t trained_depth() const override { return count_; }
  int64_t kv_layers() const override { return 1; }
  bool writes_guesses() const override { return true; }
  const Rope* own_rope() const override { return own_.own_rope(); }

  DraftState prime(const Features& features, const at::Tensor& next_ids, std::span<const Segment> segments,
                   const at::Tensor& frontier, DraftKv* kv) override {
    const at::Tensor x = mixed(next_ids, features.post_norm.to(at::kFloat));
    return layer_->prime(x, x, segments, frontier, kv, training_dtype_);
  }

  at::Tensor head_input(const DraftState& state) override { return state.hidden; }

  DraftState extend(const DraftState& state, const at::Tensor& parents, const at::Tensor& ids,
                    DraftKv* kv) override {
    const at::Tensor x = mixed(ids, state.hidden.index_select(0, parents));
    return layer_->extend(state, parents, x, x, kv, training_dtype_);
  }

 private:
  /// fc([e(x); h]): tokens i64 [R], features fp32 [R, H] -> fp32 [R, H].
  at::Tensor mixed(const at::Tensor& tokens, const at::Tensor& features) const {
    const at::Tensor token = input_embedding(tokens);
    return mix_->forward(at::cat({token, features}, 1), training_dtype_);
  }

  OwnLayerConfig own_;
  int64_t count_;
  std::shared_ptr<Linear> mix_;
  std::shared_ptr<EagleLayer> layer_;
};

}  // namespace

DrafterKind eagle_drafter() {
  return {
      "eagle",
      [](const DrafterSpec& spec) { return std::make_shared<Eagle>(spec); },
      {Setting::integer("heads", 5, 1, deepest_guess, "number of heads: how many tokens ahead are guessed"),
       Setting::boolean("fc_bias", true, "whether the product of token and feature has a bias"),
       mlp_width_setting(), norm_eps_setting(), rope_theta_setting()}};
}

}  // namespace clover::model
