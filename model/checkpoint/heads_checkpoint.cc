#include "model/checkpoint/heads_checkpoint.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "data/files/error.h"
#include "data/files/files.h"
#include "data/files/finite.h"
#include "data/files/safetensors.h"
#include "data/files/unfinished_folder.h"
#include "kernels/gpu/gpu.h"
#include "model/graphs/draft_runner.h"
#include "model/graphs/guesses.h"

namespace clover::model {
namespace {

using data::InputError;
using nlohmann::json;

constexpr int64_t format_version = 1;

/// The "target" object of config.json.
json describe(const Target& target) {
  json settings = target.config().network_settings();
  json description = {{"fingerprint", target.fingerprint()}};
  for (const char* key : {"model_type", "hidden_size", "num_hidden_layers", "vocab_size"}) {
    description[key] = settings.at(key);
    settings.erase(key);
  }
  description["config"] = std::move(settings);
  return description;
}

/// InputError when `recorded` has another value than `expected` for a key.  Objects, lists and the
/// fingerprint are not compared.  `require_all`: keys that `recorded` lacks are an error; without it they are
/// ignored, because older heads do not record all.  `prefix` precedes the key in messages.
void check_values(const std::string& where, const json& recorded, const json& expected, bool require_all,
                  const std::string& prefix = "") {
  for (const auto& [key, value] : expected.items()) {
    const bool is_recorded = recorded.is_object() && recorded.contains(key);
    if (value.is_structured() || key == "fingerprint" ||
        (is_recorded ? recorded.at(key) == value : !require_all))
      continue;
    throw InputError(where + ": these heads belong to another target: " + prefix + key + " is " +
                     (is_recorded ? recorded.at(key).dump().substr(0, 80) : "missing") +
                     ", the given target's is " + value.dump() + "; use the target they were trained on.");
  }
}

/// InputError unless `recorded`, the "target" object of config.json, describes `target`.
void check_target(const std::string& where, const json& recorded, const Target& target) {
  const json expected = describe(target);
  check_values(where, recorded, expected, true);
  const json config = recorded.value("config", json::object());
  check_values(where, config, expected.at("config"), false);
  if (config.is_object() && config.contains("rope"))
    check_values(where, config.at("rope"), expected.at("config").at("rope"), false, "rope ");
  const json fingerprint = recorded.value("fingerprint", json());
  const std::string other = fingerprint.is_string() ? target.difference_from(fingerprint.get<std::string>())
                                                    : "nothing that is said";
  if (!other.empty()) {
    throw InputError(where + ": these heads belong to another target, " + other + ": fingerprint is " +
                     fingerprint.dump().substr(0, 80) + ", the given target's is \"" + target.fingerprint() +
                     "\"; use the target they were trained on.");
  }
}

/// The draft vocabulary, i64 [V'] ascending token ids; undefined when the heads have the whole vocabulary.
at::Tensor read_token_map(const std::string& where, const data::SafetensorsReader& reader, const json& config,
                          const Target& target) {
  const json& size = config.at("draft_vocab");
  const int64_t vocab = target.config().vocab;
  if (!size.is_number_integer() || size.get<int64_t>() < 1 || size.get<int64_t>() > vocab) {
    throw InputError(where + ": \"draft_vocab\" is " + size.dump() + ", expected an integer from 1 to " +
                     std::to_string(vocab) + ".");
  }
  if (!reader.contains("token_map") && size.get<int64_t>() == vocab) return {};
  const at::Tensor map = reader.read("token_map", {size.get<int64_t>()});
  check_token_map(where, map, vocab);
  return map.clone();
}

/// Copies the stored tensors to the drafter's parameters of the same names.  `others`: names of tensors that
/// may be stored besides them; any other tensor is an InputError.
void read_weights(const std::string& where, const data::SafetensorsReader& reader, Drafter& drafter,
                  const std::set<std::string>& others) {
  const at::NoGradGuard no_grad;
  std::set<std::string> expected = others;
  for (auto& [name, value] : drafter.named_parameters()) {
    expected.insert(name);
    if (!reader.contains(name)) throw InputError(where + ": tensor " + name + " is missing.");
    const at::Tensor stored = reader.read(name, value.sizes());
    check_weight(where, name, stored);
    value.copy_(stored);
  }
  for (const std::string& name : reader.names()) {
    if (!expected.contains(name)) {
      throw InputError(where + ": tensor " + name + " " + c10::str(at::IntArrayRef(reader.info(name).shape)) +
                       " is not part of these heads; expected only the tensors of kind " + drafter.kind() +
                       ".");
    }
  }
}

}  // namespace

void check_weight(const std::string& where, const std::string& name, const at::Tensor& stored) {
  if (stored.scalar_type() != at::kBFloat16 && stored.scalar_type() != at::kHalf &&
      stored.scalar_type() != at::kFloat)
    throw InputError(where + ": tensor " + name + " must be bfloat16, float16 or float32.");
  if (!data::all_finite(stored))
    throw InputError(where + ": tensor " + name + " holds what is no finite number; use other heads.");
}

HeadsInfo read_heads_info(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "config.json";
  if (!std::filesystem::is_directory(folder)) {
    throw InputError("Heads folder " + folder.string() +
                     " does not exist: give a folder that clover-train wrote "
                     "(config.json and model.safetensors).");
  }
  HeadsInfo info{data::read_json(file), 0};
  const std::string where = file.string();
  if (!info.config.is_object() || !info.config.contains("format_version")) {
    throw InputError(where + ": \"format_version\" is missing, so this is not a Clover heads folder.");
  }
  if (info.config.at("format_version") != format_version) {
    throw InputError(where + ": format_version is " + info.config.at("format_version").dump() +
                     ", this build reads " + std::to_string(format_version) + ".");
  }
  const std::set<std::string> required{"format_version", "kind", "drafter", "draft_vocab", "target"};
  const std::set<std::string> optional{"tokenizer", "chat_template", "training", "golden"};
  for (const std::string& key : required) {
    if (!info.config.contains(key)) throw InputError(where + ": \"" + key + "\" is missing.");
  }
  for (const auto& [key, value] : info.config.items()) {
    if (!required.contains(key) && !optional.contains(key))
      throw InputError(where + ": key \"" + key + "\" is unknown.");
  }
  if (!info.config.at("kind").is_string()) throw InputError(where + ": \"kind\" must be a string.");
  if (!info.config.at("drafter").is_object()) {
    throw InputError(where + ": \"drafter\" is " + info.config.at("drafter").dump().substr(0, 80) +
                     ", expected an object of settings.");
  }
  std::error_code error;
  info.bytes = std::filesystem::file_size(folder / "model.safetensors", error);
  if (error) {
    const std::filesystem::path weights = folder / "model.safetensors";
    throw InputError(weights.string() + (std::filesystem::exists(weights)
                                             ? ": expected a regular file, found something else."
                                             : " is missing; the heads folder is not whole."));
  }
  return info;
}

void check_token_map(const std::string& where, const at::Tensor& map, int64_t vocab) {
  if (map.scalar_type() != at::kLong || map.dim() != 1) {
    throw InputError(where + ": tensor token_map is " + c10::toString(map.scalar_type()) + " " +
                     c10::str(map.sizes()) + ", expected int64 of one dimension.");
  }
  const at::Tensor dense = map.contiguous();
  const int64_t* ids = dense.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < dense.size(0); ++i) {
    if (ids[i] < (i ? ids[i - 1] + 1 : 0) || ids[i] >= vocab) {
      throw InputError(where + ": token_map[" + std::to_string(i) + "] is " + std::to_string(ids[i]) +
                       ", expected ascending token ids below " + std::to_string(vocab) + ".");
    }
  }
}

