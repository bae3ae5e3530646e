#include "train/synthesize/near_duplicates.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "data/files/hash.h"
#include "data/text/utf8.h"

namespace clover::train {
namespace {

/// Whether the character is a word of its own by what it means: without it "C++" would be "C", and "5 + 3"
/// be "5 - 3".
bool is_symbol(char32_t c) {
  return c < 0x80 && std::string_view("+-*/#=<>%^").find(static_cast<char>(c)) != std::string_view::npos;
}

/// Whether the character ends a word: all of ASCII but letters, digits and symbols, general punctuation, and
/// that of Chinese, Japanese and Korean in both widths.
bool is_separator(char32_t c) {
  if (c < 0x80) return !std::isalnum(static_cast<int>(c)) && !is_symbol(c);
  return (c >= 0x2000 && c <= 0x206F) || (c >= 0x3000 && c <= 0x303F) || (c >= 0xFF00 && c <= 0xFF0F) ||
         (c >= 0xFF1A && c <= 0xFF20) || (c >= 0xFF5B && c <= 0xFF65);
}

/// Whether the character stands alone as a word: symbols, and scripts that put no spaces between words (Thai,
/// Lao, Khmer, and those of East Asia).
bool is_word_alone(char32_t c) {
  return is_symbol(c) || (c >= 0x0E00 && c <= 0x0EFF) || (c >= 0x1780 && c <= 0x17FF) ||
         (c >= 0x2E80 && !is_separator(c));
}

bool is_letter(char32_t c) {
  return c < 0x80 ? std::isalpha(static_cast<int>(c)) != 0 : !is_separator(c);
}

/// Hashes of the words in order.
std::vector<uint64_t> words_of(std::string_view text) {
  std::vector<uint64_t> words;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) words.push_back(data::mix_bits(data::fnv1a(word)));
    word.clear();
  };
  char32_t before = U' ';
  for (size_t i = 0; i < text.size();) {
    const data::Utf8Step step = data::decode_utf8(text, i);
    const char32_t c = step.code_point;
    const std::string_view character = text.substr(i, step.length);
    i += step.length;
    const bool is_hyphen =
        c == U'-' && is_letter(before) && i < text.size() && is_letter(data::decode_utf8(text, i).code_point);
    before = c;
    if (is_separator(c) || is_word_alone(c)) end_word();
    if (is_separator(c) || is_hyphen) continue;
    word += c < 0x80 ? std::string(1, static_cast<char>(std::tolower(character[0]))) : std::string(character);
    if (is_word_alone(c)) end_word();
  }
  end_word();
  return words;
}

std::vector<uint64_t> pairs_of(std::string_view text) {
  std::vector<uint64_t> pairs = words_of(text);
  if (pairs.size() > 1) {
    for (size_t i = 0; i + 1 < pairs.size(); ++i) pairs[i] = data::mix_bits(pairs[i] + 3 * pairs[i + 1]);
    pairs.pop_back();
  }
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  return pairs;
}

/// The Jaccard index of two ascending sets; 1 for two empty ones.
double jaccard(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b) {
  if (a.empty() && b.empty()) return 1;
  std::vector<uint64_t> common;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(common));
  return static_cast<double>(common.size()) / static_cast<double>(a.size() + b.size() - common.size());
}

}  // namespace

bool NearDuplicates::add(std::string_view text) {
  Pairs pairs = pairs_of(text);
  std::array<uint64_t, bands> keys;
  for (int band = 0; band < bands; ++band) {
    uint64_t key = 0;
    for (int row = 0; row < rows; ++row) {
      uint64_t smallest = ~uint64_t{0};
      for (const uint64_t pair : pairs)
        smallest = std::min(
            smallest, data::mix_bits(pair ^ data::mix_bits(static_cast<uint64_t>(band * rows + row + 1))));
      key = data::mix_bits(key + smallest);
    }
    keys[band] = key;
    const auto [begin, end] = texts_by_band_[band].equal_range(key);
    for (auto found = begin; found != end; ++found)
      if (jaccard(pairs, texts_[found->second]) >= limit) return false;
  }
  for (int band = 0; band < bands; ++band) texts_by_band_[band].emplace(keys[band], texts_.size());
  texts_.push_back(std::move(pairs));
  return true;
}

}  // namespace clover::train
