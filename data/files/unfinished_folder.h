#pragma once

#include <filesystem>

namespace clover::data {

/// The folder by its own name: absolute, without a slash or "." at the end, a link followed.  InputError when
/// it has no name.
std::filesystem::path folder_name(const std::filesystem::path& folder);

/// `folder_name`, and InputError when something stands there already.
std::filesystem::path new_folder_name(const std::filesystem::path& folder);

/// Puts the finished folder `fresh` where `place` is and removes what stood there; both lie in one folder.
/// One step where the file system can exchange two names, so a reader finds the old folder or the new one,
/// whole; elsewhere two, and `remove_unfinished` mends what a kill between them leaves.  On disk when it
/// returns.
void replace_folder(const std::filesystem::path& fresh, const std::filesystem::path& place);

/// A folder built beside its place under another name.
class UnfinishedFolder {
 public:
  /// Makes it, and the folders above it.  InputError when it cannot be made there.
  explicit UnfinishedFolder(const std::filesystem::path& place);
  ~UnfinishedFolder();  // removes it unless it is finished
  UnfinishedFolder(const UnfinishedFolder&) = delete;
  UnfinishedFolder& operator=(const UnfinishedFolder&) = delete;

  const std::filesystem::path& path() const { return fresh_; }

  /// Puts it in its place, as `replace_folder`.
  void finish();

 private:
  std::filesystem::path place_;
  std::filesystem::path fresh_;
  bool finished_ = false;
};

/// Removes what killed processes left while they built or replaced `place`; what one had moved away without
/// putting the new one there comes back.
void remove_unfinished(const std::filesystem::path& place);

}  // namespace clover::data
