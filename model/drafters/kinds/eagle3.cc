// EAGLE-3 (arXiv 2503.01840; docs/drafters/eagle3.md): like EAGLE, but it reads the residual streams after
// three of the target's layers, has an output head of its own, and is not trained to predict the target's
// features.
//
//   f_t = fc([u^a_t; u^b_t; u^c_t])           u^a_t: the residual stream at row t after layer a of the target
//   y = Layer(f, input [norm_e(e(x_{t+1})); norm_f(f_t)])
//   guess = own head . norm(y_t)
//
// Layer (eagle_layer.h) adds to f; its queries, keys and values read the input.  e(x): input embedding of x.
// The guess is then a row of its own, with y_t in place of f_t and the guess in place of x_{t+1}.
#include "model/drafters/kinds/eagle3.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "model/drafters/eagle_layer.h"
#include "model/drafters/factory.h"
#include "model/drafters/layers.h"
#include "model/drafters/vocabulary_head.h"

namespace clover::model {
namespace {

class Eagle3 final : public Drafter {
 public:
  explicit Eagle3(const DrafterSpec& spec)
      : Drafter(spec.target),
        layer_config_(*spec.target.config, "eagle3", spec.settings, /*writes_guesses=*/true) {
    spec.settings.at("heads").get_to(head_count_);
    spec.settings.at("tap_layers").get_to(taps_);
    spec.settings.at("norm_before_residual").get_to(norm_before_residual_);
    if (taps_.empty()) taps_ = default_tap_layers(layer_config_.config.layers);
    build(layer_config_.config, spec);
  }

  std::string kind() const override { return "eagle3"; }
  FeatureTaps taps() const override { return {.layers = taps_}; }
  int64_t max_depth() const override { return max_guess_depth; }
  int64_t trained_depth() const override { return head_count_; }
  int64_t kv_layers() const override { return 1; }
  bool writes_guesses() const override { return true; }
  const Rope* own_rope() const override { return layer_config_.own_rope(); }
  const OutputHead& head(int64_t /*depth*/) const override { return vocabulary_->head(); }

  DraftState prime(const Features& features, const at::Tensor& next_ids, std::span<const Segment> segments,
                   const at::Tensor& frontier, DraftKv* kv) override {
    const LayerInputs inputs =
        layer_inputs(next_ids, fc_->forward(features.layers.to(at::kFloat), training_dtype_));
    return layer_->prime(inputs.residual, inputs.input, segments, frontier, kv, training_dtype_);
  }

  at::Tensor head_input(const DraftState& state) override { return norm_->forward(state.hidden); }

  DraftState extend(const DraftState& state, const at::Tensor& parents, const at::Tensor& ids,
                    DraftKv* kv) override {
    const LayerInputs inputs = layer_inputs(ids, state.hidden.index_select(0, parents));
    return layer_->extend(state, parents, inputs.residual, inputs.input, kv, training_dtype_);
  }

 private:
  struct LayerInputs {
    at::Tensor residual;  // fp32 [R, H], what the layer adds to
    at::Tensor input;     // [R, 2 H]: normed token embedding and normed feature
  };
  /// What the layer reads for tokens i64 [R] and features fp32 [R, H].
  LayerInputs layer_inputs(const at::Tensor& tokens, const at::Tensor& features) const {
    const at::Tensor token = token_norm_->forward_rows(*target_.embedding, tokens);
    const at::Tensor normed = feature_norm_->forward(features);
    return {norm_before_residual_ ? normed.to(at::kFloat) : features, at::cat({token, normed}, 1)};
  }

  void build(const TargetConfig& config, const DrafterSpec& spec) {
    const int64_t hidden = config.hidden, taps = std::ssize(taps_);
    const auto norm = [&](const char* name, const at::Tensor& initial) {
      return register_module(name, std::make_shared<RmsNorm>(initial, config.norm_eps));
    };
    fc_ = register_module("fc", std::make_shared<Linear>(hidden, taps * hidden, false));
    {
      // Initially f is the stream after the highest tapped layer, which a copy of the target's last layer
      // reads.
      const at::NoGradGuard no_grad;
      fc_->weight.narrow(1, (taps - 1) * hidden, hidden).copy_(at::eye(hidden));
    }
    token_norm_ = norm("input_layernorm", at::ones({hidden}));
    feature_norm_ = norm("hidden_norm", target_.last_layer->input_norm);
    layer_ = register_module("decoder", std::make_shared<EagleLayer>(config, *target_.last_layer,
                                                                     BlockForm{.input_width = 2 * hidden}));
    norm_ = norm("norm", *target_.final_norm);
    vocabulary_ = register_module(
        "vocabulary",
        std::make_shared<VocabularyHead>(spec, lm_head_rows(target_, spec.token_map), /*with_bias=*/false));
  }

  OwnLayerConfig layer_config_;
  int64_t head_count_;
  std::vector<int64_t> taps_;
  bool norm_before_residual_;
  std::shared_ptr<Linear> fc_;
  std::shared_ptr<RmsNorm> token_norm_, feature_norm_, norm_;
  std::shared_ptr<EagleLayer> layer_;
  std::shared_ptr<VocabularyHead> vocabulary_;
};

}  // namespace

std::vector<int64_t> default_tap_layers(int64_t layers) {
  std::vector<int64_t> taps;
  for (const int64_t layer : {std::min<int64_t>(2, layers), layers / 2, layers - 3})
    if (layer > (taps.empty() ? 0 : taps.back())) taps.push_back(layer);
  return taps;
}

DrafterKind eagle3_drafter() {
  return {"eagle3",
          [](const DrafterSpec& spec) { return std::make_shared<Eagle3>(spec); },
          {heads_setting(5),
           Setting::layers(
               "tap_layers", /*excluded_last=*/0,
               "read the residual streams after so many layers of the target; \"\": after 2, half and "
               "all but 3"),
           Setting::boolean("norm_before_residual", false, "the layer adds to the normed feature"),
           mlp_width_setting(), norm_eps_setting(), rope_theta_setting()}};
}

}  // namespace clover::model
