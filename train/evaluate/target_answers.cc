#include "train/evaluate/target_answers.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <span>

#include "data/files/files.h"
#include "data/files/hash.h"
#include "infer/engine/end_tokens.h"
#include "infer/program/interrupt.h"
#include "infer/program/machine.h"
#include "infer/program/progress.h"
#include "infer/requests/run_requests.h"
#include "kernels/cpu/cpu_path.h"
#include "kernels/gpu/gpu.h"
#include "kernels/linear/linear.h"
#include "train/evaluate/answer_requests.h"

namespace clover::train {
namespace {

constexpr size_t group_size = 16;  // samples whose features are computed together

/// Tokens of the longest text: a prompt with its sample's answer, or with as much as the target may answer.
int64_t longest_text(const std::vector<EvalPrompt>& prompts, int64_t max_tokens) {
  int64_t longest = 0;
  for (const EvalPrompt& prompt : prompts)
    longest = std::max(longest, std::ssize(prompt.ids) + std::max(std::ssize(prompt.answer), max_tokens));
  return longest;
}

/// A hash of all tokens of prompts and samples' answers, and of where they end.
std::string content_hash(const std::vector<EvalPrompt>& prompts) {
  uint64_t hash = 0;
  for (const EvalPrompt& prompt : prompts) {
    for (const std::vector<int64_t>* ids : {&prompt.ids, &prompt.answer}) {
      const int64_t count = std::ssize(*ids);
      hash = data::xxh64({reinterpret_cast<const char*>(&count), sizeof count}, hash);
      hash = data::xxh64({reinterpret_cast<const char*>(ids->data()), ids->size() * sizeof(int64_t)}, hash);
    }
  }
  return data::hex(hash);
}

/// A prompt and what follows it, as FeatureCache reads them.
struct Text {
  std::vector<int32_t> ids;
  Text(const EvalPrompt& prompt, std::span<const int64_t> answer)
      : ids(prompt.ids.begin(), prompt.ids.end()) {
    ids.insert(ids.end(), answer.begin(), answer.end());
  }
  int64_t rows() const { return std::ssize(ids) - 1; }  // but the last token's, after which nothing follows
};

/// `taps` and what the target's tokens are computed from.
model::FeatureTaps with_post_norm(model::FeatureTaps taps) {
  taps.post_norm = true;
  return taps;
}

}  // namespace

TargetAnswers::TargetAnswers(const model::Target& target, const data::Tokenizer& tokenizer,
                             std::vector<EvalPrompt> prompts, AnswerSettings settings,
                             const model::FeatureTaps& taps)
    : target_(target),
      tokenizer_(tokenizer),
      prompts_(std::move(prompts)),
      settings_(std::move(settings)),
      taps_(with_post_norm(taps)),
      end_ids_(infer::default_end_ids(target.config(), tokenizer)),
      file_is_there_(!settings_.feature_file.empty() && std::filesystem::exists(settings_.feature_file)),
      feature_cache_(target, taps_,
                     std::max(settings_.longest_text, longest_text(prompts_, settings_.max_tokens)),
                     infer::default_cache_bytes(at::kCPU),
                     {settings_.target_folder, file_is_there_ ? settings_.feature_file : ""}),
      answers_(prompts_.size()),
      confirmed_(prompts_.size()) {
  if (!settings_.feature_file.empty()) open_feature_file();
}

FeatureFile TargetAnswers::file() const {
  return {settings_.feature_file,
          {{"target", target_.fingerprint()},
           {"data", content_hash(prompts_)},
           {"dtype", model::dtype_name(target_.dtype())},
           {"kernels", target_.device().is_cpu() ? kernels::to_string(kernels::cpu_path()) : "cuda"}},
          taps_.layers,
          target_.sampled_fingerprint()};
}

/// Each prompt has two entries in the file: with the sample's answer, and with the target's where they
/// differ.
void TargetAnswers::open_feature_file() {
  const int64_t entries = 2 * std::ssize(prompts_);
  std::vector<model::Features> stored;
  if (file_is_there_)
    stored = file().read(entries, target_.config().hidden, target_.dtype());
  else
    data::check_writable(settings_.feature_file);
  std::vector<int64_t> used;
  for (int64_t i = 0; i < std::ssize(prompts_); ++i)
    if (!prompts_[i].answer.empty()) used.push_back(i);
  feature_cache_.retain_for_file(stored, entries, used);
}

void TargetAnswers::save_features() {
  const auto* features = feature_cache_.all_features(2 * std::ssize(prompts_));
  if (features == nullptr)
    std::fprintf(
        stderr,
        "--feature-file %s was not written: the features do not fit into an eighth of the free memory\n",
        settings_.feature_file.c_str());
  else
    file().write(*features);
}

int64_t TargetAnswers::sample_key(size_t prompt) const {
  return static_cast<int64_t>(prompts_[prompt].answer.empty() ? prompts_.size() + prompt : prompt);
}

int64_t TargetAnswers::answer_key(size_t prompt) const {
  return static_cast<int64_t>(confirmed_[prompt] ? prompt : prompts_.size() + prompt);
}

/// The sample's answer, as far as the target could go on.
std::vector<int64_t> TargetAnswers::sample_answer(size_t prompt) const {
  const std::vector<int64_t>& whole = prompts_[prompt].answer;
  const auto limit = whole.begin() + std::min(std::ssize(whole), settings_.max_tokens);
  const auto end = std::find_first_of(whole.begin(), limit, end_ids_.begin(), end_ids_.end());
  return {whole.begin(), end == limit ? limit : end + 1};
}

bool TargetAnswers::is_complete(std::span<const int64_t> answer) const {
  return std::ssize(answer) == settings_.max_tokens ||
         (!answer.empty() && std::ranges::find(end_ids_, answer.back()) != end_ids_.end());
}

void TargetAnswers::find() {
  if (std::exchange(found_, true)) return;
  std::vector<size_t> with_answer;
  for (size_t i = 0; i < prompts_.size(); ++i)
    if (!prompts_[i].answer.empty()) with_answer.push_back(i);
  std::optional<infer::Progress> progress;
  if (settings_.shows_progress) progress.emplace("reading answers", std::ssize(with_answer));
  for (size_t begin = 0; begin < with_answer.size(); begin += group_size) {
    infer::stop_if_interrupted();
    const size_t count = std::min(group_size, with_answer.size() - begin);
    confirm(std::span(with_answer).subspan(begin, count));
    if (progress) progress->update(static_cast<int64_t>(begin + count));
  }
  if (progress) progress->finish();
  std::vector<size_t> unconfirmed;
  for (size_t i = 0; i < prompts_.size(); ++i)
    if (!confirmed_[i]) unconfirmed.push_back(i);
  confirmed_count_ = std::ssize(prompts_) - std::ssize(unconfirmed);
  if (!unconfirmed.empty()) decode(unconfirmed);
  if (!settings_.feature_file.empty() && !file_is_there_) save_features();
}

/// Compares the samples' answers with the target's token after each of their rows.
void TargetAnswers::confirm(std::span<const size_t> group) {
  std::vector<Text> texts;
  std::vector<data::TokenStore::Sample> samples;
  std::vector<int64_t> rows, keys;
  for (const size_t i : group) {
    texts.emplace_back(prompts_[i], prompts_[i].answer);
    rows.push_back(texts.back().rows());
    keys.push_back(sample_key(i));
  }
  for (const Text& text : texts) samples.push_back({text.ids, {}, {}});
  const at::Tensor post_norm = feature_cache_.features_of(samples, rows, keys).post_norm;
  int64_t begin = 0;
  for (size_t n = 0; n < group.size(); begin += rows[n++]) {
    const size_t i = group[n];
    std::vector<int64_t> answer = sample_answer(i);
    if (!is_complete(answer)) continue;
    const at::Tensor before =
        post_norm.narrow(0, begin + std::ssize(prompts_[i].ids) - 1, std::ssize(answer));
    const at::Tensor tokens = kernels::to_host({kernels::linear_arg_max(before, *target_.view().head)})[0];
    confirmed_[i] = std::ranges::equal(answer, std::span(tokens.const_data_ptr<int64_t>(), answer.size()));
    if (confirmed_[i]) answers_[i] = std::move(answer);
  }
}

/// Lets the target answer these prompts.
void TargetAnswers::decode(std::span<const size_t> unconfirmed) {
  infer::EngineOptions options;
  options.growth = {infer::plain_policy};
  options.max_batch = settings_.max_batch;
  int64_t longest = 0;
  for (const size_t i : unconfirmed) longest = std::max(longest, std::ssize(prompts_[i].ids));
  options.kv_memory =
      infer::kv_memory_for(target_, nullptr, std::min(settings_.max_batch, std::ssize(unconfirmed)),
                           longest + settings_.max_tokens, options.page_size);
  infer::Engine engine(target_, nullptr, tokenizer_, options);
  const auto make_request = [&](size_t n) {
    infer::Request request;
    request.prompt = prompts_[unconfirmed[n]].ids;
    request.max_tokens = settings_.max_tokens;
    return request;
  };
  std::vector<infer::Completion> completions =
      answer_requests(engine, settings_.max_batch, unconfirmed.size(), make_request,
                      settings_.shows_progress ? "plain decoding" : "");
  for (size_t n = 0; n < unconfirmed.size(); ++n)
    answers_[unconfirmed[n]] = std::move(completions[n].token_ids);
}

std::shared_ptr<const infer::RecordedAnswer> TargetAnswers::recorded(size_t prompt,
                                                                     const model::FeatureTaps& taps) {
  const Text text(prompts_[prompt], answers_[prompt]);
  const data::TokenStore::Sample sample{text.ids, {}, {}};
  const int64_t rows = text.rows(), key = answer_key(prompt);
  model::Features features = feature_cache_.features_of({&sample, 1}, {&rows, 1}, {&key, 1});
  return std::make_shared<const infer::RecordedAnswer>(answers_[prompt], features.only(taps));
}

}  // namespace clover::train
