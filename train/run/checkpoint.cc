#include "train/run/checkpoint.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "data/files/error.h"
#include "data/files/files.h"
#include "data/files/finite.h"
#include "data/files/unfinished_folder.h"
#include "train/run/settings.h"

namespace clover::train {
namespace {

namespace fs = std::filesystem;
constexpr int format_version = 2;
const std::string partial_prefix = ".partial-";  // of a folder that is being written or removed

/// "step-000100" for step 100.
std::string name_of(int64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "step-%06lld", static_cast<long long>(step));
  return name;
}

/// The step in the name of a checkpoint; -1 if the name has another form.
int64_t step_of(const fs::path& checkpoint) {
  const std::string name = checkpoint.filename().string();
  if (name.rfind("step-", 0) != 0 || name.size() < 6) return -1;
  const bool digits =
      std::all_of(name.begin() + 5, name.end(), [](unsigned char c) { return c >= '0' && c <= '9'; });
  return digits && name.size() < 20 ? std::stoll(name.substr(5)) : -1;
}

/// Removes a checkpoint.  It is renamed first, so that an incomplete one never has its name.
void discard(const fs::path& checkpoint) {
  const fs::path hidden =
      checkpoint.parent_path() / (partial_prefix + "old-" + checkpoint.filename().string());
  fs::remove_all(hidden);
  fs::rename(checkpoint, hidden);
  fs::remove_all(hidden);
}

/// The complete checkpoints of a folder, oldest first.
std::vector<fs::path> complete_checkpoints(const fs::path& folder) {
  std::vector<fs::path> found;
  if (!fs::is_directory(folder)) return found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (step_of(entry.path()) >= 0 && fs::exists(entry.path() / "state.json")) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return step_of(a) < step_of(b); });
  return found;
}

std::string to_text(const RunState& state, const RunRecord& record, const at::Tensor& token_map) {
  const nlohmann::json json{{"format_version", format_version},
                            {"step", state.step},
                            {"tokens", state.tokens},
                            {"wall_seconds", state.seconds},
                            {"seconds", state.device_seconds},
                            {"evaluation_seconds", state.evaluation_seconds},
                            {"joules", state.joules},
                            {"operations", state.operations},
                            {"best", state.best_tokens_per_step},
                            {"best_step", state.best_step},
                            {"best_on", state.best_eval_size},
                            {"evaluated_step", state.evaluated_step},
                            {"evaluation", state.evaluation},
                            {"draft_vocab", token_map.defined() ? token_map.numel() : 0},  // 0: all
                            {"identity", record.identity},
                            {"about", record.heads_metadata}};
  return json.dump(1) + "\n";
}

/// Whether a complete checkpoint at this place belongs to a run with the same results bit for bit, so that it
/// already holds the weights to save.  Only CPU runs are reproducible.
bool has_same_weights(const fs::path& checkpoint, const nlohmann::json& identity) {
  if (!fs::exists(checkpoint / "state.json")) return false;
  try {
    const nlohmann::json existing = read_checkpoint(checkpoint).identity;
    return identity.at("settings").value("device", "cpu") == "cpu" &&
           existing.at("target") == identity.at("target") && existing.at("data") == identity.at("data") &&
           FitSettings::same_weights(existing.at("settings"), identity.at("settings"));
  } catch (const data::InputError&) {
    return false;
  }
}

/// Writes all files of a checkpoint; `state`: the text of state.json.
void write_new(const fs::path& temporary, const std::string& state, const AdamW& optimiser,
               const at::Tensor& token_map) {
  fs::remove_all(temporary);
  fs::create_directories(temporary);
  data::write_safetensors(temporary / "state.safetensors", optimiser.state());
  if (token_map.defined())
    data::write_safetensors(temporary / "token_map.safetensors", {{"token_map", token_map}});
  data::write_file_atomically(temporary / "state.json", state);
}

}  // namespace

void Checkpoints::save(const RunState& state, const RunRecord& record, const AdamW& optimiser,
                       const at::Tensor& token_map, int64_t max_checkpoints) const {
  const fs::path final_name = at_step(state.step);
  const std::string text = to_text(state, record, token_map);
  if (has_same_weights(final_name, record.identity)) {
    // A resumed run has reached this step again.  The checkpoint may be the only one, so it is not replaced;
    // only its state.json is rewritten, atomically.
    data::write_file_atomically(final_name / "state.json", text);
  } else {
    const fs::path temporary = folder_ / (partial_prefix + name_of(state.step));
    write_new(temporary, text, optimiser, token_map);
    data::replace_folder(temporary, final_name);
  }
  const auto checkpoints = complete_checkpoints(folder_);
  if (max_checkpoints == 0) return;
  for (size_t i = 0; i + static_cast<size_t>(max_checkpoints) < checkpoints.size(); ++i)
    discard(checkpoints[i]);
}

std::optional<fs::path> Checkpoints::newest() const {
  const auto checkpoints = complete_checkpoints(folder_);
  if (checkpoints.empty()) return std::nullopt;
  return checkpoints.back();
}

std::optional<fs::path> Checkpoints::newest_before(const fs::path& checkpoint) const {
  std::optional<fs::path> older;
  for (const fs::path& candidate : complete_checkpoints(folder_))
    if (step_of(candidate) < step_of(checkpoint)) older = candidate;
  return older;
}

