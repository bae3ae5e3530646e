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

data::NamedTensors read_all(const fs::path& file, c10::ScalarType dtype) {
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
  data::write_safetensors(heads.to / "model.safetensors", heads.tensors, {{"format", "pt"}});
  data::write_file_atomically(heads.to / "config.json", heads.config.dump(2) + "\n");
}

/// The LM head [V, H] of the target that the heads were trained on.
at::Tensor head_rows_of(const HeadsExport& heads, const std::string& format) {
  if (heads.target_folder.empty())
    throw InputError("The format " + format + " holds the target's LM head, and " + heads.from.string() +
                     " does not say where the target is: give it with --target DIR.");
  const auto target =
      model::Target::load(heads.target_folder, model::TargetConfig::read(heads.target_folder).stored_dtype);
  const std::string trained_on = heads.config.at("target").value("fingerprint", std::string());
  if (const std::string other = target->difference_from(trained_on); !other.empty())
    throw InputError(heads.target_folder + " is not the target of " + heads.from.string() + " (" + other +
                     "): give it with --target.");
  return target->view().head->unpack().cpu();
}

const HeadsFormat* format_named(const std::string& name) {
  const auto& formats = heads_formats();
  const auto found = std::ranges::find(formats, name, &HeadsFormat::name);
  return found != formats.end() && found->write != nullptr ? &*found : nullptr;
}

}  // namespace

std::string list_export_formats() {
  return "clover (this project's own); " + list_written_formats();
}

void check_export(const std::string& format, const fs::path& output) {
  if (format != "clover" && format_named(format) == nullptr)
    throw InputError("Format \"" + format + "\" is unknown; expected one of: " + list_export_formats() + ".");
  data::resolved_new_folder_name(output);
}

void export_heads(const fs::path& heads, const std::string& format, const fs::path& output,
                  c10::ScalarType dtype, const std::string& target) {
  check_export(format, output);
  const nlohmann::json config = model::read_heads_info(heads).config;
  const HeadsFormat* published = format_named(format);
  if (published != nullptr && config.at("kind") != published->kind)
    throw InputError(heads.string() + " holds " + config.at("kind").get<std::string>() +
                     " heads, which the format " + format + " cannot express: export them as clover.");
  data::remove_unfinished(output);
  data::UnfinishedFolder fresh(output);
  HeadsExport all{.config = config,
                  .from = heads,
                  .tensors = read_all(heads / "model.safetensors", dtype),
                  .dtype = dtype,
                  .target_folder = target,
                  .head_rows = {},
                  .to = fresh.path()};
  if (target.empty()) {  // the target's folder in training
    const auto recorded = nlohmann::json::json_pointer("/training/settings/target");
    if (config.contains(recorded) && config.at(recorded).is_string())
      all.target_folder = config.at(recorded).get<std::string>();
  }
  all.head_rows = [&] { return head_rows_of(all, format); };
  published != nullptr ? published->write(all) : write_clover(all);
  fresh.finish();
}

}  // namespace clover::train
