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

void count_ranks(const at::Tensor& ranks, HeadMetrics& metrics) {
  const int64_t* rank = ranks.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < ranks.numel(); ++i) {
    if (rank[i] < top_ranks) ++metrics.hits[rank[i]];
  }
}

at::Tensor sum_of(const at::Tensor& sum, const at::Tensor& part) {
  return sum.defined() ? sum + part : part;
}

/// SmoothL1 of rows [F, H], the mean over H and the sum over rows.
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
  std::vector<int64_t> scored, indices;
  for (int64_t i = 0; i < labels.labels.numel(); ++i) {
    const int64_t index = label_map.index_of(ids[i]);
    if (index < 0) continue;
    scored.push_back(i);
    indices.push_back(index);
  }
  VocabularyLabels kept;
  kept.scored = at::tensor(scored, at::kLong);
  kept.labels = at::tensor(indices, at::kLong);
  kept.rows = labels.scored_rows.index_select(0, kept.scored);
  kept.teacher_rows = labels.teacher_rows.index_select(0, kept.scored);
  kept.sample = labels.sample.index_select(0, kept.rows);
  kept.t = labels.t.index_select(0, kept.rows);
  return kept;
}

void check_terms(const LossTerms& terms, const model::Drafter& drafter, int64_t target_hidden) {
  const int64_t width = drafter.head(0).dense.size(1);
  if (!terms.has(LossTerm::smooth_l1) || width == target_hidden) return;
  throw data::InputError(
      "Setting --loss: smooth-l1 compares the heads' outputs with the target's features of " +
      std::to_string(target_hidden) + " numbers, but heads of kind " + drafter.kind() + " have outputs of " +
      std::to_string(width) + "; leave the term out.");
}

/// The heads that are the drafter's own: each is cast once, and has one buffer of gradients, for all depths
/// that share it.
struct Objective::OwnHeads {
  struct Entry {
    LossHead parameters, cast;
    HeadGradient gradient;
  };
  /// Null for a head that is not trained, and where no gradient is wanted.
  Entry* at(int64_t depth, const model::OutputHead& head, const LossHeads& all) {
    if (!head.trainable() || !at::GradMode::is_enabled()) return nullptr;
    Entry& entry = heads[head.dense.unsafeGetTensorImpl()];
    if (!entry.gradient.weight.defined()) {
      entry.parameters = {head.dense, head.dense_bias};
      entry.cast = all.at(depth);
      entry.gradient.weight = at::zeros_like(head.dense.detach());
      if (head.dense_bias.defined()) entry.gradient.bias = at::zeros_like(head.dense_bias.detach());
    }
    return &entry;
  }

  std::map<const void*, Entry> heads;
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

VocabularyTargets Objective::targets_of(const model::Features& features, const VocabularyLabels& kept,
                                        int64_t depth, const Draws& draws) const {
  VocabularyTargets targets{kept.labels};
  if (!reads_features_) return targets;
  const at::Device device = features.post_norm.device();
  targets.teacher = features.post_norm.index_select(0, kernels::to_device(kept.teacher_rows, device));
  targets.teacher_weight = teacher_weight_;
  if (settings_.distill_samples == 0) return targets;
  const int64_t rows = kept.rows.numel(), count = settings_.distill_samples;
  at::Tensor uniforms = at::empty({rows, count}, at::kFloat);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t sample = kept.sample.const_data_ptr<int64_t>()[row];
    const int64_t t = kept.t.const_data_ptr<int64_t>()[row];
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
  OwnHeads own;
  rollout(drafter_, features, batch, feed,
          [&](int64_t depth, const model::DraftState& state, const HeadLabels& labels) {
            HeadMetrics& head = metrics[depth];
            head.labels += labels.labels.numel();
            const VocabularyLabels kept = labels_in_draft_vocab(labels, label_map_);
            if (kept.rows.numel() == 0) return;
            const bool all = kept.rows.numel() == state.hidden.size(0);
            const at::Tensor output = drafter_.head_input(
                all ? state : state.rows(kernels::to_device(kept.rows, state.hidden.device())));
            const VocabularyTargets targets = targets_of(features, kept, depth, draws);
            OwnHeads::Entry* const trained = own.at(depth, drafter_.head(depth), heads_);
            const VocabularyLoss part = chunked_vocabulary_loss(
                output, trained != nullptr ? trained->cast : heads_.at(depth), targets, settings_.terms,
                trained != nullptr ? &trained->gradient : nullptr, head_scale[depth]);
            at::Tensor sum = part.sum;
            TermValues terms = part.terms;
            if (settings_.terms.has(LossTerm::smooth_l1)) {
              const at::Tensor distance = smooth_l1(output, targets.teacher);
              terms[static_cast<size_t>(LossTerm::smooth_l1)] = distance.item<double>();
              sum = sum + distance * settings_.terms[LossTerm::smooth_l1];
            }
            head.loss_sum += sum.item<double>();
            for (size_t k = 0; k < loss_term_count; ++k) head.terms[k] += terms[k];
            head.in_draft_vocab += kept.rows.numel();
            count_ranks(part.ranks, head);
            loss = sum_of(loss, sum * head_scale[depth]);
          });
  for (const auto& [identity, head] : own.heads) {
    loss = sum_of(loss, with_known_gradient(head.parameters.weight, 0, head.gradient.weight));
    if (head.gradient.bias.defined())
      loss = sum_of(loss, with_known_gradient(head.parameters.bias, 0, head.gradient.bias));
  }
  return loss;
}

}  // namespace clover::train
