// Clover (arXiv 2405.00263; docs/drafters/clover.md): each guess is fed to the state before the next one.
//
//   s = Block(u)                        augmenting block: one causal decoder layer on the pre-norm feature u
//   s_0 = AttentionDecoder(s, x)        x: the token after the row
//   s_i = AttentionDecoder(s_{i-1}, x)  x: guess i - 1
//   guess i = LM head . norm(ResBlock_i(s_i))
//
// The attention decoder (attention_decoder.h) reads the token's row of the LM head.  The augmenting block is
// in decoder_block.h, ResBlock and norms in layers.h.
//
// Settings switch off or replace the parts, as in the paper's ablation; e: the token's row of the LM head:
//
//   regression  attention: the attention decoder (the paper)
//               concat: s_i = s_{i-1} + silu(C_i [norm(s_{i-1}); norm(e)] + c_i), no residual block
//               none: heads read no tokens
//   block       full; attention: without MLP; none
//   rope_theta  base of the block's RoPE; 0: the target's RoPE
//   tap_layers  layers whose residual streams x_1 .. x_n are read, too: Block(u + F norm([x_1; ..; x_n]))
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <optional>

#include "model/drafters/attention_decoder.h"
#include "model/drafters/decoder_block.h"
#include "model/drafters/factory.h"
#include "model/drafters/layers.h"

namespace clover::model {
namespace {

enum class Regression { none, concat, attention };

class Clover final : public Drafter {
 public:
  explicit Clover(const DrafterSpec& spec)
      : Drafter(spec.target, spec.token_map, spec.trainable),
        layer_config_(*spec.target.config, "clover", spec.settings) {
    const TargetConfig& config = *target_.config;
    const nlohmann::json& settings = spec.settings;
    settings.at("heads").get_to(head_count_);
    settings.at("gate_groups").get_to(gate_groups_);
    settings.at("regression").get_to(regression_name_);
    settings.at("block").get_to(block_name_);
    settings.at("tap_layers").get_to(tap_layers_);
    if (config.hidden % gate_groups_ != 0)
      refuse_setting("clover", "gate_groups", gate_groups_,
                     "a divisor of the hidden size " + std::to_string(config.hidden));
    regression_ = regression_name_ == "attention" ? Regression::attention
                  : regression_name_ == "concat"  ? Regression::concat
                                                  : Regression::none;
    if (is_medusa() && !tap_layers_.empty())
      refuse_setting("clover", "tap_layers", tap_layers_, "none where block and regression are \"none\"");
    if (block_name_ == "none" && !layer_config_.rotates_as_target)
      refuse_setting("clover", "rope_theta", settings.at("rope_theta"), "0 where block is \"none\"");
    build(config, spec.seed);
  }

  std::string kind() const override { return "clover"; }
  int64_t max_depth() const override { return head_count_; }
  int64_t kv_layers() const override { return block_ ? 1 : 0; }
  const Rope* own_rope() const override { return layer_config_.own_rope(); }
  bool autoregressive() const override { return regression_ != Regression::none; }
  FeatureTaps taps() const override {
    return is_medusa() ? FeatureTaps{.post_norm = true}
                       : FeatureTaps{.pre_norm = true, .layers = tap_layers_};
  }

  DraftState prime(const Features& features, const at::Tensor& next_ids, std::span<const Segment> segments,
                   const at::Tensor& frontier, DraftKv* kv) override {
    const at::Tensor feature = is_medusa() ? features.post_norm : block_input(features);
    if (!block_) return feed_tokens({feature}, frontier, next_ids.index_select(0, frontier));
    if (kv) {
      DraftState state{feature.to(at::kFloat, /*non_blocking=*/false, /*copy=*/!tap_linear_)};
      block_->forward_in_place(state.hidden, kv->placement, *kv->cache, kv->first_layer);
      return feed_tokens(std::move(state), frontier, next_ids.index_select(0, frontier));
    }
    DraftState state{block_->forward(feature.to(at::kFloat), segments, frontier, training_dtype_)};
    return feed_tokens(std::move(state), {}, next_ids.index_select(0, frontier));
  }

  at::Tensor head_input(const DraftState& state) override {
    if (heads_.empty()) return norm_->forward(state.hidden);
    const ResBlock& head = *heads_[state.depth];
    return norm_ ? head.forward_normed(state.hidden, state.rounded, *norm_, training_dtype_)
                 : head.forward(state.hidden, training_dtype_);
  }

  DraftState extend(const DraftState& state, const at::Tensor& parents, const at::Tensor& ids,
                    DraftKv* /*kv*/) override {
    return feed_tokens({state.hidden, state.depth + 1}, parents, ids);
  }

 private:
  /// Whether it has neither block nor regression.  Then it is Medusa: it reads post-norm features and has no
  /// norm.
  bool is_medusa() const { return block_name_ == "none" && regression_ == Regression::none; }

