#include "data/files/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "data/files/error.h"

namespace clover::data {

FolderLock::FolderLock(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  // Locks the folder itself, so that no lock file is left.
  descriptor_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor_ < 0) {
    throw InputError(folder.string() + " cannot be used as a folder of results: " + std::strerror(errno) +
                     ".");
  }
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(descriptor_);
    throw InputError(folder.string() +
                     " is in use by another process: wait for it, or give another --output.");
  }
}

FolderLock::~FolderLock() {
  ::close(descriptor_);
}

}  // namespace clover::data
