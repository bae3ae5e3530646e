#include "train/heads/heads_folder.h"

#include <algorithm>

#include "data/files/error.h"
#include "data/files/files.h"
#include "data/files/finite.h"
#include "data/files/safetensors.h"
#include "model/checkpoint/heads_checkpoint.h"
#include "model/drafters/frozen_for.h"

namespace clover::train {

nlohmann::json tokenization_of(const nlohmann::json& store_metadata) {
  nlohmann::json metadata = nlohmann::json::object();
  for (const char* key : {"tokenizer", "chat_template"}) {
    if (store_metadata.contains(key)) metadata[key] = store_metadata.at(key);
  }
  return metadata;
}

std::string heads_damage(const std::filesystem::path& folder) {
  try {
    model::read_heads_info(folder);
    const auto reader = data::SafetensorsReader::open(folder / "model.safetensors");
    for (const std::string& name : reader.names()) {
      if (!data::all_finite(reader.read(name)))
        return (folder / "model.safetensors").string() + ": tensor " + name +
               " holds what is no finite number";
    }
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

void write_heads(const std::filesystem::path& folder, model::Drafter& drafter, const model::Target& target,
                 nlohmann::json metadata, const std::vector<int64_t>& golden_ids, at::ScalarType dtype) {
  constexpr size_t max_golden = 256;
  std::vector<int64_t> ids(golden_ids.begin(), golden_ids.begin() + std::min(golden_ids.size(), max_golden));
  if (ids.size() >= 2) {
    const model::FrozenFor frozen(drafter, target.dtype());
    metadata["golden"] = model::make_golden(drafter, target, ids);
  }
  model::save_heads(folder, drafter, target, metadata, dtype);
}

void write_cost_of_run(const std::filesystem::path& folder, const nlohmann::json& cost) {
  nlohmann::json config;
  try {
    config = data::read_json(folder / "config.json");
  } catch (const data::InputError&) {
    return;
  }
  if (!config.is_object() || !config.value("training", nlohmann::json()).is_object()) return;
  config["training"]["run"] = cost;
  data::write_file_atomically(folder / "config.json", config.dump(2) + "\n");
}

}  // namespace clover::train
