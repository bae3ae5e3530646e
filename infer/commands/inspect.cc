#include "infer/commands/inspect.h"

#include <ATen/ops/isfinite.h>

#include "data/files/error.h"
#include "data/files/files.h"
#include "data/files/json_fields.h"
#include "data/files/safetensors.h"
#include "infer/bench/bench.h"
#include "infer/bench/training_cost.h"
#include "infer/program/interrupt.h"
#include "infer/requests/decode_flags.h"
#include "model/checkpoint/heads_checkpoint.h"

namespace clover::infer {
namespace {

using nlohmann::json;

/// Sizes of all tensors of a folder: {"tensors", "parameters", "parameters_by_dtype", "bytes"}.
json tensor_totals(const std::filesystem::path& folder) {
  const data::SafetensorsReader reader = data::SafetensorsReader::open(folder);
  int64_t parameters = 0, bytes = 0;
  json dtypes = json::object();
  for (const std::string& name : reader.names()) {
    const data::TensorInfo& info = reader.info(name);
    int64_t count = 1;
    for (const int64_t size : info.shape) count *= size;
    parameters += count;
    bytes += count * static_cast<int64_t>(c10::elementSize(info.dtype));
    const std::string dtype = c10::toString(info.dtype);
    dtypes[dtype] = dtypes.value(dtype, int64_t{0}) + count;
  }
  return {{"tensors", reader.names().size()},
          {"parameters", parameters},
          {"parameters_by_dtype", dtypes},
          {"bytes", bytes}};
}

/// The names of the tensors that hold an infinity or a NaN.
json tensors_not_finite(const std::filesystem::path& folder) {
  const data::SafetensorsReader reader = data::SafetensorsReader::open(folder);
  json names = json::array();
  for (const std::string& name : reader.names()) {
    stop_if_interrupted();
    const at::Tensor tensor = reader.read(name);
    if (tensor.is_floating_point() && !at::isfinite(tensor).all().item<bool>()) names.push_back(name);
  }
  return names;
}

json describe_config(const model::TargetConfig& config) {
  return {{"family", config.family},
          {"hidden", config.hidden},
          {"layers", config.layers},
          {"heads", config.heads},
          {"kv_heads", config.kv_heads},
          {"head_dim", config.head_dim},
          {"intermediate", config.intermediate},
          {"vocab", config.vocab},
          {"context", config.context},
          {"rope", config.rope.settings()},
          {"norm_eps", config.norm_eps},
          {"tied_head", config.tied_head},
          {"stored_dtype", model::dtype_name(config.stored_dtype)}};
}

void add_lines(const json& value, const std::string& key, std::string& lines) {
  if (value.is_object()) {
    for (const auto& [name, inner] : value.items())
      add_lines(inner, key.empty() ? name : key + "." + name, lines);
    return;
  }
  std::string text = value.is_string() ? value.get<std::string>() : data::to_json_line(value);
  if (text.size() > 100) text = text.substr(0, 100) + "...";
  lines += key + ": " + text + "\n";
}

}  // namespace

FolderKind kind_of_folder(const std::filesystem::path& folder) {
  const json config = data::read_json(folder / "config.json");
  if (config.is_object() && config.contains("model_type")) return FolderKind::model;
  if (config.is_object() && config.contains("format_version") && config.contains("kind"))
    return FolderKind::heads;
  throw data::InputError(
      (folder / "config.json").string() +
      ": expected \"model_type\" (a model) or \"format_version\" and \"kind\" (heads), found "
      "neither");
}

json inspect_model(const ModelOptions& options, bool check_values) {
  const std::filesystem::path folder = options.target;
  json description = {{"folder", options.target}, {"type", "model"}};
  description.update(tensor_totals(folder));
  const LoadedModel model = load_model(options);
  stop_if_interrupted();
  description["config"] = describe_config(model.target->config());
  description["config"]["end_ids"] = chosen_end_ids({}, options.target, model);
  description["fingerprint"] = model.target->fingerprint();
  // As loaded; "bytes" and "stored_dtype" are those of the files.
  description["weight_bytes"] = model.target->weight_bytes();
  description["dtype"] = model::dtype_name(model.target->dtype());
  description["tokenizer"] = {{"hash", model.prompt_encoder->tokenizer().hash()},
                              {"vocab", model.prompt_encoder->tokenizer().vocab_size()}};
  description["chat_template"] = {{"name", model.prompt_encoder->template_name()},
                                  {"hash", model.prompt_encoder->template_hash()}};
  if (check_values) description["not_finite"] = tensors_not_finite(folder);
  return description;
}

json inspect_heads(const std::filesystem::path& folder) {
  const model::HeadsInfo info = model::read_heads_info(folder);
  json description = {{"folder", folder.string()}, {"type", "heads"}, {"kind", info.config["kind"]}};
  description.update(tensor_totals(folder));
  description["config"] = info.config;
  if (const auto cost = training_cost(info.config)) description["training_cost"] = to_json(*cost);
  return description;
}

namespace {

/// verify_heads' "own_prompts": decodes the user's --prompts plainly and with the heads, one request at a
/// time.
json compare_with_plain(const LoadedModel& model, const std::string& folder, const DecodeFlags& flags,
                        const std::vector<BatchLine>& lines) {
  BenchPlan plan;
  plan.policies = {"clover"};
  plan.batch_sizes = {1};
  plan.suffix = "off";
  plan.base = to_engine_options(flags, /*has_heads=*/true);
  // Two: `off`, with which every plan begins, and `clover`, whose entry compares it with `off`.
  const auto configurations = plan_configurations(plan, {{folder, model.drafter}});
  const json measured =
      run_bench(model, configurations, lines, /*rounds=*/1, [](const std::string&) {}).back();
  return {{"requests", lines.size()},
          {"tokens_per_step", measured.at("tokens_per_step")},
          {"differs_from_plain", measured.at("differs_from_off")}};
}

}  // namespace

json verify_heads(const std::filesystem::path& folder, const ModelOptions& options,
                  const std::string& prompts) {
  constexpr size_t max_prompts = 10;
  DecodeFlags flags;
  flags.sampling.max_tokens = 64;
  std::vector<BatchLine> lines;
  if (!prompts.empty()) lines = read_batch_file(prompts, flags.sampling);
  if (lines.size() > max_prompts) lines.erase(lines.begin() + max_prompts, lines.end());
  const json config = model::read_heads_info(folder).config;
  ModelOptions with_heads = options;
  with_heads.heads = folder.string();
  const LoadedModel model = load_model(with_heads);
  stop_if_interrupted();
  const double agreement =
      model::golden_agreement(*model.drafter, *model.target, config.value("golden", json()));
  if (agreement < 0) {
    throw data::InputError(folder.string() +
                           ": expected a golden prompt in config.json to verify with, found none");
  }
  json result{{"golden_agreement", agreement}};
  if (!lines.empty()) {
    flags.end_ids = chosen_end_ids({}, options.target, model);
    result["own_prompts"] = compare_with_plain(model, folder.string(), flags, lines);
  }
  return result;
}

std::string to_lines(const json& description) {
  std::string lines;
  add_lines(description, "", lines);
  return lines;
}

}  // namespace clover::infer
