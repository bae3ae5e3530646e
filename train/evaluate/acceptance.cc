#include "train/evaluate/acceptance.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>
#include <optional>

#include "data/files/error.h"
#include "infer/program/interrupt.h"
#include "infer/program/progress.h"
#include "infer/requests/run_requests.h"

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

std::vector<size_t> all_indices(size_t count) {
  std::vector<size_t> indices(count);
  std::iota(indices.begin(), indices.end(), size_t{0});
  return indices;
}

bool begins_with(std::span<const int64_t> ids, std::span<const int64_t> beginning) {
  return ids.size() >= beginning.size() && std::ranges::equal(ids.first(beginning.size()), beginning);
}

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
    prompts.push_back({{sample.ids.begin(), sample.ids.begin() + length},
                       std::string(sample.category),
                       {sample.ids.begin() + length, sample.ids.end()}});
  }
  return prompts;
}

Acceptance::Acceptance(const model::Target& target, const data::Tokenizer& tokenizer,
                       std::vector<EvalPrompt> prompts, AcceptanceSettings settings)
    : target_(target),
      tokenizer_(tokenizer),
      prompts_(std::move(prompts)),
      settings_(settings),
      differs_(prompts_.size()) {
  for (EvalPrompt& prompt : prompts_) {
    answers_.push_back(std::move(prompt.answer));
    answers_.back().resize(std::min(std::ssize(answers_.back()), settings_.max_tokens));
  }
}

std::vector<infer::Completion> Acceptance::decode(model::Drafter* drafter, std::span<const size_t> indices,
                                                  const std::string& progress_label) const {
  infer::EngineOptions options;
  options.growth = {drafter ? infer::parse_policy("clover") : infer::plain_policy};
  options.budget = drafter ? settings_.budget : 0;
  options.max_batch = settings_.max_batch;
  // The KV cache is only as large as the prompts need, to leave GPU memory for training.
  int64_t longest = 0;
  for (const size_t i : indices) longest = std::max<int64_t>(longest, std::ssize(prompts_[i].ids));
  options.kv_memory =
      infer::kv_memory_for(target_, drafter, std::min<int64_t>(settings_.max_batch, std::ssize(indices)),
                           longest + settings_.max_tokens, options.page_size);
  infer::Engine engine(target_, drafter, tokenizer_, options);
  for (size_t i = 0; i < indices.size(); ++i) {
    infer::Request request;
    request.tag = static_cast<int64_t>(i);
    request.prompt = prompts_[indices[i]].ids;
    request.max_tokens = settings_.max_tokens;
    if (drafter) request.expected_answer = answers_[indices[i]];
    engine.submit(std::move(request));
  }
  std::optional<infer::Progress> progress;
  if (settings_.shows_progress) progress.emplace(progress_label, std::ssize(indices));
  std::vector<infer::Completion> completions(indices.size());
  while (!engine.idle()) {
    infer::stop_if_interrupted();
    for (auto& completion : engine.step()) {
      const int64_t tag = completion.tag;
      if (!completion.error.empty())
        throw data::InputError("prompt " + std::to_string(indices[tag] + 1) +
                               " of the evaluation: " + completion.error + ".");
      completions[tag] = std::move(completion);
    }
    if (progress) progress->update(engine.stats().requests);
  }
  if (progress) progress->finish();
  return completions;
}

/// Sets answers_ to the target's.  `completions`: of all prompts, with the samples' answers as expected ones.
/// Returns whether all of these were right: then the completions are those of a measurement.
bool Acceptance::find_answers(std::span<const infer::Completion> completions) {
  bool all_right = true;
  std::vector<size_t> wrong;
  for (size_t i = 0; i < completions.size(); ++i) {
    const bool right = begins_with(answers_[i], completions[i].token_ids);
    all_right &= right;
    // Without an expected answer nothing was guessed: that was plain decoding.
    if (right || answers_[i].empty())
      answers_[i] = completions[i].token_ids;
    else
      wrong.push_back(i);
  }
  if (!wrong.empty()) {
    std::vector<infer::Completion> plain = decode(nullptr, wrong, "plain decoding");
    for (size_t i = 0; i < wrong.size(); ++i) {
      differs_[wrong[i]] |= completions[wrong[i]].token_ids != plain[i].token_ids;
      answers_[wrong[i]] = std::move(plain[i].token_ids);
    }
  }
  found_answers_ = true;
  return all_right;
}

AcceptanceMetrics Acceptance::metrics_of(std::span<const infer::Completion> completions) {
  AcceptanceMetrics metrics;
  Steps all;
  std::map<std::string, Steps> categories;
  for (size_t i = 0; i < completions.size(); ++i) {
    const infer::Completion& completion = completions[i];
    all.add(completion);
    categories[prompts_[i].category].add(completion);
    metrics.mismatches += differs_[i] || completion.token_ids != answers_[i];
    metrics.tokens += std::ssize(completion.token_ids);
    auto& histogram = metrics.accepted_histogram;
    histogram.resize(std::max(histogram.size(), completion.accepted_histogram.size()));
    for (size_t n = 0; n < completion.accepted_histogram.size(); ++n)
      histogram[n] += completion.accepted_histogram[n];
  }
  differs_.assign(differs_.size(), 0);
  metrics.tokens_per_step = all.tokens_per_step();
  metrics.passes = all.steps;
  metrics.by_category = nlohmann::json::object();
  for (const auto& [category, steps] : categories) {
    if (!category.empty()) metrics.by_category[category] = steps.tokens_per_step();
  }
  return metrics;
}

AcceptanceMetrics Acceptance::measure(model::Drafter& drafter) {
  if (prompts_.empty()) return {};
  const bool was_frozen = drafter.frozen();
  if (!was_frozen) drafter.freeze(target_.dtype());
  const auto start = std::chrono::steady_clock::now();
  const std::vector<size_t> all = all_indices(prompts_.size());
  std::vector<infer::Completion> completions = decode(&drafter, all, "decoding");
  // All of them again, because on a GPU the number of steps depends on which sequences decode together.
  if (!found_answers_ && !find_answers(completions)) completions = decode(&drafter, all, "decoding again");
  AcceptanceMetrics metrics = metrics_of(completions);
  metrics.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!was_frozen) drafter.thaw();
  return metrics;
}

}  // namespace clover::train
