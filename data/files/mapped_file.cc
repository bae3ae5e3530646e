#include "data/files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "data/files/error.h"

namespace clover::data {

MappedFile::MappedFile(const std::filesystem::path& file) {
  // O_NONBLOCK: opening a named pipe must fail the check below, not wait for a writer.
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) throw InputError(file.string() + ": cannot be opened: " + std::strerror(errno));
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor);
    throw InputError(file.string() + ": expected a regular file, found something else");
  }
  size_ = static_cast<size_t>(status.st_size);
  if (size_ > 0) {
    // Private and writable: changing a loaded tensor in place copies the touched pages.  MAP_NORESERVE: no
    // swap is reserved for such copies.
    void* mapped = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, descriptor, 0);
    if (mapped == MAP_FAILED) {
      const int reason = errno;
      ::close(descriptor);
      throw InputError(file.string() + ": cannot be mapped into memory: " + std::strerror(reason));
    }
    bytes_ = static_cast<char*>(mapped);
  }
  ::close(descriptor);
}

MappedFile::~MappedFile() {
  if (bytes_ != nullptr) ::munmap(bytes_, size_);
}

}  // namespace clover::data
