#include "data/text/utf8.h"

#include <tuple>

namespace clover::data {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";

// The length of a character by its lead byte, and the range of its second byte.  The range is narrower for
// E0, ED, F0 and F4, which excludes overlong forms, surrogates and code points beyond U+10FFFF.
struct Lead {
  uint8_t length;  // 0: the byte cannot begin a character
  uint8_t second_low = 0x80;
  uint8_t second_high = 0xBF;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xC2) return {0};
  if (byte < 0xE0) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

}  // namespace

Utf8Step decode_utf8(std::string_view text, size_t position) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[position + i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return {first, 1, true, false};
  const Lead lead = lead_of(first);
  if (lead.length == 0) return {0xFFFD, 1, false, false};
  char32_t code_point = first & (0x7F >> lead.length);
  for (uint8_t i = 1; i < lead.length; ++i) {
    if (position + i == text.size()) return {0xFFFD, i, false, true};
    const uint8_t low = i == 1 ? lead.second_low : 0x80;
    const uint8_t high = i == 1 ? lead.second_high : 0xBF;
    if (byte(i) < low || byte(i) > high) return {0xFFFD, i, false, false};
    code_point = code_point << 6 | (byte(i) & 0x3F);
  }
  return {code_point, lead.length, true, false};
}

void append_utf8(std::string& text, char32_t code_point) {
  const auto put = [&](uint32_t byte) { text += static_cast<char>(byte); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = decode_utf8(text, i);
    if (!step.valid) return false;
    i += step.length;
  }
  return true;
}

std::string repair_utf8(std::string_view text) {
  return std::string(repair_utf8_aligned(text).text());
}

void AlignedText::append_replacement(std::string_view bytes, size_t begin, size_t end) {
  text_ += bytes;
  ranges_.insert(ranges_.end(), bytes.size(), {begin, end});
  source_end_ = end;
}

void AlignedText::append_copy(std::string_view bytes, size_t begin) {
  text_ += bytes;
  for (size_t i = 0; i < bytes.size(); ++i) ranges_.emplace_back(begin + i, begin + i + 1);
  source_end_ = begin + bytes.size();
}

std::pair<size_t, size_t> AlignedText::source_range(size_t begin, size_t end) const {
  if (unchanged_) return {begin, end};
  if (begin < end) return {ranges_[begin].first, ranges_[end - 1].second};
  const size_t at = begin < ranges_.size() ? ranges_[begin].first : source_end_;
  return {at, at};
}

AlignedText AlignedText::composed_with(const AlignedText& inner) && {
  if (unchanged_) return inner;
  if (!inner.unchanged_) {
    source_end_ = inner.source_range(source_end_, source_end_).first;
    for (auto& [begin, end] : ranges_) std::tie(begin, end) = inner.source_range(begin, end);
  }
  return std::move(*this);
}

AlignedText repair_utf8_aligned(std::string_view text) {
  if (is_utf8(text)) return AlignedText(text);
  AlignedText repaired;
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = decode_utf8(text, i);
    if (step.valid) {
      repaired.append_copy(text.substr(i, step.length), i);
    } else {
      repaired.append_replacement(replacement, i, i + step.length);
    }
    i += step.length;
  }
  return repaired;
}

}  // namespace clover::data
