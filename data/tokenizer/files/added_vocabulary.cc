#include "data/tokenizer/files/added_vocabulary.h"

#include <algorithm>

#include "data/files/hash.h"

namespace clover::data {

bool have_same_match_flags(const AddedToken& a, const AddedToken& b) {
  return a.single_word == b.single_word && a.lstrip == b.lstrip && a.rstrip == b.rstrip &&
         a.normalized == b.normalized;
}

int64_t AddedVocabulary::next_id() const {
  return tokens_.empty() ? size_ : std::max(size_, tokens_.rbegin()->first + 1);
}

void AddedVocabulary::add(const AddedToken& token) {
  if (token.content.empty()) return;
  AddedToken added = token;
  added.id = id_of(token.content).value_or(next_id());
  if (const AddedToken* previous = find(token.content)) added.special = added.special || previous->special;
  ids_[token.content] = added.id;
  tokens_[added.id] = std::move(added);
}

const AddedToken* AddedVocabulary::find(const std::string& content) const {
  const auto id = ids_.find(content);
  return id == ids_.end() ? nullptr : &tokens_.at(id->second);
}

std::optional<int64_t> AddedVocabulary::id_of(const std::string& content) const {
  const auto id = ids_.find(content);
  return id == ids_.end() ? model_id_(content) : std::optional<int64_t>(id->second);
}

std::vector<AddedToken> AddedVocabulary::tokens() const {
  std::vector<AddedToken> tokens;
  for (const auto& [id, token] : tokens_) tokens.push_back(token);
  return tokens;
}

uint64_t extend_hash(uint64_t hash, const std::vector<AddedToken>& covered, const AddedVocabulary& added) {
  std::map<std::string, const AddedToken*> covered_by_text;
  for (const AddedToken& token : covered) covered_by_text[token.content] = &token;
  for (const AddedToken& token : added.tokens()) {
    const auto entry = covered_by_text.find(token.content);
    if (entry != covered_by_text.end()) {
      const AddedToken& other = *entry->second;
      const bool same_id = other.id == token.id || added.model_id(token.content) == token.id;
      const bool flags_equal = other.single_word == token.single_word && other.lstrip == token.lstrip &&
                               other.rstrip == token.rstrip;
      if (same_id && flags_equal) continue;
    }
    const int flags = token.single_word + 2 * token.lstrip + 4 * token.rstrip;
    hash = fnv1a(token.content + "\n" + std::to_string(token.id) + " " + std::to_string(flags) + "\n", hash);
  }
  return hash;
}

}  // namespace clover::data
