#include "train/evaluate/acceptance.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "train/evaluate/answer_prompts.h"

namespace clover::train {
namespace {

/// Sums over answers.
struct Steps {
  int64_t tokens = 0;  // without the first of each answer, which prefill yields
  int64_t steps = 0;
  void add(const infer::Completion& completion) {
    tokens += std::ssize(completion.token_ids) - 1;
    steps += completion.steps;
  }
  double tokens_per_step() const {
    return steps ? static_cast<double>(tokens) / static_cast<double>(steps) : 0;
  }
};

/// Keeps a drafter frozen; thaws it in the end if it was thawed.
class FrozenFor {
 public:
  FrozenFor(model::Drafter& drafter, at::ScalarType dtype) : thawed_(drafter.frozen() ? nullptr : &drafter) {
    if (thawed_) thawed_->freeze(dtype);
  }
  ~FrozenFor() {
    if (thawed_) thawed_->thaw();
  }
  FrozenFor(const FrozenFor&) = delete;
  FrozenFor& operator=(const FrozenFor&) = delete;

 private:
  model::Drafter* thawed_;
};

}  // namespace

std::vector<infer::Completion> Acceptance::decode(model::Drafter& drafter) const {
  infer::EngineOptions options;
  options.growth = {infer::parse_policy("clover")};
  options.budget = budget_;
  options.max_batch = answers_.settings().max_batch;
  std::vector<const EvalPrompt*> prompts;
  for (const EvalPrompt& prompt : answers_.prompts()) prompts.push_back(&prompt);
  return answer_prompts(
      answers_.target(), &drafter, answers_.tokenizer(), options, prompts, answers_.settings().max_tokens,
      [&](size_t i) { return answers_.recorded(i, drafter.taps()); },
      answers_.settings().shows_progress ? "decoding" : "");
}

AcceptanceMetrics Acceptance::metrics_of(const std::vector<infer::Completion>& completions) const {
  AcceptanceMetrics metrics;
  Steps all;
  std::map<std::string, Steps> categories;
  for (size_t i = 0; i < completions.size(); ++i) {
    const infer::Completion& completion = completions[i];
    all.add(completion);
    categories[answers_.prompts()[i].category].add(completion);
    metrics.tokens += std::ssize(completion.token_ids);
    auto& histogram = metrics.accepted_histogram;
    histogram.resize(std::max(histogram.size(), completion.accepted_histogram.size()));
    for (size_t n = 0; n < completion.accepted_histogram.size(); ++n)
      histogram[n] += completion.accepted_histogram[n];
  }
  metrics.tokens_per_step = all.tokens_per_step();
  metrics.passes = all.steps;
  metrics.by_category = nlohmann::json::object();
  for (const auto& [category, steps] : categories) {
    if (!category.empty()) metrics.by_category[category] = steps.tokens_per_step();
  }
  return metrics;
}

AcceptanceMetrics Acceptance::measure(model::Drafter& drafter) {
  if (answers_.prompts().empty()) return {};
  const auto start = std::chrono::steady_clock::now();
  answers_.find();
  answers_.feature_cache().free_pass_memory();
  const FrozenFor frozen(drafter, answers_.target().dtype());
  AcceptanceMetrics metrics = metrics_of(decode(drafter));
  answers_.feature_cache().free_pass_memory();
  metrics.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return metrics;
}

}  // namespace clover::train
