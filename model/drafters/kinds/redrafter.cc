// ReDrafter (Apple, arXiv 2403.09919 and the code published with it; docs/drafters/redrafter.md): a recurrent
// network reads the last accepted token and then the guesses.
//
//   s_1 = silu(W e(x) + b)                  x: the last accepted token; e(x): its input embedding
//   s_i = silu(W e(x) + U s_{i-1} + b)      x: guess i - 1
//   guess i = own head . blocks([h; s_i])   h: the target's post-norm feature, from which x was chosen in s_1
//
// Guesses are counted from 1 here.  Blocks are residual blocks (layers.h).
// With the setting recurrence = "sum", s_i = e(x) + s_{i-1}.  With exit_dim, a projection comes before the
// blocks.
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

/// Draws weight and bias from a uniform distribution within +-1 / sqrt(inputs), as torch.nn.Linear does.
void draw_uniformly(Linear& linear, const at::Generator& generator) {
  const at::NoGradGuard no_grad;
  const double bound = 1 / std::sqrt(static_cast<double>(linear.weight.size(1)));
  linear.weight.uniform_(-bound, bound, generator);
  if (linear.bias.defined()) linear.bias.uniform_(-bound, bound, generator);
}

/// The recurrence: silu(W e + U s + b) if `has_weights`, else e + s.  W is token_, U and b are state_.
class Cell : public Module {
 public:
  Cell(int64_t hidden, bool has_weights, const at::Generator& generator) {
    if (!has_weights) return;
    token_ = register_module("token", std::make_shared<Linear>(hidden, hidden, false));
    state_ = register_module("state", std::make_shared<Linear>(hidden, hidden, true));
    draw_uniformly(*token_, generator);
    draw_uniformly(*state_, generator);
  }

  /// Returns the next state, fp32 [F, H].
  ///   state      s, fp32 [F, H]; undefined: zeros
  ///   embedding  e, fp32 [F, H], of the token that is read
  at::Tensor forward(const at::Tensor& state, const at::Tensor& embedding,
                     at::ScalarType training_dtype) const {
    if (!token_) return state.defined() ? embedding + state : embedding;
    if (!first_.defined()) {
      const at::Tensor token_part = token_->forward(embedding, training_dtype);
      return at::silu(token_part + (state.defined() ? state_->forward(state, training_dtype) : state_->bias));
    }
    const kernels::PackedWeight& weight = state.defined() ? next_ : first_;
    const at::Tensor input = state.defined() ? at::cat({embedding, state}, 1) : embedding;
    at::Tensor sum = at::empty_like(embedding), activated = at::zeros_like(embedding);
    kernels::linear(input.to(weight.dtype()).contiguous(), weight, bias_, sum);
    kernels::add_silu_(activated, sum);
    return activated;
  }

  void pack(at::ScalarType dtype) override {
    if (!token_) return;
    const at::Device device = token_->weight.device();
    const at::Tensor token_weight = token_->rounded(dtype);
    first_ = kernels::PackedWeight::pack({token_weight}).to(device);
    next_ = kernels::PackedWeight::pack({at::cat({token_weight, state_->rounded(dtype)}, 1)}).to(device);
    bias_ = rounded_vector(state_->bias, dtype);
  }
  void unpack() override {
    first_ = next_ = {};
    bias_ = at::Tensor();
  }

 private:
  std::shared_ptr<Linear> token_, state_;  // W; U and b.  Null without `has_weights`
  kernels::PackedWeight first_;            // [H, H]: W, for s = 0; packed while frozen
  kernels::PackedWeight next_;             // [H, 2 H]: W and U side by side
  at::Tensor bias_;                        // fp32 [H]: b
};

class ReDrafter final : public Drafter {
 public:
  explicit ReDrafter(const DrafterSpec& spec) : Drafter(spec.target) {
    const nlohmann::json& settings = spec.settings;
    settings.at("heads").get_to(trained_depth_);
    settings.at("layers").get_to(layers_);
    settings.at("exit_dim").get_to(exit_dim_);
    settings.at("recurrence").get_to(recurrence_);
    build(*spec.target.config, spec);
  }

  std::string kind() const override { return "redrafter"; }
  FeatureTaps taps() const override { return {.post_norm = true}; }
  int64_t max_depth() const override { return max_guess_depth; }
  int64_t trained_depth() const override { return trained_depth_; }
  const OutputHead& head(int64_t /*depth*/) const override { return vocabulary_->head(); }

  DraftState prime(const Features& features, const at::Tensor& next_ids,
                   std::span<const Segment> /*segments*/, const at::Tensor& frontier,
                   DraftKv* /*kv*/) override {
    const at::Tensor feature = features.post_norm.index_select(0, frontier).to(at::kFloat);
    return {cell_->forward({}, input_embedding(next_ids.index_select(0, frontier)), training_dtype_),
            0,
            {},
            {feature}};
  }

  at::Tensor head_input(const DraftState& state) override {
    at::Tensor z = at::cat({state.row_tensors[0], state.hidden}, 1);  // [F, 2 H]
    if (projection_) z = projection_->forward(z, training_dtype_);
    for (const auto& block : blocks_) z = block->forward(z, training_dtype_);
    return z;
  }

  DraftState extend(const DraftState& state, const at::Tensor& parents, const at::Tensor& ids,
                    DraftKv* /*kv*/) override {
    return {cell_->forward(state.hidden.index_select(0, parents), input_embedding(ids), training_dtype_),
            state.depth + 1,
            {},
            {state.row_tensors[0].index_select(0, parents)}};
  }

 private:
  void build(const TargetConfig& config, const DrafterSpec& spec) {
    at::Generator generator = at::detail::createCPUGenerator(spec.seed);
    const int64_t input_width = 2 * config.hidden, width = exit_dim_ > 0 ? exit_dim_ : input_width;
    cell_ =
        register_module("cell", std::make_shared<Cell>(config.hidden, recurrence_ == "linear", generator));
    if (width != input_width) {
      projection_ = register_module("projection", std::make_shared<Linear>(width, input_width, true));
      draw_uniformly(*projection_, generator);
    }
    for (int64_t i = 0; i < layers_; ++i)
      blocks_.push_back(register_module("block" + std::to_string(i), std::make_shared<ResBlock>(width)));
    vocabulary_ = register_module("vocabulary",
                                  std::make_shared<VocabularyHead>(spec, initial_head(spec, width, generator),
                                                                   /*with_bias=*/false));
  }

  /// The initial weight of the own head, [V', width].  Without a projection it is the target's LM head on h
  /// and zeros on s, as in Medusa; with one it is random.
  at::Tensor initial_head(const DrafterSpec& spec, int64_t width, const at::Generator& generator) const {
    if (projection_) {
      const int64_t outputs = spec.token_map.defined() ? spec.token_map.size(0) : target_.head->outputs();
      const double bound = 1 / std::sqrt(static_cast<double>(width));
      return at::empty({outputs, width}).uniform_(-bound, bound, generator);
    }
    const at::Tensor rows = lm_head_rows(target_, spec.token_map);
    return at::cat({rows, at::zeros_like(rows)}, 1);
  }

  int64_t trained_depth_, layers_, exit_dim_;  // the settings heads, layers and exit_dim
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
      {heads_setting(5), residual_blocks_setting(2),
       Setting::integer("exit_dim", 0, 0, 1 << 20, "width of the residual blocks; 0: twice the hidden size"),
       Setting::choice("recurrence", {"linear", "sum"},
                       "next state: linear, silu(W token + U state + b); or the sum of token and state")}};
}

}  // namespace clover::model
