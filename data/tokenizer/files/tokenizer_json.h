#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/tokenizer/files/added_tokens.h"

namespace clover::data {

// The parts of a `tokenizer.json` that its kinds have in common.  An InputError begins with `where`.

/// The beginning of a JSON value, for messages.
std::string shown_json(const nlohmann::json& value);

struct NamedMerge {
  std::string left, right;
  int32_t left_id, right_id, result_id;
};
/// `merges` of a BPE `model`, whose `vocab` is an object of checked ids.
std::vector<NamedMerge> read_named_merges(const nlohmann::json& model, const std::string& where);

/// Refuses what no BPE here does: dropout, marks within and behind words.
void check_bpe_options(const nlohmann::json& model, const std::string& where);

/// `added_tokens` with the ids they state; one that states none has that of `own_id`.
std::vector<AddedToken> read_listed_tokens(
    const nlohmann::json& tokenizer, const std::string& where,
    const std::function<std::optional<int64_t>(const std::string&)>& own_id);

/// The special token that a post-processor puts in front of a text.
std::optional<std::string> read_leading_token(const nlohmann::json& processor, const std::string& where);

}  // namespace clover::data