std::shared_ptr<Drafter> load_heads(const std::filesystem::path& folder, const Target& target,
                                    bool trainable) {
  const HeadsInfo info = read_heads_info(folder);
  const std::string where = (folder / "config.json").string();
  check_target(where, info.config.at("target"), target);
  const auto reader = data::SafetensorsReader::open(folder / "model.safetensors");
  const std::string weights = (folder / "model.safetensors").string();
  const at::Tensor map = read_token_map(weights, reader, info.config, target);
  const auto drafter = make_drafter(info.config.at("kind").get<std::string>(), info.config.at("drafter"),
                                    target.view(), map, trainable, /*seed=*/0);
  std::set<std::string> others;
  if (map.defined()) others.insert("token_map");
  read_weights(weights, reader, *drafter, others);
  if (target.dtype() ==
      at::kHalf) {  // weights for an fp16 target must be finite in fp16, also if they are trained further
    for (const auto& [key, value] : drafter->named_parameters())
      data::cast_finite(weights, key, value.detach().cpu(), at::kHalf);
  }
  if (!trainable) drafter->freeze(target.dtype());
  return drafter;
}

void save_heads(const std::filesystem::path& folder, Drafter& drafter, const Target& target,
                const json& metadata, at::ScalarType dtype) {
  json config = metadata.is_null() ? json::object() : metadata;
  config["format_version"] = format_version;
  config["kind"] = drafter.kind();
  config["drafter"] = drafter.settings();
  config["draft_vocab"] = drafter.head(0).outputs;
  config["target"] = describe(target);
  data::NamedTensors tensors;
  for (const auto& [key, value] : drafter.named_parameters()) {
    tensors.emplace_back(key, data::cast_finite(folder.string(), key, value.detach().to(at::kCPU), dtype));
  }
  if (drafter.head(0).token_map.defined()) tensors.emplace_back("token_map", drafter.head(0).token_map.cpu());

  data::UnfinishedFolder unfinished(folder);
  data::write_safetensors(unfinished.path() / "model.safetensors", tensors, {{"format", "pt"}});
  data::write_file_atomically(unfinished.path() / "config.json", config.dump(2) + "\n");
  unfinished.finish();
}

