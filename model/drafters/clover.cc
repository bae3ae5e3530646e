// Clover (arXiv 2405.00263; docs/drafters/clover.md): heads that feed each guess to the next.
//
//   s_0 = Block(u)                                   augmenting block: one decoder layer, causal
//   s_i = s_{i-1} + AttentionDecoder(s_{i-1}, e(x))  x: the token before; e(x): its normed LM-head row
//   guess i = LM head . norm(ResBlock_i(s_i))
//
// The ingredients are switches, the rungs of the paper's ablation:
//
//   regression  attention (the paper) | none
//               | concat: an MLP over [s; e] in place of attention decoder and residual block
//   block       full | attention: no MLP half | none
//   tap_layers  none | also reads the residual streams after these layers: u + F norm([x_1; ..; x_n])
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "data/error.h"
#include "kernels/activation.h"
#include "kernels/gpu.h"
#include "kernels/linear.h"
#include "kernels/rms_norm.h"
#include "model/decoder_block.h"
#include "model/drafters/factory.h"
#include "model/layers.h"

namespace clover::model {
namespace {

enum class Regression { none, concat, attention };

/// x[rows], or all of x where rows are undefined: fp32 [F, H].
at::Tensor chosen(const at::Tensor& x, const at::Tensor& rows) {
  return (rows.defined() ? x.index_select(0, rows) : x).to(at::kFloat);
}

/// g = cosine(W_Q RMS(s), W_K RMS(e)) a group of the width; s + silu(g * W_V RMS(e)).  W_Q and W_K begin near
/// the identity, W_V at zero, so the decoder begins as the identity on s.
class AttentionDecoder : public torch::nn::Module {
 public:
  AttentionDecoder(int64_t hidden, int64_t groups, double eps, at::Generator generator)
      : groups_(groups), eps_(eps) {
    state_norm = register_module("state_norm", std::make_shared<RmsNorm>(at::ones({hidden}), eps));
    token_norm = register_module("token_norm", std::make_shared<RmsNorm>(at::ones({hidden}), eps));
    query = register_module("query", std::make_shared<Linear>(hidden, hidden, false));
    key = register_module("key", std::make_shared<Linear>(hidden, hidden, false));
    value = register_module("value", std::make_shared<Linear>(hidden, hidden, false));
    at::NoGradGuard no_grad;
    for (const auto& near_identity : {query, key}) {
      near_identity->weight.copy_(at::eye(hidden) + at::normal(0.0,
                                                               0.01 / std::sqrt(static_cast<double>(hidden)),
                                                               {hidden, hidden}, generator));
    }
  }

  /// Feeds token ids[j] to row rows[j] of `state`, or to row j: rows i64 [F] or undefined, ids i64 [F].
  void forward(DraftState& state, at::Tensor rows, const at::Tensor& ids,
               const kernels::PackedWeight& embedding, at::ScalarType training_dtype) const {
    if (key_value_.defined()) {
      const at::Tensor s = state.hidden.to(at::kFloat);
      if (!rows.defined()) rows = at::arange(ids.size(0), ids.options());
      const at::Tensor normed = state_norm->forward_of(s, rows), q = query->forward(normed, training_dtype);
      state.hidden = at::empty_like(q);
      state.rounded = at::empty_like(normed);
      const kernels::KeyValues kv = table_.defined() ? kernels::KeyValues{table_, ids}
                                                     : kernels::KeyValues{keys_and_values(embedding, ids)};
      kernels::add_gated(s, rows, q, kv, groups_, eps_, state.hidden, state.rounded);
      return;
    }
    const at::Tensor token = token_norm->forward_of(embedding, ids);
    const at::Tensor s = chosen(state.hidden, rows);
    const at::Tensor q = query->forward(state_norm->forward(s), training_dtype);
    const at::Tensor k = key->forward(token, training_dtype);
    const at::Tensor v = value->forward(token, training_dtype);
    const auto grouped = [this](const at::Tensor& x) { return x.view({x.size(0), groups_, -1}); };
    const at::Tensor gate =
        at::cosine_similarity(grouped(q), grouped(k), -1, eps_).unsqueeze(-1);  // [F, groups, 1]
    state.hidden = s + at::silu((gate * grouped(v)).flatten(1));
  }

