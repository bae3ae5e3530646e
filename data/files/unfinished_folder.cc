#include "data/files/unfinished_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "data/files/error.h"

namespace clover::data {
namespace {

namespace fs = std::filesystem;

/// The temporary name beside `destination`, ".store.new.4711" for "store".  `purpose` is "new" or "old".  The
/// number is the process id, which shows whether the process that made the folder still runs.
fs::path temporary_path(const fs::path& destination, const std::string& purpose) {
  return destination.parent_path() /
         ("." + destination.filename().string() + "." + purpose + "." + std::to_string(::getpid()));
}

/// Makes renames within the folder durable.
void sync_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

/// Exchanges two names in one step; false where the file system cannot.
bool exchange_names(const fs::path& a, const fs::path& b) {
  return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
}

bool is_mount_point(const fs::path& folder) {
  struct stat status {
  }, parent_status{};
  return ::stat(folder.c_str(), &status) == 0 && ::stat(folder.parent_path().c_str(), &parent_status) == 0 &&
         status.st_dev != parent_status.st_dev;
}

/// Whether `name` was made by `temporary_path` in a process that has ended or had the id of this process.
bool is_leftover(const std::string& name, const fs::path& destination, const std::string& purpose) {
  const std::string prefix = "." + destination.filename().string() + "." + purpose + ".";
  const std::string process_id = name.rfind(prefix, 0) == 0 ? name.substr(prefix.size()) : "";
  const bool is_number =
      !process_id.empty() && process_id.size() < 10 &&
      std::all_of(process_id.begin(), process_id.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!is_number) return false;
  const pid_t process = static_cast<pid_t>(std::atol(process_id.c_str()));
  return process == ::getpid() || (::kill(process, 0) != 0 && errno == ESRCH);
}

std::vector<fs::path> leftover_folders(const fs::path& destination, const std::string& purpose) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(destination.parent_path(), error)) {
    if (is_leftover(entry.path().filename().string(), destination, purpose)) found.push_back(entry.path());
  }
  return found;
}

}  // namespace

fs::path resolved_folder_name(const fs::path& folder) {
  if (folder.empty()) throw InputError("Expected the name of a folder, found an empty text.");
  fs::path name = fs::absolute(folder);
  while (name.has_relative_path() && (name.filename().empty() || name.filename() == ".")) {
    name = name.parent_path();
  }
  std::error_code error;
  return fs::is_symlink(name, error) ? fs::weakly_canonical(name) : name;
}

fs::path resolved_new_folder_name(const fs::path& folder) {
  const fs::path name = resolved_folder_name(folder);
  if (fs::exists(name)) throw InputError(name.string() + " already exists: give another --output.");
  return name;
}

void replace_folder(const fs::path& new_folder, const fs::path& destination) {
  sync_folder(new_folder);
  if (!fs::exists(destination)) {
    fs::rename(new_folder, destination);
    sync_folder(destination.parent_path());
    return;
  }
  fs::path old = new_folder;  // after an exchange of names, the old folder has the name of the new one
  if (!exchange_names(new_folder, destination)) {
    old = temporary_path(destination, "old");
    fs::remove_all(old);
    fs::rename(destination, old);
    fs::rename(new_folder, destination);
  }
  sync_folder(destination.parent_path());
  fs::remove_all(old);
}

UnfinishedFolder::UnfinishedFolder(const fs::path& destination)
    : destination_(resolved_folder_name(destination)), temporary_(temporary_path(destination_, "new")) {
  if (is_mount_point(destination_)) {
    throw InputError(destination_.string() +
                     " is where another file system begins, so it cannot be replaced as a whole: give a "
                     "folder inside it.");
  }
  std::error_code error;
  fs::create_directories(destination_.parent_path(), error);
  if (!error) fs::remove_all(temporary_, error);
  if (!error) fs::create_directory(temporary_, error);
  if (error) {
    throw InputError(destination_.string() + " cannot be written: " + error.message() +
                     "; choose a folder whose parent can be written.");
  }
}

UnfinishedFolder::~UnfinishedFolder() {
  if (finished_) return;
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
}

void UnfinishedFolder::finish() {
  replace_folder(temporary_, destination_);
  finished_ = true;
}

void remove_unfinished(const fs::path& destination) {
  const fs::path name = resolved_folder_name(destination);
  for (const fs::path& old : leftover_folders(name, "old")) {
    if (!fs::exists(name)) fs::rename(old, name);
    fs::remove_all(old);
  }
  for (const fs::path& new_folder : leftover_folders(name, "new")) fs::remove_all(new_folder);
}

}  // namespace clover::data
