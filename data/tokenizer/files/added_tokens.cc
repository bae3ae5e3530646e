#include "data/tokenizer/files/added_tokens.h"

#include <unicode/uchar.h>

#include <algorithm>

#include "data/text/utf8.h"

namespace clover::data {
namespace {

// Where the character before `position` begins.
size_t character_before(std::string_view text, size_t position) {
  do --position;
  while (position > 0 && is_continuation_byte(text[position]));
  return position;
}

// Whether the character at `position` is a word character, `\w` of Unicode's regular expressions (UTS 18,
// annex C).
bool is_word(std::string_view text, size_t position) {
  const auto c = static_cast<UChar32>(decode_utf8(text, position).code_point);
  return u_hasBinaryProperty(c, UCHAR_ALPHABETIC) || u_hasBinaryProperty(c, UCHAR_JOIN_CONTROL) ||
         (U_MASK(u_charType(c)) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0;
}

bool is_space(std::string_view text, size_t position) {
  return u_isUWhiteSpace(static_cast<UChar32>(decode_utf8(text, position).code_point));
}

bool is_whole_word(std::string_view text, size_t begin, size_t end) {
  return (begin == 0 || !is_word(text, character_before(text, begin))) &&
         (end == text.size() || !is_word(text, end));
}

}  // namespace

void AddedTokenTrie::add(const AddedToken& token) {
  if (token.content.empty()) return;
  first_bytes_[static_cast<uint8_t>(token.content[0])] = true;
  int32_t node = 0;
  for (char c : token.content) {
    const auto [entry, is_new] = nodes_[node].next.try_emplace(c, static_cast<int32_t>(nodes_.size()));
    node = entry->second;
    if (is_new) nodes_.emplace_back();
  }
  nodes_[node].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
}

const AddedToken* AddedTokenTrie::longest_at(std::string_view text, size_t position) const {
  const AddedToken* longest = nullptr;
  int32_t node = 0;
  for (size_t i = position; i < text.size(); ++i) {
    const auto entry = nodes_[node].next.find(text[i]);
    if (entry == nodes_[node].next.end()) break;
    node = entry->second;
    if (nodes_[node].token >= 0) longest = &tokens_[nodes_[node].token];
  }
  return longest;
}

std::vector<AddedTokenTrie::Part> AddedTokenTrie::split(std::string_view text, bool parse_special) const {
  std::vector<Part> parts;
  size_t covered_end = 0;  // where the last part ends
  for (size_t at = 0; at < text.size();) {
    const AddedToken* token = first_bytes_[static_cast<uint8_t>(text[at])] ? longest_at(text, at) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + token->content.size();
    at =
        end;  // as in the tokenizers library, the search goes on behind a match even if the match is rejected
    if (token->special && !parse_special) continue;
    if (token->single_word && !is_whole_word(text, begin, end)) continue;
    if (begin < covered_end) continue;  // inside the whitespace that the last match includes
    while (token->lstrip && begin > covered_end && is_space(text, character_before(text, begin))) {
      begin = character_before(text, begin);
    }
    while (token->rstrip && end < text.size() && is_space(text, end)) end += decode_utf8(text, end).length;
    if (covered_end < begin) parts.push_back({covered_end, begin, nullptr});
    parts.push_back({begin, end, token});
    covered_end = end;
  }
  if (covered_end < text.size()) parts.push_back({covered_end, text.size(), nullptr});
  return parts;
}

}  // namespace clover::data
