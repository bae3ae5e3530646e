#include "train/objective/vocabulary_loss.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>

#include "kernels/gpu/gpu.h"
#include "kernels/vocabulary/top_k.h"

namespace clover::train {
namespace {

/// The rank of `label` among the logits [vocab] of one row.
int64_t label_rank(const float* logits, int64_t vocab, int64_t label) {
  const float label_logit = logits[label];
  if (std::isnan(label_logit)) return vocab - 1;
  int32_t above = 0;
  for (int64_t v = 0; v < vocab; ++v) above += logits[v] > label_logit;
  for (int64_t v = 0; v < label; ++v) above += logits[v] == label_logit;
  return above;
}

/// logits fp32 [R, V'] and labels i64 [R] on one device -> their ranks, i64 [R] on it.
at::Tensor label_ranks_on_device(const at::Tensor& logits, const at::Tensor& labels) {
  const int64_t vocab = logits.size(1);
  if (!logits.is_cpu()) {
    const at::Tensor label = labels.unsqueeze(1), label_logits = logits.gather(1, label);
    const at::Tensor before = at::arange(vocab, labels.options()).unsqueeze(0) < label;
    const at::Tensor above = ((logits > label_logits) | ((logits == label_logits) & before)).sum(1);
    return above.masked_fill(label_logits.squeeze(1).isnan(), vocab - 1);
  }
  at::Tensor ranks = at::empty({logits.size(0)}, at::kLong);
  const float* rows = logits.const_data_ptr<float>();
  const int64_t* label = labels.const_data_ptr<int64_t>();
  int64_t* rank = ranks.mutable_data_ptr<int64_t>();
  at::parallel_for(0, logits.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) rank[row] = label_rank(rows + row * vocab, vocab, label[row]);
  });
  return ranks;
}

/// hidden W^T + b, fp32 [R, V'].
at::Tensor logits_of(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& bias) {
  at::Tensor logits = at::mm(hidden.to(weight.scalar_type()), weight.t()).to(at::kFloat);
  return bias.defined() ? logits.add_(bias) : logits;
}

/// The sum of fp32 values, in fp64.
double sum_of(const at::Tensor& values) {
  const at::Tensor on_host = values.contiguous().cpu();
  double sum = 0;
  for (int64_t i = 0; i < on_host.numel(); ++i) sum += on_host.const_data_ptr<float>()[i];
  return sum;
}

/// The loss terms of R rows, a chunk of those of a head, and then their gradient with respect to the logits.
class ChunkLoss {
 public:
  /// `targets`: of these R rows.
  ChunkLoss(const LossTerms& terms, VocabularyTargets targets)
      : terms_(terms), targets_(std::move(targets)) {}

  /// The sum of each term over the rows; logits: fp32 [R, V'].
  TermValues values(const at::Tensor& logits) {
    log_q_ = at::_log_softmax(logits, 1, /*half_to_float=*/false);
    if (targets_.teacher_weight.defined())
      p_ = at::softmax(logits_of(targets_.teacher, targets_.teacher_weight, {}), 1);
    labels_ = targets_.uniforms.defined() ? drawn_labels() : targets_.labels.unsqueeze(1);
    TermValues values{};
    const auto value = [&](LossTerm term) -> double& { return values[static_cast<size_t>(term)]; };
    if (terms_.has(LossTerm::cross_entropy))
      value(LossTerm::cross_entropy) =
          -sum_of(log_q_.gather(1, labels_)) / static_cast<double>(labels_.size(1));
    if (terms_.has(LossTerm::soft_labels)) value(LossTerm::soft_labels) = -sum_of((p_ * log_q_).sum(1));
    if (reads_acceptance()) {
      acceptance_ = at::minimum(p_, log_q_.exp()).sum(1).clamp_min_(1e-37);
      if (terms_.has(LossTerm::total_variation))
        value(LossTerm::total_variation) = static_cast<double>(p_.size(0)) - sum_of(acceptance_);
      if (terms_.has(LossTerm::lk)) value(LossTerm::lk) = -sum_of(acceptance_.log());
    }
    return values;
  }

