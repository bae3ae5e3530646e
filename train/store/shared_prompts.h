#pragma once

#include <cstdint>
#include <string>

#include "data/training/token_store.h"

namespace clover::train {

/// Held-out samples whose prompt, the tokens before the first supervised one, is that of a training sample.
int64_t shared_prompts(const data::TokenStore& store);

/// Says so on stderr where there are some: stores of before samples were parted by their prompts have them.
void say_shared_prompts(const data::TokenStore& store, const std::string& folder);

}  // namespace clover::train
