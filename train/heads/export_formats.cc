#include "train/heads/export_formats.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "data/files/error.h"
#include "data/files/files.h"
#include "data/files/finite.h"
#include "data/files/safetensors.h"
#include "data/files/unfinished_folder.h"
#include "model/checkpoint/heads_checkpoint.h"
#include "train/heads/published_heads.h"

namespace clover::train {
namespace {

namespace fs = std::filesystem;

data::NamedTensors read_all(const fs::path& file, c10::ScalarType dtype) {
  const auto reader = data::SafetensorsReader::open(file);
  data::NamedTensors tensors;
  for (const auto& name : reader.names()) {
    tensors.emplace_back(name, data::cast_finite(file.string(), name, reader.read(name), dtype));
  }
  return tensors;
}

void write_clover(const fs::path& heads, const fs::path& folder, c10::ScalarType dtype) {
  const auto info = model::read_heads_info(heads);
  data::write_safetensors(folder / "model.safetensors", read_all(heads / "model.safetensors", dtype),
                          {{"format", "pt"}});
  data::write_file_atomically(folder / "config.json", info.config.dump(2) + "\n");
}

void write_medusa(const fs::path& heads, const fs::path& folder, c10::ScalarType dtype) {
  const auto info = model::read_heads_info(heads);
  if (info.config.at("kind") != "medusa") {
    throw data::InputError(heads.string() + " holds " + info.config.at("kind").get<std::string>() +
                           " heads, which the format medusa cannot express: export them as clover.");
  }
  data::NamedTensors tensors;
  for (const auto& [name, tensor] : read_all(heads / "model.safetensors", dtype)) {
    // The draft vocabulary is left out: it only saves time, and these readers use the whole LM head.
    if (name != "token_map") tensors.emplace_back(published_name("medusa", name), tensor);
  }
  data::write_safetensors(folder / medusa_file, tensors, {{"format", "pt"}});
  const int64_t blocks = static_cast<int64_t>(tensors.size()) / 2;  // each has a weight and a bias
  const nlohmann::json recorded = info.config.at("drafter").value("heads", nlohmann::json());
  if (recorded != blocks) {
    throw data::InputError((heads / "config.json").string() + ": \"heads\" is " + recorded.dump() +
                           ", but the weights are those of " + std::to_string(blocks) + ".");
  }
  // The target's folder in training; readers load the base model from it.
  const std::string target =
      info.config.value(nlohmann::json::json_pointer("/training/settings/target"), std::string());
  if (target.empty())
    std::fprintf(stderr, "config.json: \"base_model_name_or_path\" is empty: name the target there\n");
  const nlohmann::json config{{"medusa_num_heads", blocks},
                              {"medusa_num_layers", 1},
                              {"base_model_name_or_path", target},
                              {"model_type", "medusa"}};
  data::write_file_atomically(folder / "config.json", config.dump(2) + "\n");
}

}  // namespace

std::string list_export_formats() {
  return "clover (this project's own), medusa (Medusa's and TGI's medusa_lm_head.safetensors; heads of kind "
         "medusa)";
}

void check_export(const std::string& format, const fs::path& output) {
  if (format != "clover" && format != "medusa") {
    throw data::InputError("Format \"" + format + "\" is unknown; expected one of: " + list_export_formats() +
                           ".");
  }
  data::resolved_new_folder_name(output);
}

void export_heads(const fs::path& heads, const std::string& format, const fs::path& output,
                  c10::ScalarType dtype) {
  check_export(format, output);
  data::remove_unfinished(output);
  data::UnfinishedFolder fresh(output);
  format == "clover" ? write_clover(heads, fresh.path(), dtype) : write_medusa(heads, fresh.path(), dtype);
  fresh.finish();
}

}  // namespace clover::train
