#pragma once

#include <filesystem>

namespace clover::data {

/// A lock (flock) on a folder against a second process.  The system releases it when the process ends.
class FolderLock {
 public:
  /// Creates the folder and locks it.  InputError when another process has locked it.
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

}  // namespace clover::data
