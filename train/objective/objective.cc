#include "train/objective/objective.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include <map>

#include "data/files/error.h"
#include "kernels/gpu/gpu.h"
#include "model/drafters/vocabulary_head.h"

namespace clover::train {
namespace {

/// Adds ranks i64 [L'] to metrics.hits.
void count_ranks(const at::Tensor& ranks, HeadMetrics& metrics) {
  const int64_t* rank = ranks.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < ranks.numel(); ++i) {
    if (rank[i] < top_ranks) ++metrics.hits[rank[i]];
  }
}

/// sum + part, where `sum` may be undefined.
at::Tensor plus(const at::Tensor& sum, const at::Tensor& part) {
  return sum.defined() ? sum + part : part;
}

/// SmoothL1 of rows [L', H]: the mean over H, then the sum over rows.
at::Tensor smooth_l1(const at::Tensor& output, const at::Tensor& features) {
  at::Tensor slope;
  double sum = 0;
  {
    const at::NoGradGuard no_grad;
    const at::Tensor difference = output - features.to(at::kFloat);
    slope = difference.clamp(-1, 1);  // d^2 / 2 within 1, |d| - 1/2 beyond
    sum = (slope * (difference - slope * 0.5)).sum().item<double>();
  }
  const double width = static_cast<double>(output.size(1));
  return with_known_gradient(output, sum / width, slope.div_(width));
}

}  // namespace

VocabularyLabels labels_in_draft_vocab(const HeadLabels& labels, const LabelMap& label_map) {
  const int64_t* ids = labels.labels.const_data_ptr<int64_t>();
  std::vector<int64_t> label_indices, vocab_indices;
  for (int64_t i = 0; i < labels.labels.numel(); ++i) {
    const int64_t index = label_map.index_of(ids[i]);
    if (index < 0) continue;
    label_indices.push_back(i);
    vocab_indices.push_back(index);
  }
  VocabularyLabels in_vocab;
  in_vocab.label_indices = at::tensor(label_indices, at::kLong);
  in_vocab.labels = at::tensor(vocab_indices, at::kLong);
  in_vocab.rows = labels.scored_rows.index_select(0, in_vocab.label_indices);
  in_vocab.teacher_rows = labels.teacher_rows.index_select(0, in_vocab.label_indices);
  in_vocab.sample = labels.sample.index_select(0, in_vocab.rows);
  in_vocab.t = labels.t.index_select(0, in_vocab.rows);
  return in_vocab;
}

void check_terms(const LossTerms& terms, const model::Drafter& drafter, int64_t target_hidden) {
  const int64_t width = drafter.head(0).dense.size(1);
  if (!terms.has(LossTerm::smooth_l1) || width == target_hidden) return;
  throw data::InputError(
      "Setting --loss: smooth-l1 compares the heads' outputs with the target's features of " +
      std::to_string(target_hidden) + " numbers, but heads of kind " + drafter.kind() + " have outputs of " +
      std::to_string(width) + "; leave the term out.");
}

/// The gradients of the vocabulary products that are trained, in one call of `loss`.  Depths that share a
/// weight share an entry.
struct Objective::HeadGradients {
  struct Entry {
    LossHead parameters;  // fp32, with autograd
    LossHead cast;        // the same in the dtype of the products
    HeadGradient gradient;
  };
  /// The entry of the head at `depth`; null if it is not trained or no gradient is wanted.
  Entry* at(int64_t depth, const model::OutputHead& head, const LossHeads& loss_heads) {
    if (!head.trainable() || !at::GradMode::is_enabled()) return nullptr;
    Entry& entry = heads[head.dense.unsafeGetTensorImpl()];
    if (!entry.gradient.weight.defined()) {
      entry.parameters = {head.dense, head.dense_bias};
      entry.cast = loss_heads.at(depth);
      entry.gradient.weight = at::zeros_like(head.dense.detach());
      if (head.dense_bias.defined()) entry.gradient.bias = at::zeros_like(head.dense_bias.detach());
    }
    return &entry;
  }

  std::map<const void*, Entry> heads;  // by the weight tensor's identity
};

