#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "model/target/target_config.h"

namespace clover::infer {

/// Ids of the tokens that end an answer by default: those of generation_config.json (of config.json where
/// that names none) and the tokenizer's eos token, which chat templates write.
std::vector<int64_t> default_end_ids(const model::TargetConfig& config, const data::Tokenizer& tokenizer);

/// Ids of the tokens that `--end-tokens` names: "model" and "tokenizer" for the two kinds above, "none", a
/// token's text or its id; the default where `named` is empty.  InputError for any other name.
std::vector<int64_t> end_ids(const std::vector<std::string>& named, const model::TargetConfig& config,
                             const data::Tokenizer& tokenizer);

/// Warnings about the end tokens of a model folder, one line each: that there are none, values that are no
/// token ids, ids outside the vocabulary.  InputError for an invalid `eos_token_id`.
std::vector<std::string> end_token_notes(const std::string& folder, const model::TargetConfig& config,
                                         const data::Tokenizer& tokenizer);

/// Prints these warnings on stderr, by one rank of several.
void say_end_tokens(const std::string& folder, const model::TargetConfig& config,
                    const data::Tokenizer& tokenizer);

}  // namespace clover::infer
