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

void SampleTokens::close() {
  if (!sample_.ids.empty()) done_.push_back(std::move(sample_));
  sample_ = {};
}

void SampleTokens::read(const std::string& prompt, bool add_bos) {
  const bool same_begin =
      firm_ids_ > 0 && std::string_view(prompt).starts_with(std::string_view(text_).substr(0, firm_text_));
  const size_t kept_text = same_begin ? firm_text_ : 0, kept_ids = same_begin ? firm_ids_ : 0;
  const Encoding encoding = tokenizer_.encode_with_spans(std::string_view(prompt).substr(kept_text),
                                                         {.add_bos = add_bos && kept_ids == 0});
  const size_t known = sample_.ids.size() - kept_ids;
  const bool goes_on = known <= encoding.ids.size() &&
                       std::equal(sample_.ids.begin() + kept_ids, sample_.ids.end(), encoding.ids.begin());
  if (goes_on) {
    append(std::span(encoding.ids).subspan(known), false);
  } else {
    const std::vector<int64_t> begin(sample_.ids.begin(), sample_.ids.begin() + kept_ids);
    close();
    append(begin, false);
    append(encoding.ids, false);
  }
  text_ = prompt;
  mark_.clear();
  firm_text_ = kept_text;
  firm_ids_ = kept_ids;
  for (size_t i = encoding.ids.size(); i-- > 0;) {
    const auto [begin, end] = encoding.spans[i];
    if (begin == end || !tokenizer_.is_special(encoding.ids[i])) continue;
    firm_text_ = kept_text + begin;
    firm_ids_ = kept_ids + i;
    if (kept_text + end == prompt.size()) mark_ = prompt.substr(firm_text_);
    break;
  }
}

void SampleTokens::read(std::span<const int64_t> prompt) {
  close();
  append(prompt, false);
  text_.clear();
  mark_.clear();
  firm_text_ = firm_ids_ = 0;
}

Encoding SampleTokens::continued(std::string_view text, size_t& lead) const {
  const auto encoded = [&](std::string_view before) {
    lead = before.size();
    return tokenizer_.encode_with_spans(std::string(before) + std::string(text), {});
  };
  if (!mark_.empty() || text_.empty() || !puts_space_before_text_) return encoded(mark_);
  // Some character stands before it, so that no space is put there; one that makes no token with the text.
  for (const std::string_view before : {"\n", ".", "0", "a"}) {
    Encoding encoding = encoded(before);
    const bool apart = std::none_of(encoding.spans.begin(), encoding.spans.end(), [&](const auto& span) {
      return span.first < lead && span.second > lead;
    });
    if (apart) return encoding;
  }
  return encoded("");
}

void SampleTokens::write(std::string_view answer, std::string_view after) {
  size_t lead = 0;
  const Encoding encoding = continued(std::string(answer) + std::string(after), lead);
  for (size_t i = 0; i < encoding.ids.size(); ++i) {
    if (encoding.spans[i].first < lead) continue;
    append(std::span(encoding.ids).subspan(i, 1), encoding.spans[i].first < lead + answer.size());
  }
}

void SampleTokens::write(std::span<const int64_t> answer) {
  append(answer, true);
}

void SampleTokens::skip(std::string_view text) {
  if (text.empty()) return;
  size_t lead = 0;
  const Encoding encoding = continued(text, lead);
  for (size_t i = 0; i < encoding.ids.size(); ++i)
    if (encoding.spans[i].first >= lead) append(std::span(encoding.ids).subspan(i, 1), false);
  mark_.clear();
  text_ += text;
}

std::vector<TrainingSample> SampleTokens::finish() {
  close();
  for (size_t i = 0; i < done_.size(); ++i) done_[i].part = static_cast<int64_t>(i);
  return std::move(done_);
}

}  // namespace clover::data
