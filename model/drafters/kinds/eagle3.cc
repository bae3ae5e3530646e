// EAGLE-3 (arXiv 2503.01840; docs/drafters/eagle3.md): as EAGLE, from the residual streams after three of the
// target's layers, with a vocabulary product of its own and no bond between its states and the target's
// features.
//
//   f_t = fc([u^a_t; u^b_t; u^c_t])                  u^a: the residual stream after layer a
//   y_t = Layer([norm_e(e(x_{t+1})); norm_f(f_t)])   added to f_t; e(x): x's input embedding
//   guess = own head . norm(y_t);                    the next row reads [norm_e(e(guess)); norm_f(y_t)]
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "model/drafters/eagle_layer.h"
#include "model/drafters/factory.h"
#include "model/drafters/layers.h"
#include "model/drafters/vocabulary_head.h"

namespace clover::model {
namespace {

class Eagle3 final : public Drafter {
 public:
  explicit Eagle3(const DrafterSpec& spec)
      : Drafter(spec.target), own_(*spec.target.config, "eagle3", spec.settings, /*writes_guesses=*/true) {
    spec.settings.at("heads").get_to(count_);
    spec.settings.at("tap_layers").get_to(taps_);
    spec.settings.at("norm_before_residual").get_to(normed_residual_);
    if (taps_.empty()) taps_ = default_tap_layers(own_.config.layers);
    build(own_.config, spec);
  }

  std::string kind() const override { return "eagle3"; }
  FeatureTaps taps() const override { return {.layers = taps_}; }
  int64_t max_depth() const override { return deepest_guess; }
  int64_t trained_depth() const override { return count_; }
  int64_t kv_layers() const override { return 1; }
  bool writes_guesses() const override { return true; }
  const Rope* own_rope() const override { return own_.own_rope(); }
  const OutputHead& head(int64_t /*depth*/) const override { return vocabulary_->head(); }

  DraftState prime(const Features& features, const at::Tensor& next_ids, std::span<const Segment> segments,
                   const at::Tensor& frontier, DraftKv* kv) override {
    const Rows rows = read(next_ids, fuse_->forward(features.layers.to(at::kFloat), training_dtype_));
    return layer_->prime(rows.residual, rows.input, segments, frontier, kv, training_dtype_);
  }

  at::Tensor head_input(const DraftState& state) override { return norm_->forward(state.hidden); }

  DraftState extend(const DraftState& state, const at::Tensor& parents, const at::Tensor& ids,
                    DraftKv* kv) override {
    const Rows rows = read(ids, state.hidden.index_select(0, parents));
    return layer_->extend(state, parents, rows.residual, rows.input, kv, training_dtype_);
  }

 private:
  struct Rows {
    at::Tensor residual;  // fp32 [R, H]
    at::Tensor input;     // [R, 2 H]: token, feature
  };
  Rows read(const at::Tensor& tokens, const at::Tensor& features) const {
    const at::Tensor token = token_norm_->forward_rows(*target_.embedding, tokens);
    const at::Tensor normed = feature_norm_->forward(features);
    return {normed_residual_ ? normed.to(at::kFloat) : features, at::cat({token, normed}, 1)};
  }

  void build(const TargetConfig& config, const DrafterSpec& spec) {
    const int64_t hidden = config.hidden, taps = std::ssize(taps_);
    const auto norm = [&](const char* name, const at::Tensor& initial) {
      return register_module(name, std::make_shared<RmsNorm>(initial, config.norm_eps));
    };
    fuse_ = register_module("fc", std::make_shared<Linear>(hidden, taps * hidden, false));
    {
      // Fresh heads continue the highest of the streams with a copy of the target's last layer.
      const at::NoGradGuard no_grad;
      fuse_->weight.narrow(1, (taps - 1) * hidden, hidden).copy_(at::eye(hidden));
    }
    token_norm_ = norm("input_layernorm", at::ones({hidden}));
    feature_norm_ = norm("hidden_norm", target_.last_layer->input_norm);
    layer_ =
        register_module("decoder", std::make_shared<EagleLayer>(config, *target_.last_layer, 2 * hidden));
    norm_ = norm("norm", *target_.final_norm);
    vocabulary_ = register_module(
        "vocabulary",
        std::make_shared<VocabularyHead>(spec, lm_head_rows(target_, spec.token_map), /*with_bias=*/false));
  }

  OwnLayerConfig own_;
  int64_t count_;
  std::vector<int64_t> taps_;
  bool normed_residual_;
  std::shared_ptr<Linear> fuse_;
  std::shared_ptr<RmsNorm> token_norm_, feature_norm_, norm_;
  std::shared_ptr<EagleLayer> layer_;
  std::shared_ptr<VocabularyHead> vocabulary_;
};

}  // namespace

DrafterKind eagle3_drafter() {
  return {
      "eagle3",
      [](const DrafterSpec& spec) { return std::make_shared<Eagle3>(spec); },
      {Setting::integer("heads", 5, 1, deepest_guess, "number of heads: how many tokens ahead are guessed"),
       Setting::layers(
           "tap_layers", /*left_out=*/0,
           "read the residual streams after so many layers of the target; \"\": after 2, half and "
           "all but 3"),
       Setting::boolean("norm_before_residual", false, "the layer adds to the normed feature"),
       mlp_width_setting(), norm_eps_setting(), rope_theta_setting()}};
}

}  // namespace clover::model