Objective::Objective(model::Drafter& drafter, const model::TargetView& target,
                     const ObjectiveSettings& settings)
    : drafter_(drafter),
      settings_(settings),
      heads_(drafter, settings.dtype),
      label_map_(drafter.head(0).token_map, target.config->vocab) {
  const bool reads_target = settings.terms.reads_target() || settings.distill_samples > 0;
  reads_features_ = reads_target || settings.terms.has(LossTerm::smooth_l1);
  if (!reads_target) return;
  const model::OutputHead& head = drafter.head(0);
  if (!head.trainable()) {  // the target's LM head itself
    teacher_weight_ = heads_.at(0).weight;
    return;
  }
  teacher_weight_ =
      model::lm_head_rows(target, head.token_map).to(drafter.device(), settings.dtype).contiguous();
}

model::FeatureTaps Objective::taps() const {
  model::FeatureTaps taps = drafter_.taps();
  taps.post_norm |= reads_features_;
  return taps;
}

VocabularyTargets Objective::targets_of(const model::Features& features, const VocabularyLabels& labels,
                                        int64_t depth, const Draws& draws) const {
  VocabularyTargets targets{labels.labels};
  if (!reads_features_) return targets;
  const at::Device device = features.post_norm.device();
  targets.teacher = features.post_norm.index_select(0, kernels::to_device(labels.teacher_rows, device));
  targets.teacher_weight = teacher_weight_;
  if (settings_.distill_samples == 0) return targets;
  const int64_t rows = labels.rows.numel(), count = settings_.distill_samples;
  at::Tensor uniforms = at::empty({rows, count}, at::kFloat);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t sample = labels.sample.const_data_ptr<int64_t>()[row];
    const int64_t t = labels.t.const_data_ptr<int64_t>()[row];
    for (int64_t k = 0; k < count; ++k)
      uniforms.data_ptr<float>()[row * count + k] =
          static_cast<float>(draws.uniform(Draws::Purpose::label, sample, t, depth, k));
  }
  targets.uniforms = kernels::to_device(uniforms, device);
  return targets;
}

at::Tensor Objective::loss(const model::Features& features, const PackedBatch& batch, const Feed& feed,
                           const Draws& draws, std::span<const double> head_scale,
                           std::vector<HeadMetrics>& metrics) {
  at::Tensor loss;
  HeadGradients head_gradients;
  rollout(drafter_, features, batch, feed,
          [&](int64_t depth, const model::DraftState& state, const HeadLabels& labels) {
            HeadMetrics& head = metrics[depth];
            head.labels += labels.labels.numel();
            const VocabularyLabels in_vocab = labels_in_draft_vocab(labels, label_map_);
            if (in_vocab.rows.numel() == 0) return;
            const bool all_rows = in_vocab.rows.numel() == state.hidden.size(0);
            const at::Tensor output = drafter_.head_input(
                all_rows ? state : state.rows(kernels::to_device(in_vocab.rows, state.hidden.device())));
            const VocabularyTargets targets = targets_of(features, in_vocab, depth, draws);
            HeadGradients::Entry* const trained = head_gradients.at(depth, drafter_.head(depth), heads_);
            const VocabularyLoss vocabulary_loss = chunked_vocabulary_loss(
                output, trained != nullptr ? trained->cast : heads_.at(depth), targets, settings_.terms,
                trained != nullptr ? &trained->gradient : nullptr, head_scale[depth]);
            at::Tensor sum = vocabulary_loss.sum;
            TermValues terms = vocabulary_loss.terms;
            if (settings_.terms.has(LossTerm::smooth_l1)) {
              const at::Tensor distance = smooth_l1(output, targets.teacher);
              terms[static_cast<size_t>(LossTerm::smooth_l1)] = distance.item<double>();
              sum = sum + distance * settings_.terms[LossTerm::smooth_l1];
            }
            head.loss_sum += sum.item<double>();
            for (size_t k = 0; k < loss_term_count; ++k) head.terms[k] += terms[k];
            head.in_draft_vocab += in_vocab.rows.numel();
            count_ranks(vocabulary_loss.ranks, head);
            loss = plus(loss, sum * head_scale[depth]);
          });
  // Terms of value 0 that hand the gradients of the vocabulary products to autograd.
  for (const auto& [identity, head] : head_gradients.heads) {
    loss = plus(loss, with_known_gradient(head.parameters.weight, 0, head.gradient.weight));
    if (head.gradient.bias.defined())
      loss = plus(loss, with_known_gradient(head.parameters.bias, 0, head.gradient.bias));
  }
  return loss;
}

}  // namespace clover::train
