#include "data/files/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "data/files/error.h"

namespace clover::data {
namespace {

constexpr int max_json_depth = 64;
constexpr const char* temporary_ending = ".tmp";
constexpr size_t max_json_bytes = size_t{128} << 20;  // parsed JSON takes many times its size

class FileDescriptor {
 public:
  FileDescriptor(const std::filesystem::path& file, int flags)
      : fd_(::open(file.c_str(), flags | O_CLOEXEC, 0666)) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }
  bool close() { return ::close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

// Writes the bytes and syncs them to disk; on an error it removes the file and throws.
void write_new_file(const std::filesystem::path& file, std::string_view bytes) {
  FileDescriptor out(file, O_WRONLY | O_CREAT | O_EXCL);
  if (out.get() < 0) {
    throw InputError(file.string() + ": expected to be able to create this file, found " +
                     std::strerror(errno) + "; choose a folder that exists and can be written");
  }
  if (!write_all(out.get(), bytes) || ::fsync(out.get()) != 0 || !out.close()) {
    const std::string reason = std::strerror(errno);
    ::unlink(file.c_str());
    throw std::runtime_error(file.string() + ": writing " + std::to_string(bytes.size()) +
                             " bytes failed: " + reason);
  }
}

/// A new hidden file name in the folder of `file`: ".<name>.<process id>.<counter>.tmp".
std::filesystem::path temporary_beside(const std::filesystem::path& file) {
  static std::atomic<uint64_t> counter{0};
  std::string name = ".";
  name += file.filename().string() + "." + std::to_string(::getpid()) + "." +
          std::to_string(counter.fetch_add(1));
  std::filesystem::path temporary = file.parent_path() / (name + temporary_ending);
  ::unlink(temporary.c_str());  // a killed process that had our process id may have left one
  return temporary;
}

// Checks nesting and duplicate keys during parsing, so that parsing of a hostile file stops at once.
class StrictnessCheck {
 public:
  explicit StrictnessCheck(const std::string& where) : where_(where) {}

  bool operator()(int /*depth*/, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    using Event = nlohmann::json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      if (++depth_ > max_json_depth) {
        throw InputError(where_ + ": expected JSON nested at most " + std::to_string(max_json_depth) +
                         " levels deep, found deeper nesting");
      }
      if (event == Event::object_start) keys_.emplace_back();
    } else if (event == Event::object_end || event == Event::array_end) {
      --depth_;
      if (event == Event::object_end) keys_.pop_back();
    } else if (event == Event::key) {
      const std::string& key = parsed.get_ref<const std::string&>();
      if (!keys_.back().insert(key).second) {
        throw InputError(where_ + ": expected every key of a JSON object once, found \"" + key + "\" twice");
      }
    }
    return true;
  }

 private:
  const std::string& where_;
  int depth_ = 0;
  std::vector<std::unordered_set<std::string>> keys_;  // for each open object the keys that it has so far
};

// nlohmann's message without its "[json.exception...]" tag, line and column; parse_json states the byte.
std::string parser_detail(const std::string& message) {
  const size_t colon = message.find(": "), tag = message.find("] ");
  if (colon != std::string::npos) return message.substr(colon + 2);
  return tag == std::string::npos ? message : message.substr(tag + 2);
}

}  // namespace

std::string read_file(const std::filesystem::path& file, size_t limit) {
  // Pipes from a shell, <(...) or /dev/stdin, are read.  A named pipe in a folder is refused: its writer may
  // never come.
  const std::string name = file.string();
  const bool is_shell_pipe =
      name == "/dev/stdin" || name.starts_with("/dev/fd/") || name.starts_with("/proc/self/fd/");
  FileDescriptor in(file, O_RDONLY | (is_shell_pipe ? 0 : O_NONBLOCK));
  if (in.get() < 0) {
    throw InputError(file.string() + ": expected a readable file, found " + std::strerror(errno));
  }
  struct stat status {};
  if (!is_shell_pipe && ::fstat(in.get(), &status) == 0 && !S_ISREG(status.st_mode) &&
      !S_ISDIR(status.st_mode)) {
    throw InputError(
        file.string() +
        ": expected a regular file, found a pipe, a socket or a device; put the file itself there");
  }
  std::string bytes;
  std::error_code ignored;
  const auto size_hint = std::filesystem::file_size(file, ignored);
  if (!ignored && size_hint <= limit) bytes.reserve(size_hint + 1);
  std::vector<char> chunk(size_t{1} << 18);
  for (;;) {
    const ssize_t count = ::read(in.get(), chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      throw InputError(file.string() + ": expected a readable file, found " + std::strerror(errno));
    if (count == 0) return bytes;
    if (bytes.size() + static_cast<size_t>(count) > limit) {
      throw InputError(file.string() + ": expected at most " + std::to_string(limit) +
                       " bytes, found a larger file");
    }
    bytes.append(chunk.data(), static_cast<size_t>(count));
  }
}

nlohmann::json parse_json(std::string_view text, const std::string& where) {
  // The parser takes a NUL byte for the end of its input and would ignore what follows.
  if (const size_t nul = text.find('\0'); nul != text.npos) {
    throw InputError(where + ": expected valid JSON, found a NUL byte at byte " + std::to_string(nul + 1) +
                     " of " + std::to_string(text.size()));
  }
  StrictnessCheck check(where);
  const nlohmann::json::parser_callback_t callback = std::ref(check);
  try {
    return nlohmann::json::parse(text.begin(), text.end(), callback);
  } catch (const nlohmann::json::parse_error& error) {
    throw InputError(where + ": expected valid JSON, found an error at byte " + std::to_string(error.byte) +
                     " of " + std::to_string(text.size()) + " (" + parser_detail(error.what()) + ")");
  } catch (const nlohmann::json::exception& error) {
    throw InputError(where + ": expected valid JSON, found " + parser_detail(error.what()));
  }
}

nlohmann::json read_json(const std::filesystem::path& file) {
  return parse_json(read_file(file, max_json_bytes), file.string());
}

bool same_file(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::error_code ignored;
  return std::filesystem::weakly_canonical(std::filesystem::absolute(a), ignored) ==
         std::filesystem::weakly_canonical(std::filesystem::absolute(b), ignored);
}

std::filesystem::path resolve_links(const std::filesystem::path& file) {
  constexpr int max_links = 40;  // the limit of Linux; longer chains are loops
  std::error_code error;
  std::filesystem::path resolved = file;
  for (int links = 0; std::filesystem::is_symlink(resolved, error); ++links) {
    if (links == max_links) return file;
    resolved = resolved.parent_path() / std::filesystem::read_symlink(resolved, error);
  }
  return resolved;
}

void copy_permissions(const std::filesystem::path& file, const std::filesystem::path& successor) {
  struct stat status {};
  if (::stat(file.c_str(), &status) == 0) ::chmod(successor.c_str(), status.st_mode & 07777);
}

void check_writable(const std::filesystem::path& link_or_file) {
  const std::filesystem::path file = resolve_links(link_or_file);
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) {
    throw InputError(file.string() + ": expected a file that can be replaced, found a folder");
  }
  if (std::filesystem::exists(file, ignored) && !std::filesystem::is_regular_file(file, ignored)) {
    throw InputError(link_or_file.string() +
                     ": expected a file that can be replaced, found a device or a pipe");
  }
  const std::filesystem::path folder = std::filesystem::absolute(file).parent_path();
  if (!std::filesystem::is_directory(folder, ignored) || ::access(folder.c_str(), W_OK) != 0) {
    throw InputError(
        file.string() +
        ": expected a file in a folder that exists and can be written; make the folder or choose "
        "another file");
  }
  const std::filesystem::path temporary = temporary_beside(file);  // only a trial write detects a full disk
  write_new_file(temporary, "");
  ::unlink(temporary.c_str());
}

void remove_temporary_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(".") && name.ends_with(temporary_ending)) found.push_back(entry.path());
  }
  for (const std::filesystem::path& file : found) std::filesystem::remove(file);
}

void write_file_atomically(const std::filesystem::path& link_or_file, std::string_view bytes) {
  const std::filesystem::path file = resolve_links(link_or_file);
  const std::filesystem::path temporary = temporary_beside(file);
  write_new_file(temporary, bytes);
  copy_permissions(file, temporary);
  if (::rename(temporary.c_str(), file.c_str()) != 0) {
    const std::string reason = std::strerror(errno);
    ::unlink(temporary.c_str());
    throw InputError(file.string() + ": expected a file that can be replaced, found " + reason);
  }
  // Without syncing the folder, a power cut could undo the rename.
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  FileDescriptor directory(folder, O_RDONLY | O_DIRECTORY);
  if (directory.get() >= 0) ::fsync(directory.get());
}

}  // namespace clover::data
