#include "train/checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "data/error.h"
#include "data/files.h"

namespace clover::train {
namespace {

namespace fs = std::filesystem;
constexpr int format_version = 1;
const std::string half_written = ".partial-";

/// A rename is on disk only when the folder that holds the name is.
void sync_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

std::string name_of(int64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "step-%06lld", static_cast<long long>(step));
  return name;
}

int64_t step_of(const fs::path& checkpoint) {
  const std::string name = checkpoint.filename().string();
  if (name.rfind("step-", 0) != 0 || name.size() < 6) return -1;
  const bool digits =
      std::all_of(name.begin() + 5, name.end(), [](unsigned char c) { return c >= '0' && c <= '9'; });
  return digits && name.size() < 20 ? std::stoll(name.substr(5)) : -1;
}

/// Removes a checkpoint so that no half of it is ever seen under its name.
void discard(const fs::path& checkpoint) {
  const fs::path away = checkpoint.parent_path() / (half_written + "old-" + checkpoint.filename().string());
  fs::remove_all(away);
  fs::rename(checkpoint, away);
  fs::remove_all(away);
}

/// Whole checkpoints, oldest first.
std::vector<fs::path> whole_ones(const fs::path& folder) {
  std::vector<fs::path> found;
  if (!fs::is_directory(folder)) return found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (step_of(entry.path()) >= 0 && fs::exists(entry.path() / "state.json")) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return step_of(a) < step_of(b); });
  return found;
}

nlohmann::json to_json(const RunState& state, const nlohmann::json& identity) {
  return {{"format_version", format_version},
          {"step", state.step},
          {"tokens", state.tokens},
          {"seconds", state.seconds},
          {"best", state.best},
          {"best_step", state.best_step},
          {"evaluated_step", state.evaluated_step},
          {"identity", identity}};
}

}  // namespace

void Checkpoints::save(const RunState& state, const nlohmann::json& identity, const AdamW& optimiser,
                       const at::Tensor& token_map, int64_t keep) const {
  const fs::path temporary = folder_ / (half_written + name_of(state.step));
  const fs::path final_name = at_step(state.step);
  fs::remove_all(temporary);
  fs::create_directories(temporary);
  data::write_safetensors(temporary / "state.safetensors", optimiser.state());
  if (token_map.defined())
    data::write_safetensors(temporary / "token_map.safetensors", {{"token_map", token_map}});
  data::write_file_atomically(temporary / "state.json", to_json(state, identity).dump(1) + "\n");
  sync_folder(temporary);
  // The same step again (a run continued from it) holds the same values: the old one may go.
  if (fs::exists(final_name)) discard(final_name);
  fs::rename(temporary, final_name);
  sync_folder(folder_);
  const auto all = whole_ones(folder_);
  if (keep == 0) return;
  for (size_t i = 0; i + static_cast<size_t>(keep) < all.size(); ++i) discard(all[i]);
}

std::optional<fs::path> Checkpoints::newest() const {
  const auto all = whole_ones(folder_);
  if (all.empty()) return std::nullopt;
  return all.back();
}

fs::path Checkpoints::at_step(int64_t step) const {
  return folder_ / name_of(step);
}

void Checkpoints::remove_leftovers() const {
  if (!fs::is_directory(folder_)) return;
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    if (entry.path().filename().string().rfind(half_written, 0) == 0) leftovers.push_back(entry.path());
  }
  for (const auto& leftover : leftovers) fs::remove_all(leftover);
}

SavedRun read_checkpoint(const fs::path& checkpoint) {
  const fs::path file = checkpoint / "state.json";
  if (!fs::exists(file)) {
    throw data::InputError(checkpoint.string() +
                           " is no checkpoint: it holds no state.json; give a folder such as " +
                           "RUN_DIR/checkpoints/step-000100, or --resume auto.");
  }
  const nlohmann::json json = data::read_json(file);
  SavedRun saved;
  try {
    if (json.at("format_version") != format_version) {
      throw data::InputError(file.string() + " has format_version " + json.at("format_version").dump() +
                             ", expected 1: it was written by another version of this program.");
    }
    saved.state = {json.at("step"), json.at("tokens"),    json.at("seconds"),
                   json.at("best"), json.at("best_step"), json.at("evaluated_step")};
    saved.identity = json.at("identity");
  } catch (const nlohmann::json::exception& error) {
    throw data::InputError(file.string() + " is not a checkpoint's state (" + error.what() +
                           "): use another checkpoint.");
  }
  const fs::path map = checkpoint / "token_map.safetensors";
  if (fs::exists(map)) saved.token_map = data::SafetensorsReader::open(map).read("token_map").clone();
  return saved;
}

void restore_optimiser(const fs::path& checkpoint, int64_t steps, AdamW& optimiser) {
  const fs::path file = checkpoint / "state.safetensors";
  optimiser.restore(data::SafetensorsReader::open(file), file.string(), steps);
}

}  // namespace clover::train
