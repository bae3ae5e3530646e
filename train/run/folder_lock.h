#pragma once

#include <filesystem>

namespace clover::train {

/// Keeps a second process out of a run folder; released when the process ends, however it ends.
class FolderLock {
 public:
  /// Makes the folder.  InputError when another process holds it.
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

}  // namespace clover::train
