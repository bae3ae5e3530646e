#include "train/store/store_check.h"

#include "data/files/error.h"

namespace clover::train {

void check_vocabulary(const StoreUse& use, const model::TargetConfig& config) {
  const auto& about = use.store.about();
  const auto vocab = about.find("vocab_size");
  if (vocab != about.end() && vocab->is_number_integer() && *vocab > config.vocab) {
    throw data::InputError(use.store_folder + " was prepared for a vocabulary of " + vocab->dump() +
                           " tokens, but " + use.target_folder + " has " + std::to_string(config.vocab) +
                           ": prepare the data with this target.");
  }
}

void check_prepared_for(const StoreUse& use, const model::Target& target) {
  check_vocabulary(use, target.config());
  const auto& about = use.store.about();
  if (!about.contains("target") || !about["target"].is_object()) return;
  const auto& recorded = about["target"].value("fingerprint", nlohmann::json());
  if (!recorded.is_string()) return;
  const std::string other = target.difference_from(recorded.get<std::string>());
  if (!other.empty()) {
    throw data::InputError(use.store_folder + " was prepared for the target " + recorded.get<std::string>() +
                           ", " + other + ", but " + use.target_folder + " is " + target.fingerprint() +
                           ": prepare the data with this target.");
  }
}

}  // namespace clover::train
