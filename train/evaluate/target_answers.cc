#include "train/evaluate/target_answers.h"

#include <cstdio>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <utility>

#include "data/files/files.h"
#include "data/files/hash.h"
#include "infer/engine/end_tokens.h"
#include "infer/program/interrupt.h"
#include "infer/program/progress.h"
#include "kernels/gpu/gpu.h"
#include "kernels/linear/linear.h"
#include "train/evaluate/answer_prompts.h"

namespace clover::train {
namespace {

constexpr size_t group_size = 8;  // samples whose features are computed together

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
std::vector<int32_t> text_of(const EvalPrompt& prompt, std::span<const int64_t> answer) {
  std::vector<int32_t> ids(prompt.ids.begin(), prompt.ids.end());
  ids.insert(ids.end(), answer.begin(), answer.end());
  return ids;
}

}  // namespace

model::FeatureTaps TargetAnswers::taps_kept(model::FeatureTaps taps) {
  taps.post_norm = true;
  return taps;
}

TargetAnswers::TargetAnswers(const model::Target& target, const data::Tokenizer& tokenizer,
                             std::vector<EvalPrompt> prompts, AnswerSettings settings,
                             const model::FeatureTaps& taps)
    : target_(target),
      tokenizer_(tokenizer),
      prompts_(std::move(prompts)),
      settings_(std::move(settings)),
      taps_(taps_kept(taps)),
      end_ids_(infer::default_end_ids(target.config(), tokenizer)),
      file_is_there_(!settings_.feature_file.empty() && std::filesystem::exists(settings_.feature_file)),
      feature_cache_(target, taps_,
                     std::max(settings_.longest_scored_text, longest_text(prompts_, settings_.max_tokens)),
                     settings_.cache_bytes,
                     {settings_.target_folder, file_is_there_ ? settings_.feature_file : ""}),
      answers_(prompts_.size()),
      confirmed_(prompts_.size()) {
  if (!settings_.feature_file.empty()) open_feature_file();
}

FeatureFile TargetAnswers::file() const {
  return {settings_.feature_file, feature_identity(target_, content_hash(prompts_)), taps_.layers,
          target_.sampled_fingerprint()};
}

/// The file has two entries a prompt: first those with the samples' answers, then those with the target's
/// where they are others.
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

/// The file only saves time, so a failure is no error.
void TargetAnswers::save_features() {
  const auto* features = feature_cache_.all_features(2 * std::ssize(prompts_));
  try {
    if (features == nullptr)
      throw std::runtime_error("the features take more than an eighth of the free memory");
    file().write(*features);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "--feature-file %s was not written: %s\n", settings_.feature_file.c_str(),
                 error.what());
  }
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
  if (found_) return;
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
  std::vector<size_t> unknown;
  for (size_t i = 0; i < prompts_.size(); ++i)
    if (!confirmed_[i] && !read_from_file(i)) unknown.push_back(i);
  if (!unknown.empty()) decode(unknown);
  if (!settings_.feature_file.empty() && !file_is_there_) save_features();
  found_ = true;
}

/// Compares the samples' answers with the target's token after each of their rows.
void TargetAnswers::confirm(std::span<const size_t> group) {
  std::vector<std::vector<int32_t>> texts;
  std::vector<data::TokenStore::Sample> samples;
  std::vector<int64_t> rows, keys, prompt_lengths;
  for (const size_t i : group) {
    texts.push_back(text_of(prompts_[i], prompts_[i].answer));
    rows.push_back(std::ssize(texts.back()));
    keys.push_back(sample_key(i));
    prompt_lengths.push_back(std::ssize(prompts_[i].ids));
  }
  for (const auto& text : texts) samples.push_back({text, {}, {}});
  const at::Tensor post_norm = feature_cache_.features_of(samples, rows, keys, prompt_lengths).post_norm;
  int64_t begin = 0;
  for (size_t n = 0; n < group.size(); begin += rows[n++]) {
    std::vector<int64_t> answer = sample_answer(group[n]);
    if (!is_complete(answer)) continue;
    const bool right =
        answer == tokens_after(post_norm.narrow(0, begin + prompt_lengths[n] - 1, std::ssize(answer)));
    confirmed_[group[n]] = right;
    if (right) answers_[group[n]] = std::move(answer);
  }
}

/// The target's token after each row of post_norm, [R, H].
std::vector<int64_t> TargetAnswers::tokens_after(const at::Tensor& post_norm) const {
  const at::Tensor tokens = kernels::to_host({kernels::linear_arg_max(post_norm, *target_.view().head)})[0];
  return {tokens.const_data_ptr<int64_t>(), tokens.const_data_ptr<int64_t>() + tokens.numel()};
}

/// Finds an answer that the target decoded when the feature file was written: its length is that of the
/// entry.
bool TargetAnswers::read_from_file(size_t prompt) {
  const int64_t length = std::ssize(prompts_[prompt].ids);
  const int64_t answer_tokens = feature_cache_.cached_rows(answer_key(prompt)) - length;
  if (!file_is_there_ || answer_tokens < 1) return false;
  const model::Features features =
      features_of(prompt, std::vector<int64_t>(answer_tokens), answer_key(prompt));
  answers_[prompt] = tokens_after(features.post_norm.narrow(0, length - 1, answer_tokens));
  return true;
}

/// Lets the target answer these prompts.
void TargetAnswers::decode(const std::vector<size_t>& unknown) {
  infer::EngineOptions options;
  options.growth = {infer::plain_policy};
  options.budget = 0;
  options.max_batch = settings_.max_batch;
  std::vector<const EvalPrompt*> prompts;
  for (const size_t i : unknown) prompts.push_back(&prompts_[i]);
  std::vector<infer::Completion> completions =
      answer_prompts(target_, nullptr, tokenizer_, options, prompts, settings_.max_tokens, {},
                     settings_.shows_progress ? "plain decoding" : "");
  for (size_t n = 0; n < unknown.size(); ++n) answers_[unknown[n]] = std::move(completions[n].token_ids);
  if (settings_.feature_file.empty()) return;
  for (const size_t i : unknown) features_of(i, answers_[i], answer_key(i));  // for the file
}

/// The features of a prompt and all of its answer.
model::Features TargetAnswers::features_of(size_t prompt, std::span<const int64_t> answer, int64_t key) {
  const std::vector<int32_t> text = text_of(prompts_[prompt], answer);
  const data::TokenStore::Sample sample{text, {}, {}};
  const int64_t rows = std::ssize(text), length = std::ssize(prompts_[prompt].ids);
  return feature_cache_.features_of({&sample, 1}, {&rows, 1}, {&key, 1}, {&length, 1});
}

std::shared_ptr<const infer::RecordedAnswer> TargetAnswers::recorded(size_t prompt,
                                                                     const model::FeatureTaps& taps) {
  TORCH_CHECK((taps_.pre_norm || !taps.pre_norm) && (taps.layers.empty() || taps.layers == taps_.layers),
              "TargetAnswers: expected features that are among those of the constructor");
  const model::Features features = features_of(prompt, answers_[prompt], answer_key(prompt));
  return std::make_shared<const infer::RecordedAnswer>(answers_[prompt], features.only(taps));
}

}  // namespace clover::train
