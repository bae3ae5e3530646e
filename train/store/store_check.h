#pragma once

#include <string>

#include "data/training/token_store.h"
#include "model/target/target.h"

namespace clover::train {

/// A token store and the target that it is to be used with; the folders are for messages.
struct StoreUse {
  const data::TokenStore& store;
  const std::string& store_folder;
  const std::string& target_folder;
};

/// InputError when the store's vocabulary is larger than the target's.  Called before the target's weights
/// are read.
void check_vocabulary(const StoreUse& use, const model::TargetConfig& config);

/// InputError when the store was prepared for another target.
void check_prepared_for(const StoreUse& use, const model::Target& target);

}  // namespace clover::train
