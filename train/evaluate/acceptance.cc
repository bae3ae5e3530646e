#include "train/evaluate/acceptance.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "data/files/error.h"
#include "infer/program/interrupt.h"
#include "infer/requests/run_requests.h"

namespace clover::train {
namespace {

/// Sums over the answers of one category.
struct CategorySteps {
  int64_t tokens = 0;  // without the first of each answer, which prefill yields
  int64_t steps = 0;
  double tokens_per_step() const {
    return steps ? static_cast<double>(tokens) / static_cast<double>(steps) : 0;
  }
};

}  // namespace

int64_t prompt_length(std::span<const uint8_t> supervised) {
  const int64_t unsupervised =
      std::find(supervised.begin(), supervised.end(), uint8_t{1}) - supervised.begin();
  return unsupervised > 0 ? unsupervised : std::max<int64_t>(1, static_cast<int64_t>(supervised.size()) / 4);
}

std::vector<EvalPrompt> held_out_prompts(const data::TokenStore& store, int64_t limit, int64_t context,
                                         int64_t max_tokens) {
  std::vector<EvalPrompt> prompts;
  for (int64_t i = 0; i < store.size(data::Split::held_out) && static_cast<int64_t>(prompts.size()) < limit;
       ++i) {
    const auto sample = store.sample(data::Split::held_out, i);
    const int64_t length = prompt_length(sample.supervised);
    if (length + max_tokens > context) continue;
    prompts.push_back({{sample.ids.begin(), sample.ids.begin() + length}, std::string(sample.category)});
  }
  return prompts;
}

Acceptance::Acceptance(const model::Target& target, const data::Tokenizer& tokenizer,
                       std::vector<EvalPrompt> prompts, AcceptanceSettings settings)
    : target_(target), tokenizer_(tokenizer), prompts_(std::move(prompts)), settings_(settings) {}

std::vector<infer::Completion> Acceptance::decode(model::Drafter* drafter, infer::EngineStats& stats) {
  infer::EngineOptions options;
  options.growth = {drafter ? infer::parse_policy("clover") : infer::plain_policy};
  options.budget = drafter ? settings_.budget : 0;
  options.max_batch = settings_.max_batch;
  // The KV cache is only as large as the prompts need, to leave GPU memory for training.
  int64_t longest = 0;
  for (const EvalPrompt& prompt : prompts_) longest = std::max<int64_t>(longest, std::ssize(prompt.ids));
  options.kv_memory =
      infer::kv_memory_for(target_, drafter, std::min<int64_t>(settings_.max_batch, std::ssize(prompts_)),
                           longest + settings_.max_tokens, options.page_size);
  infer::Engine engine(target_, drafter, tokenizer_, options);
  for (size_t i = 0; i < prompts_.size(); ++i) {
    infer::Request request;
    request.tag = static_cast<int64_t>(i);
    request.prompt = prompts_[i].ids;
    request.max_tokens = settings_.max_tokens;
    engine.submit(std::move(request));
  }
  std::vector<infer::Completion> completions(prompts_.size());
  while (!engine.idle()) {
    infer::stop_if_interrupted();
    for (auto& completion : engine.step()) {
      const int64_t tag = completion.tag;
      if (!completion.error.empty())
        throw data::InputError("prompt " + std::to_string(tag + 1) +
                               " of the evaluation: " + completion.error + ".");
      completions[tag] = std::move(completion);
    }
  }
  stats = engine.stats();
  return completions;
}

const std::vector<std::vector<int64_t>>& Acceptance::plain_answers() {
  if (plain_answers_.empty() && !prompts_.empty()) {
    infer::EngineStats unused;
    for (auto& completion : decode(nullptr, unused))
      plain_answers_.push_back(std::move(completion.token_ids));
  }
  return plain_answers_;
}

AcceptanceMetrics Acceptance::measure(model::Drafter& drafter) {
  AcceptanceMetrics metrics;
  if (prompts_.empty()) return metrics;
  const auto& plain = plain_answers();
  const bool was_frozen = drafter.frozen();
  if (!was_frozen) drafter.freeze(target_.dtype());
  const auto start = std::chrono::steady_clock::now();
  infer::EngineStats stats;
  const auto answers = decode(&drafter, stats);
  metrics.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!was_frozen) drafter.thaw();

  std::map<std::string, CategorySteps> categories;
  for (size_t i = 0; i < answers.size(); ++i) {
    metrics.mismatches += answers[i].token_ids != plain[i];
    CategorySteps& category = categories[prompts_[i].category];
    category.tokens += static_cast<int64_t>(answers[i].token_ids.size()) - 1;
    category.steps += answers[i].steps;
  }
  metrics.tokens_per_step = stats.tokens_per_step();
  metrics.tokens = stats.tokens;
  metrics.passes = stats.passes;
  metrics.accepted_histogram = stats.accepted_histogram;
  metrics.by_category = nlohmann::json::object();
  for (const auto& [category, steps] : categories) {
    if (!category.empty()) metrics.by_category[category] = steps.tokens_per_step();
  }
  return metrics;
}

}  // namespace clover::train