  void pack(at::ScalarType dtype) {
    state_norm->pack(dtype);
    token_norm->pack(dtype);
    query->pack(dtype);
    key_value_ =
        kernels::PackedWeight::pack({key->rounded(dtype), value->rounded(dtype)}).to(key->weight.device());
  }
  /// On a GPU keys and values of all tokens are made once, where a sixteenth of what is free has room for
  /// them: a row of theirs is read in place of the weights that make it, which are a fifth of what a draft of
  /// a 7B model reads.
  void tabulate(const kernels::PackedWeight& embedding) {
    const at::Device device = query->weight.device();
    const int64_t tokens = embedding.outputs(), width = key_value_.outputs();
    const auto size = static_cast<int64_t>(c10::elementSize(key_value_.dtype()));
    if (device.is_cpu() || tokens * width * size > kernels::free_gpu_memory(device) / 16) return;
    constexpr int64_t at_once = 1024;
    table_ = at::empty({tokens, width}, at::TensorOptions(key_value_.dtype()).device(device));
    for (int64_t first = 0; first < tokens; first += at_once) {
      const int64_t end = std::min(first + at_once, tokens);
      const at::Tensor ids = at::arange(first, end, at::TensorOptions(at::kLong).device(device));
      table_.slice(0, first, end).copy_(keys_and_values(embedding, ids));
    }
  }
  void unpack() {
    state_norm->unpack();
    token_norm->unpack();
    query->unpack();
    key_value_ = {};
    table_ = at::Tensor();
  }

  std::shared_ptr<RmsNorm> state_norm, token_norm;
  std::shared_ptr<Linear> query, key, value;

 private:
  /// Of tokens ids[j]: fp32 [F, 2 H].
  at::Tensor keys_and_values(const kernels::PackedWeight& embedding, const at::Tensor& ids) const {
    at::Tensor kv = at::empty({ids.size(0), key_value_.outputs()}, ids.options().dtype(at::kFloat));
    kernels::linear(token_norm->forward_of(embedding, ids), key_value_, {}, kv);
    return kv;
  }

  int64_t groups_;
  double eps_;
  kernels::PackedWeight key_value_;  // [2 H, H]
  at::Tensor table_;                 // [V, 2 H] of the frozen dtype, or undefined
};

class Clover final : public Drafter {
 public:
  explicit Clover(const DrafterInput& input) : Drafter(input.target, input.token_map, input.trainable) {
    const TargetConfig& config = *target_.config;
    SettingsReader reader("clover", input.settings);
    count_ = reader.integer("heads", 3, 1, 16);
    gate_groups_ = reader.integer("gate_groups", 1, 1, 1024);
    regression_name_ = reader.choice("regression", "attention", {"attention", "concat", "none"});
    block_name_ = reader.choice("block", "full", {"full", "attention", "none"});
    tap_layers_ = reader.ascending("tap_layers", 1, config.layers - 1);
    reader.finish();
    if (config.hidden % gate_groups_ != 0) {
      throw data::InputError("Setting \"gate_groups\" of drafter clover is " + std::to_string(gate_groups_) +
                             ", expected a divisor of the hidden size " + std::to_string(config.hidden) +
                             ".");
    }
    regression_ = regression_name_ == "attention" ? Regression::attention
                  : regression_name_ == "concat"  ? Regression::concat
                                                  : Regression::none;
    if (plain() && !tap_layers_.empty()) {
      throw data::InputError("Setting \"tap_layers\" of drafter clover is " +
                             nlohmann::json(tap_layers_).dump() +
                             ", expected none where block and regression are \"none\".");
    }
    build(config, input.seed);
  }

  std::string kind() const override { return "clover"; }
  int64_t max_depth() const override { return count_; }
  int64_t kv_layers() const override { return block_ ? 1 : 0; }
  bool regressive() const override { return regression_ != Regression::none; }
  nlohmann::json settings() const override {
    return {{"heads", count_},
            {"regression", regression_name_},
            {"block", block_name_},
            {"gate_groups", gate_groups_},
            {"tap_layers", tap_layers_}};
  }
  FeatureTaps features() const override {
    return plain() ? FeatureTaps{.post_norm = true} : FeatureTaps{.pre_norm = true, .layers = tap_layers_};
  }

  DraftState prime(const Features& features, const at::Tensor& next_ids, std::span<const Segment> segments,
                   const at::Tensor& frontier, DraftKv* kv) override {
    const at::Tensor feature = plain() ? features.post_norm : stream(features);
    if (!block_) return fed({feature}, frontier, next_ids.index_select(0, frontier));
    if (kv) {
      DraftState state{feature.to(at::kFloat, /*non_blocking=*/false, /*copy=*/!tap_)};
      block_->forward_in_place(state.hidden, kv->placement, *kv->cache, kv->first_layer);
      return fed(std::move(state), frontier, next_ids.index_select(0, frontier));
    }
    DraftState state{block_->forward(feature.to(at::kFloat), segments, frontier, training_dtype_)};
    return fed(std::move(state), {}, next_ids.index_select(0, frontier));
  }

  at::Tensor output(const DraftState& state) override {
    if (heads_.empty()) return norm_->forward(state.hidden);
    const ResBlock& head = *heads_[state.depth];
    return norm_ ? head.forward_normed(state.hidden, state.rounded, *norm_, training_dtype_)
                 : head.forward(state.hidden, training_dtype_);
  }

