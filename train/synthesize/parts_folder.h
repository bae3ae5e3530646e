#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "data/files/folder_lock.h"

namespace clover::train {

/// The folder of a run that is not finished, with its settings in settings.json, locked against a second
/// process.
class PartsFolder {
 public:
  /// Whether there is such a folder of a run that was stopped.
  static bool is_there(const std::filesystem::path& path);

  /// Creates the folder, or takes that of a run with the same settings.  `settings`: those that decide what
  /// is generated.  InputError when another process uses the folder, when its run had other settings (the
  /// first difference is named), or when it holds other files.
  PartsFolder(const std::filesystem::path& path, const nlohmann::json& settings);

  const std::filesystem::path& path() const { return path_; }

  /// Writes the settings, by which the folder is known as a run's.
  void write_settings() const;

  /// Removes the folder with everything in it.
  void remove() const { std::filesystem::remove_all(path_); }

 private:
  bool holds_other_files() const;
  void check_settings() const;
  void check(const std::string& name, const nlohmann::json& before, const nlohmann::json& now) const;

  std::filesystem::path path_;
  nlohmann::json settings_;
  data::FolderLock lock_;
};

}  // namespace clover::train
