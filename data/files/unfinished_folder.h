#pragma once

#include <filesystem>

namespace clover::data {

/// The absolute path of a folder, without a trailing slash or ".", so that its last part is the folder's
/// name.  If `folder` is a symbolic link, the path that it leads to.  InputError for an empty path.
std::filesystem::path resolved_folder_name(const std::filesystem::path& folder);

/// As `resolved_folder_name`, for a folder that is to be created: InputError also when the path exists.
std::filesystem::path resolved_new_folder_name(const std::filesystem::path& folder);

/// Moves the finished folder `new_folder` to `destination`, which has the same parent, and removes the folder
/// that was there.  Where the file system can exchange two names this is one step, so that a reader always
/// finds a complete folder.  Elsewhere it takes two steps; if the process is killed between them,
/// `remove_unfinished` moves the old folder back.  The change is synced to disk.
void replace_folder(const std::filesystem::path& new_folder, const std::filesystem::path& destination);

/// A folder that is built under a temporary name beside `destination`, and moved to `destination` when it is
/// complete.
class UnfinishedFolder {
 public:
  /// Creates the temporary folder, and the parents of `destination`.  InputError when that fails.
  explicit UnfinishedFolder(const std::filesystem::path& destination);
  ~UnfinishedFolder();  // removes the folder unless `finish` was called
  UnfinishedFolder(const UnfinishedFolder&) = delete;
  UnfinishedFolder& operator=(const UnfinishedFolder&) = delete;

  const std::filesystem::path& path() const { return temporary_; }  // where to build it

  /// Moves the folder to `destination`, as `replace_folder` does.
  void finish();

 private:
  std::filesystem::path destination_;
  std::filesystem::path temporary_;
  bool finished_ = false;
};

/// Cleans up after processes that were killed while they built or replaced `destination`: removes their
/// temporary folders, and moves the old folder back if there is no new one yet.
void remove_unfinished(const std::filesystem::path& destination);

}  // namespace clover::data
