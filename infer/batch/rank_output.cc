#include "infer/batch/rank_output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "data/files/error.h"
#include "data/files/files.h"
#include "infer/requests/line_reader.h"

namespace clover::infer {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Small enough that ranks end together, large enough that claims cost nothing; the same for any number of
// ranks.
int64_t chunk_lines(int64_t input_lines) {
  return std::clamp<int64_t>(input_lines / 1024, 1, 256);
}

fs::path folder_of(const fs::path& output) {
  return output.string() + ".ranks";
}

fs::path part_of(const fs::path& output, int64_t rank) {
  return folder_of(output) / ("rank-" + std::to_string(rank) + ".jsonl");
}

bool starts_with(const fs::path& file, const char* prefix) {
  return file.filename().string().rfind(prefix, 0) == 0;
}

class Descriptor {
 public:
  Descriptor(const fs::path& file, int flags) : number_(::open(file.c_str(), flags | O_CLOEXEC, 0666)) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

[[noreturn]] void cannot_write(const fs::path& file) {
  throw data::InputError(file.string() + ": expected a file that can be written, found " +
                         std::strerror(errno));
}

bool still_there(const Descriptor& descriptor, const fs::path& file) {
  struct stat mine, there;
  return ::fstat(descriptor.number(), &mine) == 0 && ::stat(file.c_str(), &there) == 0 &&
         mine.st_ino == there.st_ino && mine.st_dev == there.st_dev;
}

/// Waits until no other rank begins or ends.  The last to end removes the folder, lock included: whoever
/// waited for that one makes a new folder.
Descriptor lock_folder(const fs::path& output) {
  const fs::path file = folder_of(output) / "lock";
  for (;;) {
    if (::mkdir(folder_of(output).c_str(), 0777) != 0 && errno != EEXIST) cannot_write(folder_of(output));
    Descriptor lock(file, O_RDWR | O_CREAT);
    if (lock.number() < 0 && errno == ENOENT) continue;  // removed in this moment
    if (lock.number() < 0) cannot_write(file);
    while (::flock(lock.number(), LOCK_EX) != 0)
      if (errno != EINTR) cannot_write(file);
    if (still_there(lock, file)) return lock;
  }
}

/// Whose process is gone: nobody holds its lock.
bool abandoned(const fs::path& part) {
  const Descriptor descriptor(part, O_RDWR);
  return descriptor.number() >= 0 && ::flock(descriptor.number(), LOCK_EX | LOCK_NB) == 0;
}

struct Parts {
  std::vector<fs::path> abandoned;
  bool others = false;  // some are being written
};

/// InputError when a part belongs to another job than `run`.
Parts find_parts(const fs::path& output, const json& run) {
  Parts parts;
  for (const auto& entry : fs::directory_iterator(folder_of(output))) {
    const fs::path& file = entry.path();
    if (!starts_with(file, "rank-") || file.extension() != ".jsonl") continue;
    if (fs::exists(run_file_of(file))) check_same_job(file, run);
    if (abandoned(file))
      parts.abandoned.push_back(file);
    else
      parts.others = true;
  }
  std::sort(parts.abandoned.begin(), parts.abandoned.end());
  return parts;
}

/// Adds the records of `parts` that `whole` lacks, then removes them.  Killed in between, it is done again.
void join(const std::vector<fs::path>& parts, BatchOutput& whole) {
  for (const fs::path& part : parts) {
    LineReader reader(part, BatchOutput::record_limit);
    for (std::string text; reader.next(text);) {
      if (!reader.ended()) break;  // torn by a kill
      const json record = parse_record(text, part.string() + ", line " + std::to_string(reader.number()));
      const int64_t line = line_of_record(record);
      if (line > 0 && !whole.done(line)) whole.write_text(line, text, is_error_record(record));
    }
  }
  whole.sync();
  for (const fs::path& part : parts) {
    fs::remove(part);  // first: one without its settings could not be joined any more
    fs::remove(run_file_of(part));
  }
}

void remove_files(const fs::path& folder, const char* prefix) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (starts_with(entry.path(), prefix)) files.push_back(entry.path());
  for (const fs::path& file : files) fs::remove(file);
}

void remove_claims(const fs::path& output) {
  remove_files(folder_of(output), "chunk-");
}

/// The lock last, so that whoever begins in this moment waits for it, finds it gone and makes a new folder.
void remove_folder(const fs::path& output) {
  remove_claims(output);
  remove_files(folder_of(output), "rank-");
  fs::remove(folder_of(output) / "lock");
  ::rmdir(folder_of(output).c_str());  // fails when somebody has begun anew, or keeps files of theirs there
}

RankOutput::Joined join_all(const fs::path& output, const json& run, const std::vector<fs::path>& parts) {
  BatchOutput whole(output, run, false);
  join(parts, whole);
  return {true, whole.done_lines(), whole.failed_lines()};
}

}  // namespace

RankOutput::RankOutput(fs::path output, Rank rank, json run, bool retry_errors)
    : output_(std::move(output)),
      run_(std::move(run)),
      chunk_(chunk_lines(run_["input"]["lines"].get<int64_t>())) {
  const bool begun = fs::is_directory(folder_of(output_));
  const Descriptor lock = lock_folder(output_);
  try {
    const Parts parts = find_parts(output_, run_);
    if (!parts.abandoned.empty()) join_all(output_, run_, parts.abandoned);
    const BatchOutput whole(output_, run_, retry_errors && !parts.others);
    done_ = whole.lines();
    if (!parts.others) remove_claims(output_);
  } catch (...) {
    if (!begun) remove_folder(output_);
    throw;
  }
  part_ = std::make_unique<BatchOutput>(part_of(output_, rank.number), run_, false);
}

bool RankOutput::claim(int64_t line) {
  if (done_.count(line) || part_->done(line)) return false;
  const int64_t chunk = (line - 1) / chunk_;
  if (mine_.count(chunk)) return true;
  if (others_.count(chunk)) return false;
  const fs::path file = folder_of(output_) / ("chunk-" + std::to_string(chunk));
  const Descriptor claimed(file, O_WRONLY | O_CREAT | O_EXCL);
  if (claimed.number() < 0 && errno != EEXIST) cannot_write(file);
  (claimed.number() < 0 ? others_ : mine_).insert(chunk);
  return claimed.number() >= 0;
}

RankOutput::Joined RankOutput::finish() {
  const Descriptor lock = lock_folder(output_);
  part_.reset();
  const Parts parts = find_parts(output_, run_);
  if (parts.others) return {};
  const Joined joined = join_all(output_, run_, parts.abandoned);
  remove_folder(output_);
  return joined;
}

void RankOutput::join_left_behind(const fs::path& output, const json& run) {
  if (!fs::is_directory(folder_of(output))) return;
  const Descriptor lock = lock_folder(output);
  const Parts parts = find_parts(output, run);
  if (parts.others) {
    throw data::InputError(folder_of(output).string() +
                           ": ranks of this job are still at work; wait for them, or choose another output");
  }
  join_all(output, run, parts.abandoned);
  remove_folder(output);
}

}  // namespace clover::infer