  /// The input of the block or, without one, of the regression, [R, H]: u, or in fp32 u + F norm(tapped
  /// layers).
  at::Tensor block_input(const Features& features) const {
    if (!tap_linear_) return features.pre_norm;
    const at::Tensor tapped = tap_norm_->forward(features.layers.to(at::kFloat));
    return features.pre_norm.to(at::kFloat) + tap_linear_->forward(tapped, training_dtype_);
  }

  void build(const TargetConfig& config, uint64_t seed) {
    at::Generator generator = at::detail::createCPUGenerator(seed);
    if (const auto taps = std::ssize(tap_layers_); taps > 0) {
      tap_norm_ = register_module(
          "tap_norm", std::make_shared<RmsNorm>(at::ones({taps * config.hidden}), config.norm_eps));
      tap_linear_ =
          register_module("tap", std::make_shared<Linear>(config.hidden, taps * config.hidden, false));
    }
    if (block_name_ != "none") {
      block_ =
          register_module("block", std::make_shared<DecoderBlock>(layer_config_.config, *target_.last_layer,
                                                                  BlockForm{.mlp = block_name_ == "full"}));
    }
    if (regression_ == Regression::attention) {
      attention_decoder_ = register_module(
          "attention_decoder",
          std::make_shared<AttentionDecoder>(config.hidden, AttentionDecoderForm{.groups = gate_groups_},
                                             config.norm_eps, generator));
    }
    if (regression_ == Regression::concat) {
      state_norm_ = register_module("state_norm",
                                    std::make_shared<RmsNorm>(at::ones({config.hidden}), config.norm_eps));
      token_norm_ = register_module("token_norm",
                                    std::make_shared<RmsNorm>(at::ones({config.hidden}), config.norm_eps));
    }
    for (int64_t i = 0; i < head_count_; ++i) {
      const std::string name = std::to_string(i);
      if (regression_ == Regression::concat) {
        concat_layers_.push_back(register_module(
            "concat" + name, std::make_shared<Linear>(config.hidden, 2 * config.hidden, true)));
      } else {
        heads_.push_back(register_module("head" + name, std::make_shared<ResBlock>(config.hidden)));
      }
    }
    if (!is_medusa())
      norm_ = register_module("norm", std::make_shared<RmsNorm>(*target_.final_norm, config.norm_eps));
  }

  /// The regressive connection.  Row j of the result is row rows[j] of `state` with token ids[j] fed to it;
  /// `rows` undefined: row j of `state`.
  DraftState feed_tokens(DraftState state, const at::Tensor& rows, const at::Tensor& ids) const {
    if (attention_decoder_) {
      attention_decoder_->forward(state, rows, ids, *target_.head, training_dtype_);
      return state;
    }
    state.hidden = rows_or_all(state.hidden, rows);
    if (regression_ == Regression::none) return state;
    const at::Tensor token = target_.head->rows(ids).to(at::kFloat);  // e(x), [F, H]
    const at::Tensor state_and_token =
        at::cat({state_norm_->forward(state.hidden), token_norm_->forward(token)}, -1);  // [F, 2H]
    state.hidden =
        add_silu(state.hidden, concat_layers_[state.depth]->forward(state_and_token, training_dtype_));
    return state;
  }

  void pack(at::ScalarType dtype) override {
    Module::pack(dtype);
    if (attention_decoder_) attention_decoder_->tabulate(*target_.head);
  }

  OwnLayerConfig layer_config_;  // of the block
  int64_t head_count_, gate_groups_;
  std::vector<int64_t> tap_layers_;
  std::string regression_name_, block_name_;
  Regression regression_;
  std::shared_ptr<DecoderBlock> block_;                  // null without block
  std::shared_ptr<AttentionDecoder> attention_decoder_;  // null for other regressions
  std::shared_ptr<RmsNorm> tap_norm_, state_norm_, token_norm_, norm_;
  std::shared_ptr<Linear> tap_linear_;  // F; null without tap_layers
  std::vector<std::shared_ptr<Linear>> concat_layers_;
  std::vector<std::shared_ptr<ResBlock>> heads_;
};

}  // namespace

DrafterKind clover_drafter() {
  return {
      "clover",
      [](const DrafterSpec& spec) { return std::make_shared<Clover>(spec); },
      {heads_setting(3),
       Setting::choice("regression", {"attention", "concat", "none"},
                       "attention (the paper), concat or none"),
       Setting::choice("block", {"full", "attention", "none"}, "augmenting block: full, attention or none"),
       Setting::integer("gate_groups", 1, 1, 1024, "gates of the attention decoder"),
       Setting::layers("tap_layers", /*excluded_last=*/1,
                       "also read the residual stream after so many layers of the target, such as "
                       "\"10,20\"; \"\": none"),
       rope_theta_setting()}};
}

}  // namespace clover::model
