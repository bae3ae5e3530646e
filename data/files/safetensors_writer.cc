#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <system_error>

#include "data/files/error.h"
#include "data/files/safetensors.h"
#include "data/files/safetensors_header.h"

namespace clover::data {
namespace {

namespace fs = std::filesystem;

const char* dtype_name(at::ScalarType dtype) {
  switch (dtype) {
    case at::kBool:
      return "BOOL";
    case at::kByte:
      return "U8";
    case at::kChar:
      return "I8";
    case at::kShort:
      return "I16";
    case at::kInt:
      return "I32";
    case at::kLong:
      return "I64";
    case at::kHalf:
      return "F16";
    case at::kBFloat16:
      return "BF16";
    case at::kFloat:
      return "F32";
    case at::kDouble:
      return "F64";
    default:
      return nullptr;
  }
}

/// A file that has a temporary name until it is complete, and is removed if writing it fails.
class UnfinishedFile {
 public:
  explicit UnfinishedFile(const fs::path& destination)
      : destination_(destination), temporary_(destination.string() + ".tmp-" + std::to_string(::getpid())) {
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (descriptor_ < 0) {
      throw InputError(destination_.string() + ": cannot be created: " + std::strerror(errno) +
                       "; choose a folder that exists and can be written");
    }
  }
  ~UnfinishedFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!finished_) ::unlink(temporary_.c_str());
  }
  UnfinishedFile(const UnfinishedFile&) = delete;
  UnfinishedFile& operator=(const UnfinishedFile&) = delete;

  void write(const void* bytes, size_t count) {
    const char* next = static_cast<const char*>(bytes);
    while (count > 0) {
      const ssize_t written = ::write(descriptor_, next, count);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail("cannot be written");
      next += written;
      count -= static_cast<size_t>(written);
    }
  }

  void finish() {
    if (::fsync(descriptor_) != 0) fail("cannot be written");
    const int closed = ::close(descriptor_);
    descriptor_ = -1;
    if (closed != 0) fail("cannot be written");
    if (::rename(temporary_.c_str(), destination_.c_str()) != 0)
      fail("cannot be renamed from " + temporary_.string());
    finished_ = true;
    // Without syncing the folder, a power cut could undo the rename.
    const fs::path folder = destination_.has_parent_path() ? destination_.parent_path() : fs::path(".");
    const int folder_descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder_descriptor >= 0) {
      ::fsync(folder_descriptor);
      ::close(folder_descriptor);
    }
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw std::system_error(errno, std::generic_category(), destination_.string() + ": " + what);
  }

  fs::path destination_;
  fs::path temporary_;
  int descriptor_ = -1;
  bool finished_ = false;
};

std::string header_text(const NamedTensors& ordered, const std::map<std::string, std::string>& metadata,
                        const std::string& where) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const auto& [name, tensor] : ordered) {
    const uint64_t end = offset + static_cast<uint64_t>(tensor.numel()) * tensor.element_size();
    header[name] = {{"dtype", dtype_name(tensor.scalar_type())},
                    {"shape", tensor.sizes().vec()},
                    {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    throw InputError(where + ": tensor names and metadata must be UTF-8");
  }
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > safetensors_header_limit) throw InputError(where + ": the header would exceed 100 MB");
  return text;
}

}  // namespace

void write_safetensors(const fs::path& file, const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata) {
  const std::string where = file.string();
  NamedTensors ordered = tensors;
  for (const auto& [name, tensor] : ordered) {
    if (name == "__metadata__") throw InputError(where + ": a tensor cannot be named __metadata__");
    if (!tensor.defined()) throw InputError(where + ": tensor '" + name + "' is undefined");
    if (dtype_name(tensor.scalar_type()) == nullptr) {
      throw InputError(where + ": tensor '" + name + "' has dtype " + c10::toString(tensor.scalar_type()) +
                       ", which this format cannot hold");
    }
  }
  std::sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
    const auto a_size = a.second.element_size(), b_size = b.second.element_size();
    return a_size != b_size ? a_size > b_size : a.first < b.first;
  });
  std::vector<std::string> names;
  for (const auto& [name, tensor] : ordered) names.push_back(name);
  std::sort(names.begin(), names.end());
  if (const auto duplicate = std::adjacent_find(names.begin(), names.end()); duplicate != names.end()) {
    throw InputError(where + ": tensor '" + *duplicate + "' is given twice");
  }

  const std::string header = header_text(ordered, metadata, where);
  UnfinishedFile out(file);
  char length[8];
  for (int i = 0; i < 8; ++i) length[i] = static_cast<char>(header.size() >> (8 * i));
  out.write(length, sizeof length);
  out.write(header.data(), header.size());
  for (const auto& [name, tensor] : ordered) {
    const at::Tensor contiguous = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous();
    out.write(contiguous.const_data_ptr(),
              static_cast<size_t>(contiguous.numel()) * contiguous.element_size());
  }
  out.finish();
}

}  // namespace clover::data