namespace {

/// The first head's best guess at each position t of `ids` but the last, given the token at t + 1:
/// [ids.size() - 1].
std::vector<int64_t> first_guesses(Drafter& drafter, const Target& target, const std::vector<int64_t>& ids) {
  const at::NoGradGuard no_grad;
  const int64_t rows = static_cast<int64_t>(ids.size()) - 1, page_size = 64;
  KvCache cache(target.kv_shape(drafter.kv_layers()), (rows + page_size - 1) / page_size, page_size);
  const int32_t sequence = cache.open();
  RowBatch batch;
  std::vector<int32_t> kept;
  for (int64_t row = 0; row < rows; ++row) {
    batch.add(ids[row], sequence, static_cast<int32_t>(row) - 1);
    kept.push_back(static_cast<int32_t>(row));
  }
  const TargetOutput output = target.forward(batch, cache, drafter.taps());
  cache.keep_rows(sequence, kept, target.config().layers);
  std::vector<int64_t> all_rows(rows);
  std::iota(all_rows.begin(), all_rows.end(), 0);
  GraphRunner graph_runner(target.device(), /*enabled=*/false);
  DraftRunner draft_runner(drafter, cache, target.config().layers, graph_runner);
  const DraftState state = draft_runner.read(
      {{output.features}, {ids.begin() + 1, ids.end()}, {{sequence, 0, static_cast<int32_t>(rows)}}},
      all_rows);
  const at::Tensor best = kernels::to_host({guesses_of(drafter, state, 1).ids})[0];
  return {best.const_data_ptr<int64_t>(), best.const_data_ptr<int64_t>() + rows};
}

}  // namespace

json make_golden(Drafter& drafter, const Target& target, const std::vector<int64_t>& ids) {
  return {{"ids", ids}, {"first_guesses", first_guesses(drafter, target, ids)}};
}

double golden_agreement(Drafter& drafter, const Target& target, const json& golden) {
  if (!golden.is_object() || !golden.contains("ids") || !golden.contains("first_guesses")) return -1;
  std::vector<int64_t> ids, recorded;
  try {
    ids = golden.at("ids").get<std::vector<int64_t>>();
    recorded = golden.at("first_guesses").get<std::vector<int64_t>>();
  } catch (const json::exception&) {
    throw InputError(
        "config.json: \"golden\" must hold two lists of token ids, \"ids\" and \"first_guesses\".");
  }
  const bool in_range =
      std::all_of(ids.begin(), ids.end(), [&](int64_t id) { return id >= 0 && id < target.config().vocab; });
  if (ids.size() < 2 || recorded.size() + 1 != ids.size() || !in_range ||
      static_cast<int64_t>(ids.size()) > target.config().context) {
    throw InputError(
        "config.json: \"golden\" is inconsistent: expected ids of the target's vocabulary and one guess "
        "fewer.");
  }
  const std::vector<int64_t> guesses = first_guesses(drafter, target, ids);
  int64_t same = 0;
  for (size_t i = 0; i < guesses.size(); ++i) same += guesses[i] == recorded[i];
  return static_cast<double>(same) / static_cast<double>(guesses.size());
}

}  // namespace clover::model
