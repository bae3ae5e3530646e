#include "train/run/saved_drafter.h"

#include <type_traits>

#include "data/files/error.h"
#include "model/checkpoint/heads_checkpoint.h"

namespace clover::train {

data::NamedTensors parameters_of(const model::Drafter& drafter) {
  data::NamedTensors parameters;
  for (const auto& [name, tensor] : drafter.named_parameters()) parameters.emplace_back(name, tensor);
  return parameters;
}

FitSettings settings_of_run(const SavedRun& saved, const std::filesystem::path& checkpoint) {
  FitSettings settings;
  try {
    const nlohmann::json recorded = FitSettings::with_defaults(saved.identity.at("settings"));
    FitSettings::for_each(settings, [&](const char* name, auto& value, const std::string&) {
      if constexpr (std::is_same_v<std::decay_t<decltype(value)>, nlohmann::json>)
        value = recorded.value(name, nlohmann::json());
      else
        recorded.at(name).get_to(value);
    });
    static_cast<void>(settings.drafter_settings());  // throws if no drafter can be made from them
  } catch (const std::exception& error) {
    throw data::InputError(checkpoint.string() + " does not hold the settings of a run (" + error.what() +
                           "): use another checkpoint.");
  }
  return settings;
}

std::shared_ptr<model::Drafter> make_saved_drafter(const SavedRun& saved,
                                                   const std::filesystem::path& checkpoint,
                                                   const FitSettings& settings, const model::Target& target) {
  if (saved.token_map.defined()) {
    model::check_token_map((checkpoint / "token_map.safetensors").string(), saved.token_map,
                           target.config().vocab);
  }
  auto drafter =
      model::make_drafter(settings.kind, settings.drafter_settings(), target.view(), saved.token_map,
                          /*trainable=*/true, settings.seed);
  check_optimiser(checkpoint, parameters_of(*drafter));  // its weights and moments fit this drafter
  return drafter;
}

}  // namespace clover::train
