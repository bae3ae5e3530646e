#include "data/training/sample_tokens.h"

#include <algorithm>

namespace clover::data {

SampleTokens::SampleTokens(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  const std::vector<int64_t> ids = tokenizer.encode("a");
  puts_space_before_text_ = !ids.empty() && tokenizer.token_bytes(ids[0], false).starts_with(' ');
}

void SampleTokens::append(std::span<const int64_t> ids, bool supervised) {
  sample_.ids.insert(sample_.ids.end(), ids.begin(), ids.end());
  sample_.supervised.insert(sample_.supervised.end(), ids.size(), supervised);
}

void SampleTokens::finish_sample() {
  if (!sample_.ids.empty()) finished_.push_back(std::move(sample_));
  sample_ = {};
}

void SampleTokens::append_prompt(const std::string& prompt, bool add_bos) {
  const bool same_prefix = stable_ids_ > 0 && std::string_view(prompt).starts_with(
                                                  std::string_view(prompt_).substr(0, stable_bytes_));
  const size_t reused_bytes = same_prefix ? stable_bytes_ : 0, reused_ids = same_prefix ? stable_ids_ : 0;
  const Encoding encoding = tokenizer_.encode_with_spans(std::string_view(prompt).substr(reused_bytes),
                                                         {.add_bos = add_bos && reused_ids == 0});
  const size_t sample_ids_to_match = sample_.ids.size() - reused_ids;
  const bool continues_sample =
      sample_ids_to_match <= encoding.ids.size() &&
      std::equal(sample_.ids.begin() + reused_ids, sample_.ids.end(), encoding.ids.begin());
  if (continues_sample) {
    append(std::span(encoding.ids).subspan(sample_ids_to_match), false);
  } else {
    const std::vector<int64_t> prefix(sample_.ids.begin(), sample_.ids.begin() + reused_ids);
    finish_sample();
    append(prefix, false);
    append(encoding.ids, false);
  }
  prompt_ = prompt;
  trailing_special_.clear();
  stable_bytes_ = reused_bytes;
  stable_ids_ = reused_ids;
  for (size_t i = encoding.ids.size(); i-- > 0;) {
    const auto [begin, end] = encoding.spans[i];
    if (begin == end || !tokenizer_.is_special(encoding.ids[i])) continue;
    stable_bytes_ = reused_bytes + begin;
    stable_ids_ = reused_ids + i;
    if (reused_bytes + end == prompt.size()) trailing_special_ = prompt.substr(stable_bytes_);
    break;
  }
}

void SampleTokens::append_prompt(std::span<const int64_t> prompt) {
  finish_sample();
  append(prompt, false);
  prompt_.clear();
  trailing_special_.clear();
  stable_bytes_ = stable_ids_ = 0;
}

Encoding SampleTokens::encode_continuation(std::string_view text, size_t& context_bytes) const {
  const auto encoded = [&](std::string_view context) {
    context_bytes = context.size();
    return tokenizer_.encode_with_spans(std::string(context) + std::string(text), {});
  };
  if (!trailing_special_.empty() || prompt_.empty() || !puts_space_before_text_)
    return encoded(trailing_special_);
  // A context of one character keeps the tokenizer from adding a space.  No token may contain both that
  // character and text after it.
  for (const std::string_view context : {"\n", ".", "0", "a"}) {
    Encoding encoding = encoded(context);
    const bool is_separate = std::none_of(
        encoding.spans.begin(), encoding.spans.end(),
        [&](const auto& span) { return span.first < context_bytes && span.second > context_bytes; });
    if (is_separate) return encoding;
  }
  return encoded("");
}

void SampleTokens::append_answer(std::string_view answer, std::string_view after) {
  size_t context_bytes = 0;
  const Encoding encoding = encode_continuation(std::string(answer) + std::string(after), context_bytes);
  for (size_t i = 0; i < encoding.ids.size(); ++i) {
    if (encoding.spans[i].first < context_bytes) continue;
    append(std::span(encoding.ids).subspan(i, 1), encoding.spans[i].first < context_bytes + answer.size());
  }
}

void SampleTokens::append_answer(std::span<const int64_t> answer) {
  append(answer, true);
}

void SampleTokens::append_unsupervised(std::string_view text) {
  if (text.empty()) return;
  size_t context_bytes = 0;
  const Encoding encoding = encode_continuation(text, context_bytes);
  for (size_t i = 0; i < encoding.ids.size(); ++i)
    if (encoding.spans[i].first >= context_bytes) append(std::span(encoding.ids).subspan(i, 1), false);
  trailing_special_.clear();
  prompt_ += text;
}

std::vector<TrainingSample> SampleTokens::finish() {
  finish_sample();
  for (size_t i = 0; i < finished_.size(); ++i) finished_[i].part = static_cast<int64_t>(i);
  return std::move(finished_);
}

}  // namespace clover::data