  DraftState extend(const DraftState& state, const at::Tensor& parents, const at::Tensor& ids) override {
    return fed({state.hidden, state.depth + 1}, parents, ids);
  }

 private:
  /// Without block and regression it is Medusa: it reads what the LM head reads and needs no norm of its own.
  bool plain() const { return block_name_ == "none" && regression_ == Regression::none; }

  /// What the block, or without one the regression, reads, [R, H]: u, or in fp32 u and what the tapped layers
  /// add to it.
  at::Tensor stream(const Features& features) const {
    if (!tap_) return features.pre_norm;
    const at::Tensor lower = tap_norm_->forward(features.layers.to(at::kFloat));
    return features.pre_norm.to(at::kFloat) + tap_->forward(lower, training_dtype_);
  }

  void build(const TargetConfig& config, uint64_t seed) {
    at::Generator generator = at::detail::createCPUGenerator(seed);
    if (const auto taps = std::ssize(tap_layers_); taps > 0) {
      tap_norm_ = register_module(
          "tap_norm", std::make_shared<RmsNorm>(at::ones({taps * config.hidden}), config.norm_eps));
      tap_ = register_module("tap", std::make_shared<Linear>(config.hidden, taps * config.hidden, false));
    }
    if (block_name_ != "none") {
      block_ = register_module(
          "block", std::make_shared<DecoderBlock>(config, *target_.last_layer, block_name_ == "full"));
    }
    if (regression_ == Regression::attention) {
      attention_decoder_ = register_module(
          "attention_decoder",
          std::make_shared<AttentionDecoder>(config.hidden, gate_groups_, config.norm_eps, generator));
    }
    if (regression_ == Regression::concat) {
      state_norm_ = register_module("state_norm",
                                    std::make_shared<RmsNorm>(at::ones({config.hidden}), config.norm_eps));
      token_norm_ = register_module("token_norm",
                                    std::make_shared<RmsNorm>(at::ones({config.hidden}), config.norm_eps));
    }
    for (int64_t i = 0; i < count_; ++i) {
      const std::string name = std::to_string(i);
      if (regression_ == Regression::concat) {
        concat_.push_back(register_module("concat" + name,
                                          std::make_shared<Linear>(config.hidden, 2 * config.hidden, true)));
      } else {
        heads_.push_back(register_module("head" + name, std::make_shared<ResBlock>(config.hidden)));
      }
    }
    if (!plain())
      norm_ = register_module("norm", std::make_shared<RmsNorm>(*target_.final_norm, config.norm_eps));
  }

  /// Regressive connection: row j of what comes is row rows[j] of `state`, or row j where rows are undefined,
  /// and has taken in token ids[j].
  DraftState fed(DraftState state, const at::Tensor& rows, const at::Tensor& ids) const {
    if (attention_decoder_) {
      attention_decoder_->forward(state, rows, ids, *target_.head, training_dtype_);
      return state;
    }
    state.hidden = chosen(state.hidden, rows);
    if (regression_ == Regression::none) return state;
    const at::Tensor token = target_.head->rows(ids).to(at::kFloat);  // e(x), [F, H]
    const at::Tensor both =
        at::cat({state_norm_->forward(state.hidden), token_norm_->forward(token)}, -1);  // [F, 2H]
    state.hidden = add_silu(state.hidden, concat_[state.depth]->forward(both, training_dtype_));
    return state;
  }

  template <typename Action>
  void for_each_layer(Action action) {
    if (tap_norm_) action(*tap_norm_);
    if (tap_) action(*tap_);
    if (block_) action(*block_);
    if (attention_decoder_) action(*attention_decoder_);
    if (state_norm_) action(*state_norm_);
    if (token_norm_) action(*token_norm_);
    for (const auto& linear : concat_) action(*linear);
    for (const auto& head : heads_) action(*head);
    if (norm_) action(*norm_);
  }
  void pack(at::ScalarType dtype) override {
    for_each_layer([dtype](auto& layer) { layer.pack(dtype); });
    if (attention_decoder_) attention_decoder_->tabulate(*target_.head);
  }
  void unpack() override {
    for_each_layer([](auto& layer) { layer.unpack(); });
  }

  int64_t count_, gate_groups_;
  std::vector<int64_t> tap_layers_;
  std::string regression_name_, block_name_;
  Regression regression_;
  std::shared_ptr<DecoderBlock> block_;
  std::shared_ptr<AttentionDecoder> attention_decoder_;
  std::shared_ptr<RmsNorm> tap_norm_, state_norm_, token_norm_, norm_;
  std::shared_ptr<Linear> tap_;
  std::vector<std::shared_ptr<Linear>> concat_;
  std::vector<std::shared_ptr<ResBlock>> heads_;
};

}  // namespace

std::shared_ptr<Drafter> make_clover(const DrafterInput& input) {
  return std::make_shared<Clover>(input);
}

}  // namespace clover::model