  /// The gradient of the weighted sum of the terms, fp32 [R, V'].  Called once, after `values`; overwrites
  /// log_q_ with q.  With q = softmax(logits), p the target's distribution, y the label and v any token, the
  /// gradients of the terms are:
  ///   cross-entropy: q - 1_y, where 1_y is 1 at y and 0 elsewhere
  ///   soft labels: q - p
  ///   total variation: -da, where a = sum_v min(p_v, q_v) and da_v = q_v ([q_v < p_v] - sum of q_w over the
  ///     tokens w with q_w < p_w)
  ///   lk: -da / a
  at::Tensor gradient() {
    const double q_weight = terms_[LossTerm::cross_entropy] + terms_[LossTerm::soft_labels];
    at::Tensor gradient = log_q_.exp_();
    if (reads_acceptance()) {
      const at::Tensor weight =
          (acceptance_.reciprocal() * terms_[LossTerm::lk] + terms_[LossTerm::total_variation]).unsqueeze(1);
      const at::Tensor q_below_p = (gradient < p_).to(at::kFloat);
      const at::Tensor mass_below = (gradient * q_below_p).sum(1, /*keepdim=*/true);
      gradient.mul_((mass_below - q_below_p).mul_(weight).add_(q_weight));
    } else if (q_weight != 1) {
      gradient.mul_(q_weight);
    }
    if (terms_.has(LossTerm::soft_labels)) gradient.sub_(p_, terms_[LossTerm::soft_labels]);
    if (terms_.has(LossTerm::cross_entropy)) {
      const double weight = -terms_[LossTerm::cross_entropy] / static_cast<double>(labels_.size(1));
      gradient.scatter_add_(1, labels_, at::full(labels_.sizes(), weight, gradient.options()));
    }
    return gradient;
  }

 private:
  bool reads_acceptance() const { return terms_.has(LossTerm::total_variation) || terms_.has(LossTerm::lk); }

  /// i64 [R, n]: labels drawn from p_ by inverting its cumulative distribution at `uniforms`.
  at::Tensor drawn_labels() const {
    const at::Tensor cumulative = p_.cumsum(1);
    const at::Tensor total = cumulative.narrow(1, cumulative.size(1) - 1, 1);  // 1 up to rounding
    return at::searchsorted(cumulative, (targets_.uniforms * total).contiguous(), /*out_int32=*/false,
                            /*right=*/true)
        .clamp_max(p_.size(1) - 1);
  }

  const LossTerms& terms_;
  VocabularyTargets targets_;
  at::Tensor log_q_;       // [R, V']
  at::Tensor p_;           // [R, V']: the target's distribution, or undefined
  at::Tensor acceptance_;  // [R]: the acceptance probability a, or undefined
  at::Tensor labels_;      // i64 [R, 1]: the data's, or [R, n]: drawn
};

/// Adds to `sum` what R rows contribute: gradient fp32 [R, V'] of their logits, hidden fp32 [R, D].
void add_head_gradient(const at::Tensor& gradient, const at::Tensor& hidden, at::ScalarType dtype,
                       double scale, HeadGradient& sum) {
  if (dtype == at::kFloat)
    sum.weight.addmm_(gradient.t(), hidden, 1, scale);
  else
    sum.weight.add_(at::mm(gradient.to(dtype).t(), hidden.to(dtype)), scale);
  if (sum.bias.defined()) sum.bias.add_(gradient.sum(0), scale);
}

struct KnownGradient : torch::autograd::Function<KnownGradient> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input, double value,
                            const at::Tensor& gradient) {
    context->save_for_backward({gradient});
    return at::zeros({}, input.options()).fill_(value);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list output_gradients) {
    return {context->get_saved_variables()[0] * output_gradients[0], {}, {}};
  }
};

void check(const at::Tensor& hidden, const LossHead& head, const VocabularyTargets& targets,
           const LossTerms& terms) {
  TORCH_CHECK(hidden.dim() == 2 && head.weight.dim() == 2 && hidden.size(1) == head.weight.size(1) &&
                  hidden.scalar_type() == at::kFloat,
              "loss of hidden ", hidden.sizes(), " against weight ", head.weight.sizes());
  const at::Tensor& labels = targets.labels;
  TORCH_CHECK(labels.dim() == 1 && labels.size(0) == hidden.size(0) && labels.scalar_type() == at::kLong,
              "loss of ", hidden.size(0), " rows with labels ", labels.sizes());
  const at::Tensor on_host = labels.contiguous().cpu();
  const int64_t* label = on_host.const_data_ptr<int64_t>();
  TORCH_CHECK(std::all_of(label, label + labels.size(0),
                          [&](int64_t v) { return v >= 0 && v < head.weight.size(0); }),
              "loss: a label lies outside a vocabulary of ", head.weight.size(0));
  const bool reads_target = terms.reads_target() || targets.uniforms.defined();
  TORCH_CHECK(!reads_target ||
                  (targets.teacher.defined() && targets.teacher.size(0) == hidden.size(0) &&
                   targets.teacher_weight.defined() && targets.teacher_weight.size(0) == head.weight.size(0)),
              "loss: the target's features or LM head are missing, or of another shape");
}

