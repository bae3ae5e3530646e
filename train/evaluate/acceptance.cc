#include "train/evaluate/acceptance.h"

#include <chrono>
#include <map>

#include "infer/requests/report.h"
#include "model/drafters/frozen_for.h"
#include "train/evaluate/answer_prompts.h"

namespace clover::train {
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
  infer::RequestTotals all;
  std::map<std::string, infer::RequestTotals> categories;
  for (size_t i = 0; i < completions.size(); ++i) {
    all.add(completions[i]);
    categories[answers_.prompts()[i].category].add(completions[i]);
  }
  AcceptanceMetrics metrics{.tokens_per_step = all.tokens_per_step(),
                            .tokens = all.tokens,
                            .passes = all.passes,
                            .accepted_histogram = all.accepted_histogram,
                            .by_category = nlohmann::json::object()};
  for (const auto& [category, totals] : categories)
    if (!category.empty()) metrics.by_category[category] = totals.tokens_per_step();
  return metrics;
}

AcceptanceMetrics Acceptance::measure(model::Drafter& drafter) {
  if (answers_.prompts().empty()) return {};
  const auto start = std::chrono::steady_clock::now();
  answers_.find();
  answers_.feature_cache().free_pass_memory();
  const model::FrozenFor frozen(drafter, answers_.target().dtype());
  AcceptanceMetrics metrics = metrics_of(decode(drafter));
  answers_.feature_cache().free_pass_memory();
  metrics.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return metrics;
}

}  // namespace clover::train
