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

/// The added tokens of a tokenizer and their ids, which come from their texts and their order alone: a text
/// that is known keeps its id, another one gets the next.  An id that a file states is no more than a place
/// in that order.
class AddedVocabulary {
 public:
  using IdOfText = std::function<std::optional<int64_t>(const std::string&)>;
  /// `size`: number of tokens in the model's own vocabulary; `model_id` finds one by its text.
  AddedVocabulary(int64_t size, IdOfText model_id) : size_(size), model_id_(std::move(model_id)) {}

  /// The flags of a text that is stated again are the later ones, but once special it stays so.  An empty
  /// text is no token.
  void add(const AddedToken& token);

  /// Null when no added token has this text.
  const AddedToken* find(const std::string& content) const;
  /// Of an added token or one of the model's own.
  std::optional<int64_t> id_of(const std::string& content) const;
  /// Of one of the model's own.
  std::optional<int64_t> model_id(const std::string& content) const { return model_id_(content); }
  /// With their ids, which ascend.
  std::vector<AddedToken> tokens() const;

 private:
  int64_t next_id() const;

  int64_t size_;
  IdOfText model_id_;
  std::unordered_map<std::string, int64_t> ids_;
  std::map<int64_t, AddedToken> tokens_;
};

/// Whether both are found at the same places of a text, if they are the same text.
bool same_place(const AddedToken& one, const AddedToken& other);

/// `hash`, which covers some tokens as they were read before, and what differs from them in `added` in text,
/// id or place.
uint64_t hash_with(uint64_t hash, const std::vector<AddedToken>& covered, const AddedVocabulary& added);

}  // namespace clover::data
