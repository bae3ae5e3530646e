#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "model/target/target_config.h"

namespace clover::infer {

/// Ids of the tokens that end an answer by default: eos_token_id of generation_config.json, or of config.json
/// where the former has none; and the tokenizer's eos token, which chat templates write.
std::vector<int64_t> default_end_ids(const model::TargetConfig& config, const data::Tokenizer& tokenizer);

/// Ids of the tokens that end an answer with `--end-tokens`.  Each of `names` is a token's text or its id,
/// "model" or "tokenizer" (the two parts of the default), or "none" alone.  No names: the default.
/// InputError for any other name.
std::vector<int64_t> end_ids(const std::vector<std::string>& names, const model::TargetConfig& config,
                             const data::Tokenizer& tokenizer);

/// Warnings about the end tokens that a model's folder names, one line each: that there are none, numbers
/// that are not integers, ids outside the vocabulary.  InputError where `eos_token_id` is neither a single
/// value nor a list of single values.
std::vector<std::string> end_token_warnings(const std::string& folder, const model::TargetConfig& config,
                                            const data::Tokenizer& tokenizer);

/// Prints these warnings to stderr, on rank 0 only.
void print_end_token_warnings(const std::string& folder, const model::TargetConfig& config,
                              const data::Tokenizer& tokenizer);

}  // namespace clover::infer
