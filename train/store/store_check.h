#pragma once

#include <string>

#include "data/training/token_store.h"
#include "model/target/target.h"

namespace clover::train {

/// A token store and the target it is to be used with, each with its folder for messages.
struct StoreUse {
  const data::TokenStore& store;
  const std::string& store_folder;
  const std::string& target_folder;
};

/// InputError when the store may hold tokens the target lacks: known before gigabytes are read.
void check_vocabulary(const StoreUse& use, const model::TargetConfig& config);

/// InputError also when the store was prepared for another target of the same vocabulary.
void check_prepared_for(const StoreUse& use, const model::Target& target);

}  // namespace clover::train
