#include "train/evaluate/evaluation.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "data/files/error.h"
#include "infer/program/interrupt.h"
#include "infer/program/progress.h"
#include "train/features/feature_cache.h"
#include "train/objective/objective.h"

namespace clover::train {
namespace {

class Evaluation {
 public:
  Evaluation(const EvalSettings& settings, const model::Target& target, const data::Tokenizer& tokenizer,
             model::Drafter& drafter, std::vector<EvalSample> samples)
      : settings_(settings),
        target_(target),
        tokenizer_(tokenizer),
        drafter_(drafter),
        samples_(std::move(samples)),
        metrics_(drafter.trained_depth()) {}

  EvalMetrics run() {
    decode();
    score();
    return std::move(metrics_);
  }

 private:
  /// Measures tokens per step by decoding; prompts without an answer get the target's.
  void decode() {
    std::vector<EvalPrompt> prompts;
    std::vector<EvalSample*> decoded;
    for (auto& sample : samples_) {
      const int64_t length = prompt_length(sample.supervised);
      if (sample.ids.empty() || length + settings_.decoder.max_tokens > target_.config().context) continue;
      prompts.push_back({{sample.ids.begin(), sample.ids.begin() + length},
                         sample.category,
                         {sample.ids.begin() + length, sample.ids.end()}});
      decoded.push_back(&sample);
    }
    if (prompts.empty()) {
      throw data::InputError("No prompt of the input leaves room for --max-tokens " +
                             std::to_string(settings_.decoder.max_tokens) + " in the target's context of " +
                             std::to_string(target_.config().context) + " tokens: give a smaller number.");
    }
    if (const size_t without_room = samples_.size() - prompts.size(); without_room > 0) {
      std::fprintf(
          stderr,
          "%zu of %zu samples are not decoded: their prompts leave no room for --max-tokens %lld in the "
          "target's context of %lld tokens\n",
          without_room, samples_.size(), static_cast<long long>(settings_.decoder.max_tokens),
          static_cast<long long>(target_.config().context));
    }
    Acceptance acceptance(target_, tokenizer_, std::move(prompts), settings_.decoder);
    metrics_.decoder = acceptance.measure(drafter_);
    for (size_t i = 0; i < decoded.size(); ++i) {
      if (decoded[i]->has_answer()) continue;
      const auto& answer = acceptance.answers()[i];
      decoded[i]->ids.insert(decoded[i]->ids.end(), answer.begin(), answer.end());
      decoded[i]->supervised.resize(decoded[i]->ids.size(), 1);
    }
    // Prompts without room for an answer have no labels to score.
    std::erase_if(samples_, [](const EvalSample& sample) { return !sample.has_answer(); });
  }

  /// Scores the drafter's guesses on the answers.
  void score() {
    size_t longest = 0;
    for (const auto& sample : samples_) longest = std::max(longest, sample.ids.size());
    const LabelMap label_map(drafter_.head(0).token_map, target_.config().vocab);
    const LossHeads heads(drafter_, at::kFloat);
    if (!settings_.loss.empty()) {
      objective_.emplace(drafter_, target_.view(),
                         ObjectiveSettings{.terms = LossTerms::parse(settings_.loss)});
      metrics_.losses.resize(drafter_.trained_depth());
    }
    const model::FeatureTaps taps = objective_ ? objective_->taps() : drafter_.taps();
    FeatureCache feature_cache(target_, taps, static_cast<int64_t>(longest), 0, {settings_.target_folder});
    infer::Progress progress("scoring", static_cast<int64_t>(samples_.size()), 0);
    for (size_t begin = 0; begin < samples_.size(); begin += settings_.micro_batch) {
      infer::stop_if_interrupted();
      const size_t count = std::min(static_cast<size_t>(settings_.micro_batch), samples_.size() - begin);
      score_batch(std::span(samples_).subspan(begin, count), feature_cache, label_map, heads);
      progress.update(static_cast<int64_t>(begin + count), "");
    }
  }

  /// Scores one micro-batch.
  void score_batch(std::span<const EvalSample> group, FeatureCache& feature_cache, const LabelMap& label_map,
                   const LossHeads& heads) {
    std::vector<std::vector<int32_t>> ids;
    std::vector<data::TokenStore::Sample> samples;
    std::vector<int64_t> rows;
    const TeacherRow teacher = objective_ ? objective_->wants_teacher_row() : TeacherRow::no;
    for (const EvalSample& sample : group) ids.emplace_back(sample.ids.begin(), sample.ids.end());
    for (size_t i = 0; i < group.size(); ++i) {
      samples.push_back({ids[i], group[i].supervised, group[i].category});
      rows.push_back(useful_rows(samples[i], drafter_.trained_depth(), teacher));
    }
    const PackedBatch batch = on_device(pack(samples, drafter_.trained_depth(), teacher), target_.device());
    if (batch.rows == 0) return;
    const model::Features features =
        feature_cache.features_of(samples, rows, std::vector<int64_t>(group.size(), -1));
    if (objective_) {
      const at::NoGradGuard no_grad;
      const std::vector<double> scale(drafter_.trained_depth(), 1);
      objective_->loss(features, batch, {}, {}, scale, metrics_.losses);
    }
    for (const bool own_guesses : {false, true}) {
      const Feed feed{.own_guess_share = own_guesses ? 1.0 : 0.0, .heads = &heads};
      for (const ScoredLabel& label : score_labels(drafter_, features, batch, label_map, heads, feed))
        count(label, own_guesses, group[label.sample]);
    }
  }

  /// Adds a label of `sample` to the metrics.
  void count(const ScoredLabel& label, bool own_guesses, const EvalSample& sample) {
    const int64_t heads = drafter_.trained_depth();
    metrics_.overall.add(label, own_guesses);
    if (!sample.category.empty())
      metrics_.by_category.try_emplace(sample.category, heads).first->second.add(label, own_guesses);
    const int64_t bucket = bucket_of(label.position - sample.answer_begin());
    metrics_.by_position.try_emplace(bucket, heads).first->second.add(label, own_guesses);
  }

  const EvalSettings& settings_;
  const model::Target& target_;
  const data::Tokenizer& tokenizer_;
  model::Drafter& drafter_;
  std::vector<EvalSample> samples_;
  std::optional<Objective> objective_;
  EvalMetrics metrics_;
};

}  // namespace

void Accuracy::add(const ScoredLabel& label, bool with_own_guesses) {
  HeadMetrics& metrics = (with_own_guesses ? own_guesses : teacher_forced)[label.head];
  ++metrics.labels;
  if (label.rank < top_ranks) ++metrics.hits[label.rank];
}

int64_t bucket_of(int64_t distance) {
  int64_t bucket = 0;
  for (int64_t end = 16; distance >= end; end *= 2) ++bucket;
  return bucket;
}

int64_t bucket_begin(int64_t bucket) {
  return bucket == 0 ? 0 : int64_t{16} << (bucket - 1);
}

EvalMetrics evaluate(const EvalSettings& settings, const model::Target& target,
                     const data::Tokenizer& tokenizer, model::Drafter& drafter,
                     std::vector<EvalSample> samples) {
  return Evaluation(settings, target, tokenizer, drafter, std::move(samples)).run();
}

}  // namespace clover::train
