#pragma once

#include <filesystem>

namespace clover::data {

/// The path of a folder by which it can be renamed: absolute, symbolic links followed, without a trailing
/// slash or
/// ".".  InputError for a path without a name, such as "/".
std::filesystem::path resolved_folder_name(const std::filesystem::path& folder);

/// As `resolved_folder_name`; InputError also when something exists there.
std::filesystem::path resolved_new_folder_name(const std::filesystem::path& folder);

/// Moves the finished folder `fresh` to `place` and removes the folder that was there; both have the same
/// parent. Where the file system can exchange two names this is one step, so that a reader always finds a
/// complete folder. Elsewhere it is two steps, and `remove_unfinished` repairs what a kill between them
/// leaves.  The change is synced to disk.
void replace_folder(const std::filesystem::path& fresh, const std::filesystem::path& place);

/// A folder that is built under a temporary name beside `place` and moved there when it is complete.
class UnfinishedFolder {
 public:
  /// Creates the temporary folder, and the parents of `place`.  InputError when that fails.
  explicit UnfinishedFolder(const std::filesystem::path& place);
  ~UnfinishedFolder();  // removes the folder unless `finish` was called
  UnfinishedFolder(const UnfinishedFolder&) = delete;
  UnfinishedFolder& operator=(const UnfinishedFolder&) = delete;

  const std::filesystem::path& path() const { return fresh_; }

  /// Moves the folder to `place`, as `replace_folder` does.
  void finish();

 private:
  std::filesystem::path place_;
  std::filesystem::path fresh_;
  bool finished_ = false;
};

/// Cleans up after processes that were killed while they built or replaced `place`: removes their temporary
/// folders, and moves an old folder back that had not been replaced yet.
void remove_unfinished(const std::filesystem::path& place);

}  // namespace clover::data
