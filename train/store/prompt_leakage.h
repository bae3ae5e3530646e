#pragma once

#include <cstdint>
#include <string>

#include "data/training/token_store.h"

namespace clover::train {

/// How many held-out samples have the prompt (the tokens before the first supervised one) of a training
/// sample.
int64_t count_leaked_prompts(const data::TokenStore& store);

/// Warns on stderr when there are such samples.  Only older stores have them; now samples of one prompt are
/// in one split (data/training/sample_groups.h).
void warn_of_leaked_prompts(const data::TokenStore& store, const std::string& folder);

}  // namespace clover::train
