// EAGLE (arXiv 2401.15077; docs/drafters/eagle.md): one decoder layer predicts the target's next feature, and
// the target's LM head turns that into a guess.
//
//   g_t = fc([e(x_{t+1}); h_t])      e(x): input embedding of x; h_t: the target's post-norm feature at row t
//   h'_{t+1} = Layer(g)_t            a decoder layer without input norm (eagle_layer.h)
//   guess = LM head . h'_{t+1}
//
// The guess is then a row of its own: g = fc([e(guess); h'_{t+1}]).
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
        layer_config_(*spec.target.config, "eagle", spec.settings, /*writes_guesses=*/true) {
    spec.settings.at("heads").get_to(head_count_);
    const TargetConfig& config = layer_config_.config;
    fc_ = register_module("fc", std::make_shared<Linear>(config.hidden, 2 * config.hidden,
                                                         spec.settings.at("fc_bias").get<bool>()));
    layer_ =
        register_module("decoder", std::make_shared<EagleLayer>(config, *target_.last_layer, initial_form()));
    // Initially fc passes the feature on to the layer and ignores the token, and the layer passes it on.
    const at::NoGradGuard no_grad;
    fc_->weight.narrow(1, config.hidden, config.hidden).copy_(at::eye(config.hidden));
  }

  std::string kind() const override { return "eagle"; }
  FeatureTaps taps() const override { return {.post_norm = true}; }
  int64_t max_depth() const override { return max_guess_depth; }
  int64_t trained_depth() const override { return head_count_; }
  int64_t kv_layers() const override { return 1; }
  bool writes_guesses() const override { return true; }
  const Rope* own_rope() const override { return layer_config_.own_rope(); }

  DraftState prime(const Features& features, const at::Tensor& next_ids, std::span<const Segment> segments,
                   const at::Tensor& frontier, DraftKv* kv) override {
    const at::Tensor x = fuse(next_ids, features.post_norm.to(at::kFloat));
    return layer_->prime(x, x, segments, frontier, kv, training_dtype_);
  }

  at::Tensor head_input(const DraftState& state) override { return state.hidden; }

  DraftState extend(const DraftState& state, const at::Tensor& parents, const at::Tensor& ids,
                    DraftKv* kv) override {
    const at::Tensor x = fuse(ids, state.hidden.index_select(0, parents));
    return layer_->extend(state, parents, x, x, kv, training_dtype_);
  }

 private:
  /// The layer reads h, which has the scale of the target's final norm, where the target's last layer reads
  /// what its own input norm has scaled.  Its outputs have the scale of the residual stream, not of h, so
  /// that a copy of them would add far too much: they begin as zeros.
  BlockForm initial_form() const {
    const at::Tensor final_norm = target_.final_norm->cpu(),
                     input_norm = target_.last_layer->input_norm.cpu();
    BlockForm form;
    form.zero_outputs = true;
    form.input_scale = at::where(final_norm.abs() > 1e-6, input_norm.to(at::kFloat) / final_norm, 0);
    return form;
  }

  /// fc([e(x); h]): tokens i64 [R], features fp32 [R, H] -> fp32 [R, H].
  at::Tensor fuse(const at::Tensor& tokens, const at::Tensor& features) const {
    const at::Tensor token = input_embedding(tokens);
    return fc_->forward(at::cat({token, features}, 1), training_dtype_);
  }

  OwnLayerConfig layer_config_;
  int64_t head_count_;
  std::shared_ptr<Linear> fc_;
  std::shared_ptr<EagleLayer> layer_;
};

}  // namespace

DrafterKind eagle_drafter() {
  return {"eagle",
          [](const DrafterSpec& spec) { return std::make_shared<Eagle>(spec); },
          {heads_setting(5),
           Setting::boolean("fc_bias", true, "whether the product of token and feature has a bias"),
           mlp_width_setting(), norm_eps_setting(), rope_theta_setting()}};
}

}  // namespace clover::model
