#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "data/tokenizer/files/added_tokens.h"

namespace clover::data {

/// The added tokens of a tokenizer and their ids.  As in transformers, a text that the vocabulary has keeps
/// its id, and a new text gets the next id after all others.  The ids that files state decide only the order
/// in which tokens are added.
class AddedVocabulary {
 public:
  using IdOfText = std::function<std::optional<int64_t>(const std::string&)>;
  /// `size`: number of tokens in the model's vocabulary; `model_id` finds one of them by its text.
  AddedVocabulary(int64_t size, IdOfText model_id) : size_(size), model_id_(std::move(model_id)) {}

  /// If a text is added again, the flags of the later call count, except that a special token stays special.
  /// Empty texts are ignored.
  void add(const AddedToken& token);

  /// The added token with this text, or null.
  const AddedToken* find(const std::string& content) const;
  /// Id of the added token or the model's token with this text.
  std::optional<int64_t> id_of(const std::string& content) const;
  /// Id of the model's token with this text.
  std::optional<int64_t> model_id(const std::string& content) const { return model_id_(content); }
  /// The added tokens, in ascending order of id.
  std::vector<AddedToken> tokens() const;

 private:
  int64_t next_id() const;

  int64_t size_;                                  // of the model's vocabulary
  IdOfText model_id_;                             // of a token of that vocabulary
  std::unordered_map<std::string, int64_t> ids_;  // of the added tokens, by text
  std::map<int64_t, AddedToken> tokens_;          // by id
};

/// Whether two added tokens have the same flags for matching, so that with equal texts they match at the same
/// places.
bool have_same_match_flags(const AddedToken& a, const AddedToken& b);

/// Extends `hash`, which covers the tokens `covered`, by the tokens of `added` that differ from those in
/// text, id or flags.  Without such tokens it returns `hash`: heads and token stores have recorded that
/// value.
uint64_t extend_hash(uint64_t hash, const std::vector<AddedToken>& covered, const AddedVocabulary& added);

}  // namespace clover::data
