// Clover-2 (arXiv 2408.00264; docs/drafters/clover2.md): like Clover, but the token after a row is read
// before the augmenting block, the block has two layers, and all guesses but the first share their weights.
//
//   s_0 = norm_s(Block(AD_1(u, x)))           u: the target's pre-norm feature; x: the token after the row
//   guess 0 = LM head . norm(F_1 s_0)
//   s_i = AD_2(s_{i-1}, x)                    x: guess i - 1
//   guess i = LM head . norm(F_2 [s_i; e(x)])
//
// AD: attention decoder (attention_decoder.h) with one gate for each attention head of the target.  It reads
// e(x), the row of x in the LM head.  F_1 and F_2 have biases.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "data/files/error.h"
#include "model/drafters/attention_decoder.h"
#include "model/drafters/decoder_block.h"
#include "model/drafters/factory.h"
#include "model/drafters/layers.h"

namespace clover::model {
namespace {

class Clover2 final : public Drafter {
 public:
  explicit Clover2(const DrafterSpec& spec)
      : Drafter(spec.target, spec.token_map, spec.trainable),
        layer_config_(*spec.target.config, "clover2", spec.settings) {
    spec.settings.at("heads").get_to(head_count_);
    const auto layers = spec.settings.at("augmenting_layers").get<int64_t>();
    build(*target_.config, layers, spec.seed);
  }

  std::string kind() const override { return "clover2"; }
  FeatureTaps taps() const override { return {.pre_norm = true}; }
  int64_t max_depth() const override { return head_count_; }
  int64_t kv_layers() const override { return std::ssize(block_); }
  const Rope* own_rope() const override { return layer_config_.own_rope(); }

  DraftState prime(const Features& features, const at::Tensor& next_ids, std::span<const Segment> segments,
                   const at::Tensor& frontier, DraftKv* kv) override {
    DraftState state{features.pre_norm.to(at::kFloat)};
    first_decoder_->forward(state, {}, next_ids, *target_.head, training_dtype_);
    at::Tensor x = state.hidden;
    if (kv) {
      for (int64_t i = 0; i < kv_layers(); ++i)
        block_[i]->forward_in_place(x, kv->placement, *kv->cache, kv->first_layer + i);
      x = state_norm_->forward_rows(x, frontier);
    } else {
      const at::Tensor all_rows = at::arange(x.size(0), frontier.options());
      for (int64_t i = 0; i < kv_layers(); ++i)
        x = block_[i]->forward(x, segments, i + 1 < kv_layers() ? all_rows : frontier, training_dtype_);
      x = state_norm_->forward(x);
    }
    return with_token(x, next_ids.index_select(0, frontier), 0);
  }

  at::Tensor head_input(const DraftState& state) override {
    const Linear& mix = state.depth == 0 ? *first_mix_ : *next_mix_;
    const at::Tensor input = state.depth == 0 ? state_of(state) : state.hidden;
    return norm_->forward(mix.forward(input, training_dtype_));
  }

  DraftState extend(const DraftState& state, const at::Tensor& parents, const at::Tensor& ids,
                    DraftKv* /*kv*/) override {
    DraftState next{state_of(state)};
    next_decoder_->forward(next, parents, ids, *target_.head, training_dtype_);
    return with_token(next.hidden, ids, state.depth + 1);
  }

 private:
  /// A state whose `hidden` is [s; e(x)], fp32 [F, 2 H]: s [F, H], x = ids, i64 [F].
  DraftState with_token(const at::Tensor& s, const at::Tensor& ids, int64_t depth) const {
    return {at::cat({s.to(at::kFloat), target_.head->rows(ids).to(at::kFloat)}, 1), depth};
  }
  /// s, the first half of `hidden`: [F, H].
  at::Tensor state_of(const DraftState& state) const {
    return state.hidden.narrow(1, 0, target_.config->hidden);
  }

  void build(const TargetConfig& config, int64_t layers, uint64_t seed) {
    at::Generator generator = at::detail::createCPUGenerator(seed);
    const auto decoder = [&](const char* name) {
      const AttentionDecoderForm form{.groups = config.heads,
                                      .token_norm = false,
                                      .biases = true,
                                      .activation = kernels::GateActivation::none};
      return register_module(name, std::make_shared<AttentionDecoder>(
                                       config.hidden, form, layer_config_.config.norm_eps, generator));
    };
    const auto mix = [&](const char* name, int64_t inputs) {
      auto linear = register_module(name, std::make_shared<Linear>(config.hidden, inputs, true));
      begin_near_identity(*linear, generator);
      return linear;
    };
    const auto norm = [&](const char* name) {
      return register_module(name,
                             std::make_shared<RmsNorm>(*target_.final_norm, layer_config_.config.norm_eps));
    };
    if (config.hidden % config.heads != 0) {
      throw data::InputError("Heads of kind clover2 have a gate for each attention head of the target: its " +
                             std::to_string(config.heads) + " do not divide the hidden size " +
                             std::to_string(config.hidden) + "; choose another kind.");
    }
    first_decoder_ = decoder("first_decoder");
    for (int64_t i = 0; i < layers; ++i) {
      block_.push_back(register_module(
          "block" + std::to_string(i),
          std::make_shared<DecoderBlock>(layer_config_.config, *target_.last_layer, BlockForm{})));
    }
    state_norm_ = norm("state_norm");
    first_mix_ = mix("first_mix", config.hidden);
    next_decoder_ = decoder("next_decoder");
    next_mix_ = mix("next_mix", 2 * config.hidden);
    norm_ = norm("norm");
  }

  void pack(at::ScalarType dtype) override {
    Module::pack(dtype);
    for (const auto& decoder : {next_decoder_, first_decoder_}) decoder->tabulate(*target_.head);
  }

  OwnLayerConfig layer_config_;  // of the augmenting block
  int64_t head_count_;
  std::shared_ptr<AttentionDecoder> first_decoder_, next_decoder_;  // AD_1, AD_2
  std::vector<std::shared_ptr<DecoderBlock>> block_;                // layers of the augmenting block
  std::shared_ptr<RmsNorm> state_norm_, norm_;
  std::shared_ptr<Linear> first_mix_, next_mix_;  // F_1, F_2
};

}  // namespace

DrafterKind clover2_drafter() {
  return {"clover2",
          [](const DrafterSpec& spec) { return std::make_shared<Clover2>(spec); },
          {heads_setting(3),
           Setting::integer("augmenting_layers", 2, 1, 8, "decoder layers of the augmenting block"),
           norm_eps_setting(), rope_theta_setting()}};
}

}  // namespace clover::model
