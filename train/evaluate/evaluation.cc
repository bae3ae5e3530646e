#include "train/evaluate/evaluation.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "data/files/error.h"
#include "infer/program/interrupt.h"
#include "infer/program/progress.h"
#include "train/evaluate/eval_prompts.h"
#include "train/evaluate/target_answers.h"
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
        prompt_of_(samples_.size(), -1),
        metrics_(drafter.trained_depth()) {
    if (settings.loss.empty()) return;
    objective_.emplace(drafter_, target_.view(),
                       ObjectiveSettings{.terms = LossTerms::parse(settings_.loss)});
    metrics_.losses.resize(drafter_.trained_depth());
  }

  EvalMetrics run() {
    decode();
    score();
    return std::move(metrics_);
  }

 private:
  /// Measures tokens per step by decoding; prompts without an answer get the target's.
  void decode() {
    std::vector<EvalPrompt> prompts;
    const int64_t max_tokens = settings_.answers.max_tokens;
    for (size_t i = 0; i < samples_.size(); ++i) {
      const EvalSample& sample = samples_[i];
      const int64_t length = prompt_length(sample.supervised);
      if (sample.ids.empty() || length + max_tokens > target_.config().context) continue;
      prompt_of_[i] = std::ssize(prompts);
      prompts.push_back({{sample.ids.begin(), sample.ids.begin() + length},
                         sample.category,
                         {sample.ids.begin() + length, sample.ids.end()}});
    }
    if (prompts.empty()) {
      throw data::InputError("No prompt of the input leaves room for --max-tokens " +
                             std::to_string(max_tokens) + " in the target's context of " +
                             std::to_string(target_.config().context) + " tokens: give a smaller number.");
    }
    if (const size_t without_room = samples_.size() - prompts.size(); without_room > 0) {
      std::fprintf(
          stderr,
          "%zu of %zu samples are not decoded: their prompts leave no room for --max-tokens %lld in the "
          "target's context of %lld tokens\n",
          without_room, samples_.size(), static_cast<long long>(max_tokens),
          static_cast<long long>(target_.config().context));
    }
    metrics_.decoded = std::ssize(prompts);
    AnswerSettings answer_settings = settings_.answers;
    for (const EvalSample& sample : samples_)
      answer_settings.longest_scored_text =
          std::max(answer_settings.longest_scored_text, std::ssize(sample.ids));
    answers_.emplace(target_, tokenizer_, std::move(prompts), answer_settings,
                     objective_ ? objective_->taps() : drafter_.taps());
    metrics_.decoder = Acceptance(*answers_, settings_.budget).measure(drafter_);
    metrics_.confirmed = answers_->confirmed();
    for (size_t i = 0; i < samples_.size(); ++i) {
      EvalSample& sample = samples_[i];
      if (prompt_of_[i] < 0 || sample.has_answer()) continue;
      const std::vector<int64_t>& answer = answers_->answer(prompt_of_[i]);
      sample.ids.insert(sample.ids.end(), answer.begin(), answer.end());
      sample.supervised.resize(sample.ids.size(), 1);
    }
  }

  /// Scores the drafter's guesses on the answers.
  void score() {
    const LabelMap label_map(drafter_.head(0).token_map, target_.config().vocab);
    const LossHeads heads(drafter_, at::kFloat);
    // Prompts without room for an answer have no labels to score.
    std::vector<size_t> scored;
    for (size_t i = 0; i < samples_.size(); ++i)
      if (samples_[i].has_answer()) scored.push_back(i);
    infer::Progress progress("scoring", std::ssize(scored), 0);
    for (size_t begin = 0; begin < scored.size(); begin += settings_.micro_batch) {
      infer::stop_if_interrupted();
      const size_t count = std::min(static_cast<size_t>(settings_.micro_batch), scored.size() - begin);
      score_batch(std::span(scored).subspan(begin, count), label_map, heads);
      progress.update(static_cast<int64_t>(begin + count), "");
    }
  }

  /// Scores one micro-batch: the samples of these indices.
  void score_batch(std::span<const size_t> group, const LabelMap& label_map, const LossHeads& heads) {
    std::vector<std::vector<int32_t>> ids;
    std::vector<data::TokenStore::Sample> samples;
    std::vector<int64_t> rows, keys, prompt_lengths;
    const TeacherRow teacher = objective_ ? objective_->wants_teacher_row() : TeacherRow::no;
    for (const size_t i : group) ids.emplace_back(samples_[i].ids.begin(), samples_[i].ids.end());
    for (size_t n = 0; n < group.size(); ++n) {
      const EvalSample& sample = samples_[group[n]];
      samples.push_back({ids[n], sample.supervised, sample.category});
      rows.push_back(useful_rows(samples[n], drafter_.trained_depth(), teacher));
      prompt_lengths.push_back(prompt_length(sample.supervised));
      keys.push_back(prompt_of_[group[n]] < 0 ? -1 : answers_->sample_key(prompt_of_[group[n]]));
    }
    const PackedBatch batch = on_device(pack(samples, drafter_.trained_depth(), teacher), target_.device());
    if (batch.rows == 0) return;
    const model::Features features =
        answers_->feature_cache().features_of(samples, rows, keys, prompt_lengths);
    if (objective_) {
      const at::NoGradGuard no_grad;
      const std::vector<double> scale(drafter_.trained_depth(), 1);
      objective_->loss(features, batch, {}, {}, scale, metrics_.losses);
    }
    std::vector<ScoredLabel> labels;
    for (const bool own_guesses : {false, true}) {
      const Feed feed{.own_guess_share = own_guesses ? 1.0 : 0.0, .heads = &heads};
      if (!own_guesses || drafter_.autoregressive())  // else both are the same
        labels = score_labels(drafter_, features, batch, label_map, heads, feed);
      for (const ScoredLabel& label : labels) count(label, own_guesses, samples_[group[label.sample]]);
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
  std::vector<int64_t> prompt_of_;  // [samples] its index among the prompts; -1: it is not decoded
  std::optional<Objective> objective_;
  std::optional<TargetAnswers> answers_;
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
