#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/tokenizer/files/added_tokens.h"

namespace clover::data {

// Readers for the parts that a byte-level `tokenizer.json` and one of SentencePiece kind share.  InputErrors
// begin with `where`.

/// The first 200 bytes of a JSON value, for error messages.
std::string json_excerpt(const nlohmann::json& value);

/// A merge of tokens `left` and `right` into `left + right`.
struct NamedMerge {
  std::string left, right;  // texts in the vocabulary
  int32_t left_id, right_id, result_id;
};
/// The `merges` of a BPE `model` in order of rank.  Its `vocab` must have been checked.
std::vector<NamedMerge> read_named_merges(const nlohmann::json& model, const std::string& where);

/// InputError for options of BPE that are not supported: dropout, continuing_subword_prefix,
/// end_of_word_suffix.
void check_bpe_options(const nlohmann::json& model, const std::string& where);

/// The tokens of `added_tokens`, with the ids that the file states.  A token without an id gets the one that
/// `model_id` returns for its text.
std::vector<AddedToken> read_listed_tokens(
    const nlohmann::json& tokenizer, const std::string& where,
    const std::function<std::optional<int64_t>(const std::string&)>& model_id);

/// The text of the special token that the post-processor puts before a text, if any.
std::optional<std::string> read_leading_token(const nlohmann::json& processor, const std::string& where);

}  // namespace clover::data
