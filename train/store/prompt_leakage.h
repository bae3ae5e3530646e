#pragma once

#include <cstdint>
#include <string>

#include "data/training/token_store.h"

namespace clover::train {

/// How many held-out samples have the same prompt (the tokens before the first supervised one) as a training
/// sample.
int64_t count_leaked_prompts(const data::TokenStore& store);

/// Warns on stderr when there are such samples.  Only older stores have them: `prepare` now puts all samples
/// of a prompt in one split (data/training/sample_groups.h).  `folder`: the store's, for the message.
void warn_of_leaked_prompts(const data::TokenStore& store, const std::string& folder);

}  // namespace clover::train
