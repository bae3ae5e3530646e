#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/tokenizer/files/added_tokens.h"

namespace clover::data {

// Readers for the parts of a `tokenizer.json` that both of its kinds share.  InputErrors begin with `where`.

/// The first characters of a JSON value, for messages.
std::string json_excerpt(const nlohmann::json& value);

struct NamedMerge {
  std::string left, right;
  int32_t left_id, right_id, result_id;
};
/// The `merges` of a BPE `model`, whose `vocab` has been checked.
std::vector<NamedMerge> read_named_merges(const nlohmann::json& model, const std::string& where);

/// InputError for options of BPE that are not supported: dropout, continuing_subword_prefix,
/// end_of_word_suffix.
void check_bpe_options(const nlohmann::json& model, const std::string& where);

/// The `added_tokens` with the ids they state.  A token without one gets the id that `own_id` returns for its
/// text.
std::vector<AddedToken> read_listed_tokens(
    const nlohmann::json& tokenizer, const std::string& where,
    const std::function<std::optional<int64_t>(const std::string&)>& own_id);

/// The special token that the post-processor puts in front of a text, if any.
std::optional<std::string> read_leading_token(const nlohmann::json& processor, const std::string& where);

}  // namespace clover::data
