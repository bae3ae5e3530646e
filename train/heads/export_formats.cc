#include "train/heads/export_formats.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "data/files/error.h"
#include "data/files/files.h"
#include "data/files/finite.h"
#include "data/files/safetensors.h"
#include "data/files/unfinished_folder.h"
#include "model/checkpoint/heads_checkpoint.h"
#include "train/heads/formats/format.h"
#include "train/heads/published_heads.h"

namespace clover::train {
namespace {

namespace fs = std::filesystem;
using data::InputError;

/// The tensors of a file, cast to `dtype` except for the token map.
data::NamedTensors read_tensors(const fs::path& file, c10::ScalarType dtype) {
  const auto reader = data::SafetensorsReader::open(file);
  data::NamedTensors tensors;
  for (const auto& name : reader.names()) {
    const at::Tensor stored = reader.read(name);
    tensors.emplace_back(
        name, name == "token_map" ? stored : data::cast_finite(file.string(), name, stored, dtype));
  }
  return tensors;
}

void write_clover(const HeadsExport& heads) {
  data::write_safetensors(heads.output_folder / "model.safetensors", heads.tensors, {{"format", "pt"}});
  data::write_file_atomically(heads.output_folder / "config.json", heads.config.dump(2) + "\n");
}

/// The LM head [V, H] of the target that the heads were trained on.
at::Tensor read_target_lm_head(const HeadsExport& heads, const std::string& format) {
  if (heads.target_folder.empty())
    throw InputError("The format " + format + " holds the target's LM head, and " +
                     heads.heads_folder.string() +
                     " does not say where the target is: give it with --target DIR.");
  const auto target =
      model::Target::load(heads.target_folder, model::TargetConfig::read(heads.target_folder).stored_dtype);
  const std::string fingerprint = heads.config.at("target").value("fingerprint", std::string());
  if (const std::string difference = target->difference_from(fingerprint); !difference.empty())
    throw InputError(heads.target_folder + " is not the target of " + heads.heads_folder.string() + " (" +
                     difference + "): give it with --target.");
  return target->view().head->unpack().cpu();
}

/// The format of that name; null if it does not exist or is only read.
const HeadsFormat* find_writable_format(const std::string& name) {
  const auto& formats = heads_formats();
  const auto found = std::ranges::find(formats, name, &HeadsFormat::name);
  return found != formats.end() && found->write != nullptr ? &*found : nullptr;
}

}  // namespace

std::string list_export_formats() {
  return "clover (this project's own); " + list_writable_formats();
}

void check_export(const std::string& format, const fs::path& output) {
  if (format != "clover" && find_writable_format(format) == nullptr)
    throw InputError("Format \"" + format + "\" is unknown; expected one of: " + list_export_formats() + ".");
  data::resolved_new_folder_name(output);
}

void export_heads(const fs::path& heads, const std::string& format, const fs::path& output,
                  c10::ScalarType dtype, const std::string& target) {
  check_export(format, output);
  const nlohmann::json config = model::read_heads_info(heads).config;
  const HeadsFormat* published_format = find_writable_format(format);
  if (published_format != nullptr && config.at("kind") != published_format->kind)
    throw InputError(heads.string() + " holds " + config.at("kind").get<std::string>() +
                     " heads, which the format " + format + " cannot express: export them as clover.");
  data::remove_unfinished(output);
  data::UnfinishedFolder output_folder(output);
  HeadsExport heads_export{.config = config,
                           .heads_folder = heads,
                           .tensors = read_tensors(heads / "model.safetensors", dtype),
                           .dtype = dtype,
                           .target_folder = target,
                           .target_lm_head = {},
                           .output_folder = output_folder.path()};
  if (target.empty()) {  // the target's folder in training
    const auto recorded = nlohmann::json::json_pointer("/training/settings/target");
    if (config.contains(recorded) && config.at(recorded).is_string())
      heads_export.target_folder = config.at(recorded).get<std::string>();
  }
  heads_export.target_lm_head = [&] { return read_target_lm_head(heads_export, format); };
  published_format != nullptr ? published_format->write(heads_export) : write_clover(heads_export);
  output_folder.finish();
}

}  // namespace clover::train