/// `targets` of the rows begin .. begin + count - 1 alone.
VocabularyTargets narrowed(const VocabularyTargets& targets, int64_t begin, int64_t count) {
  const auto rows = [&](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.narrow(0, begin, count) : tensor;
  };
  return {rows(targets.labels), rows(targets.teacher), targets.teacher_weight, rows(targets.uniforms)};
}

}  // namespace

at::Tensor with_known_gradient(const at::Tensor& input, double value, const at::Tensor& gradient) {
  return KnownGradient::apply(input, value, gradient);
}

VocabularyLoss chunked_vocabulary_loss(const at::Tensor& hidden, const LossHead& head,
                                       const VocabularyTargets& targets, const LossTerms& terms,
                                       HeadGradient* head_gradient, double scale, int64_t chunk) {
  check(hidden, head, targets, terms);
  const bool has_terms = terms.reads_vocabulary();
  const bool differentiable = has_terms && at::GradMode::is_enabled() && hidden.requires_grad();
  const at::Tensor labels = kernels::to_device(targets.labels.contiguous(), hidden.device());
  const VocabularyTargets targets_on_device{labels, targets.teacher, targets.teacher_weight,
                                            targets.uniforms};
  VocabularyLoss result{{}, {}, at::empty({hidden.size(0)}, labels.options())};
  at::Tensor gradient;
  {
    const at::NoGradGuard no_grad;
    const at::Tensor dense = hidden.detach().contiguous();
    if (differentiable) gradient = at::empty_like(dense);
    for (int64_t begin = 0; begin < dense.size(0); begin += chunk) {
      const int64_t count = std::min(chunk, dense.size(0) - begin);
      const at::Tensor rows = dense.narrow(0, begin, count);
      const at::Tensor logits = logits_of(rows, head.weight, head.bias);
      result.ranks.narrow(0, begin, count)
          .copy_(label_ranks_on_device(logits, labels.narrow(0, begin, count)));
      if (!has_terms) continue;
      ChunkLoss chunk_loss(terms, narrowed(targets_on_device, begin, count));
      const TermValues values = chunk_loss.values(logits);
      for (size_t k = 0; k < loss_term_count; ++k) result.terms[k] += values[k];
      if (!differentiable && head_gradient == nullptr) continue;
      const at::Tensor logit_gradient = chunk_loss.gradient();
      if (differentiable)
        gradient.narrow(0, begin, count)
            .copy_(at::mm(logit_gradient.to(head.weight.scalar_type()), head.weight));
      if (head_gradient != nullptr)
        add_head_gradient(logit_gradient, rows, head.weight.scalar_type(), scale, *head_gradient);
    }
  }
  const double sum = terms.weighted_sum(result.terms);
  result.sum = differentiable ? with_known_gradient(hidden, sum, gradient)
                              : at::zeros({}, hidden.options()).fill_(sum);
  result.ranks = result.ranks.cpu();
  return result;
}

at::Tensor best_guesses(const at::Tensor& hidden, const LossHead& head, int64_t chunk) {
  const at::NoGradGuard no_grad;
  at::Tensor best = at::empty({hidden.size(0)}, at::kLong);
  for (int64_t begin = 0; begin < hidden.size(0); begin += chunk) {
    const int64_t count = std::min(chunk, hidden.size(0) - begin);
    const at::Tensor logits = logits_of(hidden.narrow(0, begin, count), head.weight, head.bias);
    best.narrow(0, begin, count).copy_(kernels::arg_max(logits).clamp_min(0));
  }
  return best;
}

at::Tensor label_ranks(const at::Tensor& logits, const at::Tensor& labels) {
  return label_ranks_on_device(logits.contiguous(), kernels::to_device(labels.contiguous(), logits.device()))
      .cpu();
}

}  // namespace clover::train
