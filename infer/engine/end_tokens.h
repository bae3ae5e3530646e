#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "model/target/target_config.h"

namespace clover::infer {

/// Ids of the tokens that end an answer unless the user names others: those of generation_config.json (of
/// config.json where that names none), and the tokenizer's own, which chat templates write.
std::vector<int64_t> default_end_ids(const model::TargetConfig& config, const data::Tokenizer& tokenizer);

/// Those that `--end-tokens` names: "model" and "tokenizer" for the two kinds above, "none", a token's text
/// or its id; nothing named stands for the default.  InputError for what is none of these.
std::vector<int64_t> end_ids(const std::vector<std::string>& named, const model::TargetConfig& config,
                             const data::Tokenizer& tokenizer);

/// What the user of a model folder should hear of its end tokens, one line each: that there are none, values
/// that are no token ids, ids outside the vocabulary.  InputError for an `eos_token_id` that can't be meant.
std::vector<std::string> end_token_notes(const std::string& folder, const model::TargetConfig& config,
                                         const data::Tokenizer& tokenizer);

/// Of a model just loaded, said once on stderr (by one rank of several).
void say_end_tokens(const std::string& folder, const model::TargetConfig& config,
                    const data::Tokenizer& tokenizer);

}  // namespace clover::infer
