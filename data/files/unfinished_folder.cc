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

/// The temporary name beside `place`: ".store.new.4711" for "store".  The number is the process id, by which
/// a dead process's folder is recognised.
fs::path beside(const fs::path& place, const std::string& what) {
  return place.parent_path() /
         ("." + place.filename().string() + "." + what + "." + std::to_string(::getpid()));
}

/// Makes renames within the folder durable.
void sync_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

bool exchange(const fs::path& one, const fs::path& other) {
  return ::renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE) == 0;
}

bool is_mount_point(const fs::path& folder) {
  struct stat own {
  }, above{};
  return ::stat(folder.c_str(), &own) == 0 && ::stat(folder.parent_path().c_str(), &above) == 0 &&
         own.st_dev != above.st_dev;
}

/// Whether `name` is ".<place>.<what>.<process id>" of a process that has ended, or that had this one's id.
bool is_left_over(const std::string& name, const fs::path& place, const std::string& what) {
  const std::string begin = "." + place.filename().string() + "." + what + ".";
  const std::string digits = name.rfind(begin, 0) == 0 ? name.substr(begin.size()) : "";
  const bool number = !digits.empty() && digits.size() < 10 &&
                      std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!number) return false;
  const pid_t process = static_cast<pid_t>(std::atol(digits.c_str()));
  return process == ::getpid() || (::kill(process, 0) != 0 && errno == ESRCH);
}

std::vector<fs::path> left_over(const fs::path& place, const std::string& what) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(place.parent_path(), error)) {
    if (is_left_over(entry.path().filename().string(), place, what)) found.push_back(entry.path());
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

void replace_folder(const fs::path& fresh, const fs::path& place) {
  sync_folder(fresh);
  if (!fs::exists(place)) {
    fs::rename(fresh, place);
    sync_folder(place.parent_path());
    return;
  }
  fs::path old = fresh;
  if (!exchange(fresh, place)) {
    old = beside(place, "old");
    fs::remove_all(old);
    fs::rename(place, old);
    fs::rename(fresh, place);
  }
  sync_folder(place.parent_path());
  fs::remove_all(old);
}

UnfinishedFolder::UnfinishedFolder(const fs::path& place)
    : place_(resolved_folder_name(place)), fresh_(beside(place_, "new")) {
  if (is_mount_point(place_)) {
    throw InputError(place_.string() +
                     " is where another file system begins, so it cannot be replaced as a whole: give a "
                     "folder inside it.");
  }
  std::error_code error;
  fs::create_directories(place_.parent_path(), error);
  if (!error) fs::remove_all(fresh_, error);
  if (!error) fs::create_directory(fresh_, error);
  if (error) {
    throw InputError(place_.string() + " cannot be written: " + error.message() +
                     "; choose a folder whose parent can be written.");
  }
}

UnfinishedFolder::~UnfinishedFolder() {
  if (finished_) return;
  std::error_code ignored;
  fs::remove_all(fresh_, ignored);
}

void UnfinishedFolder::finish() {
  replace_folder(fresh_, place_);
  finished_ = true;
}

void remove_unfinished(const fs::path& place) {
  const fs::path name = resolved_folder_name(place);
  for (const fs::path& old : left_over(name, "old")) {
    if (!fs::exists(name)) fs::rename(old, name);
    fs::remove_all(old);
  }
  for (const fs::path& fresh : left_over(name, "new")) fs::remove_all(fresh);
}

}  // namespace clover::data