fs::path Checkpoints::at_step(int64_t step) const {
  return folder_ / name_of(step);
}

std::vector<int64_t> Checkpoints::steps() const {
  std::vector<int64_t> steps;
  for (const fs::path& checkpoint : complete_checkpoints(folder_)) steps.push_back(step_of(checkpoint));
  return steps;
}

void Checkpoints::remove_leftovers() const {
  if (!fs::is_directory(folder_)) return;
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    // Hidden folders are incomplete checkpoints, being written or being removed.
    if (entry.path().filename().string().rfind('.', 0) == 0) leftovers.push_back(entry.path());
  }
  for (const auto& leftover : leftovers) fs::remove_all(leftover);
}

std::vector<int64_t> Checkpoints::remove_later(int64_t step) const {
  std::vector<int64_t> removed;
  const auto checkpoints = complete_checkpoints(folder_);
  for (auto later = checkpoints.rbegin(); later != checkpoints.rend() && step_of(*later) > step; ++later) {
    discard(*later);
    removed.push_back(step_of(*later));
  }
  return removed;
}

namespace {

/// InputError unless the members of `identity` that others read have the right types.
void check_types(const nlohmann::json& identity, const std::string& where) {
  const auto is = [&](const char* key, nlohmann::json::value_t type) {
    return identity.is_object() && identity.contains(key) && identity.at(key).type() == type;
  };
  if (!is("settings", nlohmann::json::value_t::object) || !is("target", nlohmann::json::value_t::string) ||
      !is("data", nlohmann::json::value_t::string)) {
    throw data::InputError(where +
                           ": \"identity\" must hold the object \"settings\" and the texts \"target\" and "
                           "\"data\": use another checkpoint.");
  }
}

/// The token map of a checkpoint with a draft vocabulary of `size` tokens; undefined for size 0.
at::Tensor read_token_map(const fs::path& checkpoint, int64_t size) {
  const fs::path file = checkpoint / "token_map.safetensors";
  if (size == 0) {
    if (fs::exists(file)) {
      throw data::InputError(file.string() +
                             " lies beside a state.json that knows of no trimmed vocabulary: use another "
                             "checkpoint.");
    }
    return {};
  }
  return data::SafetensorsReader::open(file).read("token_map", {size}).clone();
}

}  // namespace

SavedRun read_checkpoint(const fs::path& checkpoint) {
  const fs::path file = checkpoint / "state.json";
  if (!fs::exists(file)) {
    throw data::InputError(checkpoint.string() +
                           " is no checkpoint: it holds no state.json; give a folder such as " +
                           "RUN_DIR/checkpoints/step-000100, or --resume auto.");
  }
  const nlohmann::json json = data::read_json(file);
  SavedRun saved;
  int64_t draft_vocab = 0;
  try {
    if (json.at("format_version") != format_version) {
      throw data::InputError(file.string() + " has format_version " + json.at("format_version").dump() +
                             ", expected " + std::to_string(format_version) +
                             ": it was written by another version of this program.");
    }
    saved.state = {.step = json.at("step"),
                   .tokens = json.at("tokens"),
                   .seconds = json.value("wall_seconds", json.at("seconds").get<double>()),
                   .device_seconds = json.at("seconds"),
                   .evaluation_seconds = json.value("evaluation_seconds", 0.0),
                   .joules = json.value("joules", 0.0),
                   .operations = json.value("operations", 0.0),
                   .best_tokens_per_step = json.at("best"),
                   .best_step = json.at("best_step"),
                   .evaluated_step = json.at("evaluated_step"),
                   .evaluation = json.at("evaluation"),
                   .best_eval_size = json.value("best_on", nlohmann::json())};
    saved.identity = json.at("identity");
    saved.heads_metadata = json.at("about");
    draft_vocab = json.at("draft_vocab");
  } catch (const nlohmann::json::exception& error) {
    throw data::InputError(file.string() + " is not a checkpoint's state (" + error.what() +
                           "): use another checkpoint.");
  }
  if (saved.state.step < 0 || draft_vocab < 0 || !saved.heads_metadata.is_object()) {
    throw data::InputError(file.string() +
                           ": \"step\" and \"draft_vocab\" must not be negative, and \"about\" must be an "
                           "object: use another checkpoint.");
  }
  check_types(saved.identity, file.string());
  saved.token_map = read_token_map(checkpoint, draft_vocab);
  return saved;
}

void check_optimiser(const fs::path& checkpoint, const data::NamedTensors& parameters) {
  const fs::path file = checkpoint / "state.safetensors";
  const auto reader = data::SafetensorsReader::open(file);
  AdamW::check_state(parameters, reader, file.string());
  for (const std::string& name : reader.names()) {
    if (!data::all_finite(reader.read(name)))
      throw data::InputError(file.string() + ": tensor " + name +
                             " holds what is no finite number: use another checkpoint.");
  }
}

void restore_weights_and_moments(const fs::path& checkpoint, int64_t steps, AdamW& optimiser) {
  const fs::path file = checkpoint / "state.safetensors";
  optimiser.restore(data::SafetensorsReader::open(file), file.string(), steps);
}

}  // namespace clover::train
