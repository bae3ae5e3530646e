#include "train/synthesize/parts_folder.h"

#include "data/files/error.h"
#include "data/files/files.h"
#include "data/files/json_fields.h"

namespace clover::train {
namespace {

using nlohmann::json;

constexpr const char* settings_name = "settings.json";

/// A setting as an error message shows it.
std::string setting_text(const json& value) {
  if (value.is_null() || value == "") return "nothing";
  return value.is_string() ? value.get<std::string>() : data::to_json_line(value);
}

}  // namespace

bool PartsFolder::is_there(const std::filesystem::path& path) {
  return std::filesystem::exists(path / settings_name);
}

PartsFolder::PartsFolder(const std::filesystem::path& path, const json& settings)
    : path_(path), settings_(settings), lock_(path) {
  if (is_there(path_)) {
    check_settings();
  } else if (holds_other_files()) {
    throw data::InputError(path_.string() +
                           ": expected no folder of this name, or one of an unfinished run, found one with "
                           "other files; move it away or choose another --output");
  }
}

void PartsFolder::write_settings() const {
  data::write_file_atomically(path_ / settings_name,
                              settings_.dump(1, ' ', false, json::error_handler_t::replace) + "\n");
}

/// Whether it holds anything but what a kill leaves while settings.json is written.
bool PartsFolder::holds_other_files() const {
  const std::string temporary = std::string(".") + settings_name + ".";
  for (const auto& entry : std::filesystem::directory_iterator(path_))
    if (!entry.path().filename().string().starts_with(temporary)) return true;
  return false;
}

void PartsFolder::check_settings() const {
  const json before = data::read_json(path_ / settings_name);
  if (!before.is_object()) {
    throw data::InputError((path_ / settings_name).string() +
                           ": expected the settings of a run, found something else; remove the folder or "
                           "choose another --output");
  }
  for (const auto& [name, value] : settings_.items()) check(name, before.value(name, json()), value);
  for (const auto& [name, value] : before.items()) check(name, value, settings_.value(name, json()));
}

/// InputError when the setting differs.
void PartsFolder::check(const std::string& name, const json& before, const json& now) const {
  if (data::to_json_line(before) == data::to_json_line(now)) return;
  throw data::InputError(path_.string() + ": it was begun with " + name + " " + setting_text(before) +
                         ", not " + setting_text(now) + "; continue with the settings of " +
                         (path_ / settings_name).string() + ", remove the folder or choose another --output");
}

}  // namespace clover::train
