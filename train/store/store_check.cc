#include "train/store/store_check.h"

#include "data/files/error.h"

namespace clover::train {

void check_vocabulary(const StoreUse& use, const model::TargetConfig& config) {
  const auto& metadata = use.store.metadata();
  const auto vocab = metadata.find("vocab_size");
  if (vocab != metadata.end() && vocab->is_number_integer() && *vocab > config.vocab) {
    throw data::InputError(use.store_folder + " was prepared for a vocabulary of " + vocab->dump() +
                           " tokens, but " + use.target_folder + " has " + std::to_string(config.vocab) +
                           ": prepare the data with this target.");
  }
}

void check_prepared_for(const StoreUse& use, const model::Target& target) {
  check_vocabulary(use, target.config());
  const auto& metadata = use.store.metadata();
  if (!metadata.contains("target") || !metadata["target"].is_object()) return;
  const auto& recorded = metadata["target"].value("fingerprint", nlohmann::json());
  if (!recorded.is_string()) return;
  const std::string difference = target.difference_from(recorded.get<std::string>());
  if (!difference.empty()) {
    throw data::InputError(use.store_folder + " was prepared for the target " + recorded.get<std::string>() +
                           ", " + difference + ", but " + use.target_folder + " is " + target.fingerprint() +
                           ": prepare the data with this target.");
  }
}

}  // namespace clover::train
