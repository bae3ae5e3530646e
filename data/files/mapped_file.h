#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string_view>

namespace clover::data {

/// A regular file, mapped into memory as long as the object lives.  The mapping is private (copy on write):
/// writing to it changes neither the file nor other mappings.  The file must not be truncated in that time.
class MappedFile {
 public:
  /// InputError when the file is missing, is no regular file, or cannot be read.
  explicit MappedFile(const std::filesystem::path& file);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  char* bytes() const { return bytes_; }  // null for an empty file
  size_t size() const { return size_; }
  std::string_view view() const { return {bytes_, size_}; }

 private:
  char* bytes_ = nullptr;
  size_t size_ = 0;
};

}  // namespace clover::data
