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
/// its id, and a new text gets the next free one; the ids that files state decide only the order in which
/// tokens are added.
class AddedVocabulary {
 public:
  using IdOfText = std::function<std::optional<int64_t>(const std::string&)>;
  /// `size`: number of tokens in the model's vocabulary; `model_id` finds one of them by its text.
  AddedVocabulary(int64_t size, IdOfText model_id) : size_(size), model_id_(std::move(model_id)) {}

  /// A text that is added again gets the later flags, but stays special once it is.  Empty texts are ignored.
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

  int64_t size_;
  IdOfText model_id_;
  std::unordered_map<std::string, int64_t> ids_;
  std::map<int64_t, AddedToken> tokens_;
};

/// Whether two added tokens of equal text match at the same places (their flags agree).
bool match_alike(const AddedToken& one, const AddedToken& other);

/// Extends `hash`, which covers the tokens `covered`, by those tokens of `added` that differ from them in
/// text, id or flags.  Without a difference the hash stays as heads and stores recorded it.
uint64_t hash_with(uint64_t hash, const std::vector<AddedToken>& covered, const AddedVocabulary& added);

}  // namespace clover::data
