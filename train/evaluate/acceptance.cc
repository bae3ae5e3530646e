#include "train/evaluate/acceptance.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "infer/requests/run_requests.h"
#include "train/evaluate/answer_requests.h"

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

}  // namespace

std::vector<infer::Completion> Acceptance::decode(model::Drafter& drafter) const {
  const std::vector<EvalPrompt>& prompts = answers_.prompts();
  const AnswerSettings& settings = answers_.settings();
  infer::EngineOptions options;
  options.growth = {infer::parse_policy("clover")};
  options.budget = budget_;
  options.max_batch = settings.max_batch;
  options.recorded_answers = true;
  // The KV cache is only as large as the prompts need, to leave GPU memory for training.
  int64_t longest = 0;
  for (const EvalPrompt& prompt : prompts) longest = std::max<int64_t>(longest, std::ssize(prompt.ids));
  options.kv_memory =
      infer::kv_memory_for(target_, &drafter, std::min<int64_t>(settings.max_batch, std::ssize(prompts)),
                           longest + settings.max_tokens, options.page_size);
  infer::Engine engine(target_, &drafter, tokenizer_, options);
  const auto make_request = [&](size_t i) {
    infer::Request request;
    request.prompt = prompts[i].ids;
    request.max_tokens = settings.max_tokens;
    request.recorded = answers_.recorded(i, drafter.taps());
    return request;
  };
  return answer_requests(engine, settings.max_batch, prompts.size(), make_request,
                         settings.shows_progress ? "decoding" : "");
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
  const bool was_frozen = drafter.frozen();
  if (!was_frozen) drafter.freeze(target_.dtype());
  AcceptanceMetrics metrics = metrics_of(decode(drafter));
  answers_.feature_cache().free_pass_memory();
  if (!was_frozen) drafter.thaw();
  metrics.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return metrics;
}

}  // namespace clover::train
