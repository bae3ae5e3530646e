// ReDrafter (Apple, arXiv 2403.09919 and the code published with it; docs/drafters/redrafter.md): a recurrent
// network reads the guesses, its state begins at the token just accepted.
//
//   s_1 = silu(W e(x) + b), s_i = silu(W e(x) + U s_{i-1} + b)     e(x): x's input embedding; x: token before
//   guess i = LM head of its own . blocks([h; s_i])                h: the target's post-norm feature
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

#include "kernels/linear/linear.h"
#include "kernels/rows/activation.h"
#include "model/drafters/factory.h"
#include "model/drafters/layers.h"
#include "model/drafters/vocabulary_head.h"

namespace clover::model {
namespace {

/// Draws weight and bias from a uniform distribution within 1 / sqrt(inputs), as torch.nn.Linear does.
void draw_uniformly(Linear& linear, const at::Generator& generator) {
  const at::NoGradGuard no_grad;
  const double bound = 1 / std::sqrt(static_cast<double>(linear.weight.size(1)));
  linear.weight.uniform_(-bound, bound, generator);
  if (linear.bias.defined()) linear.bias.uniform_(-bound, bound, generator);
}

/// silu(W e + U s + b) or, without layers of its own, e + s.
class Cell : public Module {
 public:
  Cell(int64_t hidden, bool linear, const at::Generator& generator) {
    if (!linear) return;
    token_ = register_module("token", std::make_shared<Linear>(hidden, hidden, false));
    state_ = register_module("state", std::make_shared<Linear>(hidden, hidden, true));
    draw_uniformly(*token_, generator);
    draw_uniformly(*state_, generator);
  }

  /// token fp32 [F, H]; state fp32 [F, H], or undefined for 0: the next state, fp32 [F, H].
  at::Tensor forward(const at::Tensor& state, const at::Tensor& token, at::ScalarType training_dtype) const {
    if (!token_) return state.defined() ? token + state : token;
    if (!first_.defined()) {
      const at::Tensor own = token_->forward(token, training_dtype);
      return at::silu(own + (state.defined() ? state_->forward(state, training_dtype) : state_->bias));
    }
    const kernels::PackedWeight& weight = state.defined() ? next_ : first_;
    const at::Tensor read = state.defined() ? at::cat({token, state}, 1) : token;
    at::Tensor sum = at::empty_like(token), activated = at::zeros_like(token);
    kernels::linear(read.to(weight.dtype()).contiguous(), weight, bias_, sum);
    kernels::add_silu_(activated, sum);
    return activated;
  }

  void pack(at::ScalarType dtype) override {
    if (!token_) return;
    const at::Device device = token_->weight.device();
    const at::Tensor own = token_->rounded(dtype);
    first_ = kernels::PackedWeight::pack({own}).to(device);
    next_ = kernels::PackedWeight::pack({at::cat({own, state_->rounded(dtype)}, 1)}).to(device);
    bias_ = rounded_vector(state_->bias, dtype);
  }
  void unpack() override {
    first_ = next_ = {};
    bias_ = at::Tensor();
  }

 private:
  std::shared_ptr<Linear> token_, state_;
  kernels::PackedWeight first_, next_;  // [H, H]: W, where s = 0; [H, 2 H]: W and U side by side
  at::Tensor bias_;
};

class ReDrafter final : public Drafter {
 public:
  explicit ReDrafter(const DrafterSpec& spec) : Drafter(spec.target) {
    const nlohmann::json& settings = spec.settings;
    settings.at("heads").get_to(trained_);
    settings.at("layers").get_to(layers_);
    settings.at("exit_dim").get_to(width_);
    settings.at("recurrence").get_to(recurrence_);
    build(*spec.target.config, spec);
  }

  std::string kind() const override { return "redrafter"; }
  FeatureTaps taps() const override { return {.post_norm = true}; }
  int64_t max_depth() const override { return deepest_guess; }
  int64_t trained_depth() const override { return trained_; }
  const OutputHead& head(int64_t /*depth*/) const override { return vocabulary_->head(); }

  DraftState prime(const Features& features, const at::Tensor& next_ids,
                   std::span<const Segment> /*segments*/, const at::Tensor& frontier,
                   DraftKv* /*kv*/) override {
    const at::Tensor context = features.post_norm.index_select(0, frontier).to(at::kFloat);
    return {cell_->forward({}, input_embedding(next_ids.index_select(0, frontier)), training_dtype_),
            0,
            {},
            {context}};
  }

  at::Tensor head_input(const DraftState& state) override {
    at::Tensor z = at::cat({state.carried[0], state.hidden}, 1);  // [F, 2 H]
    if (projection_) z = projection_->forward(z, training_dtype_);
    for (const auto& block : blocks_) z = block->forward(z, training_dtype_);
    return z;
  }

  DraftState extend(const DraftState& state, const at::Tensor& parents, const at::Tensor& ids,
                    DraftKv* /*kv*/) override {
    return {cell_->forward(state.hidden.index_select(0, parents), input_embedding(ids), training_dtype_),
            state.depth + 1,
            {},
            {state.carried[0].index_select(0, parents)}};
  }

 private:
  void build(const TargetConfig& config, const DrafterSpec& spec) {
    at::Generator generator = at::detail::createCPUGenerator(spec.seed);
    const int64_t both = 2 * config.hidden, width = width_ > 0 ? width_ : both;
    cell_ =
        register_module("cell", std::make_shared<Cell>(config.hidden, recurrence_ == "linear", generator));
    if (width != both) {
      projection_ = register_module("projection", std::make_shared<Linear>(width, both, true));
      draw_uniformly(*projection_, generator);
    }
    for (int64_t i = 0; i < layers_; ++i)
      blocks_.push_back(register_module("block" + std::to_string(i), std::make_shared<ResBlock>(width)));
    vocabulary_ = register_module(
        "vocabulary", std::make_shared<VocabularyHead>(spec, first_vocabulary(spec, width, generator),
                                                       /*with_bias=*/false));
  }

  /// Fresh heads guess what Medusa's do: the target's LM head reads h, and nothing reads the state.
  at::Tensor first_vocabulary(const DrafterSpec& spec, int64_t width, const at::Generator& generator) const {
    if (projection_) {
      const int64_t outputs = spec.token_map.defined() ? spec.token_map.size(0) : target_.head->outputs();
      const double bound = 1 / std::sqrt(static_cast<double>(width));
      return at::empty({outputs, width}).uniform_(-bound, bound, generator);
    }
    const at::Tensor rows = lm_head_rows(target_, spec.token_map);
    return at::cat({rows, at::zeros_like(rows)}, 1);
  }

  int64_t trained_, layers_, width_;
  std::string recurrence_;
  std::shared_ptr<Cell> cell_;
  std::shared_ptr<Linear> projection_;  // null where the blocks are as wide as [h; s]
  std::vector<std::shared_ptr<ResBlock>> blocks_;
  std::shared_ptr<VocabularyHead> vocabulary_;
};

}  // namespace

DrafterKind redrafter_drafter() {
  return {
      "redrafter",
      [](const DrafterSpec& spec) { return std::make_shared<ReDrafter>(spec); },
      {Setting::integer("heads", 5, 1, deepest_guess, "number of heads: how many tokens ahead are guessed"),
       Setting::integer("layers", 2, 1, 8, "residual blocks before the vocabulary"),
       Setting::integer("exit_dim", 0, 0, 1 << 20, "width of these blocks; 0: twice the hidden size"),
       Setting::choice("recurrence", {"linear", "sum"},
                       "next state: linear (of state and token), or their sum")}};
}

}  // namespace clover::model
