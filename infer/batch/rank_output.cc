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

// Small enough that ranks finish at about the same time, large enough that claims take no time.  The same for
// any number of ranks, so that another number can continue the job.
int64_t lines_of_a_chunk(int64_t input_lines) {
  return std::clamp<int64_t>(input_lines / 1024, 1, 256);
}

fs::path folder_of(const fs::path& output) {
  return output.string() + ".ranks";
}

fs::path shard_file(const fs::path& output, int64_t rank) {
  return folder_of(output) / ("rank-" + std::to_string(rank) + ".jsonl");
}

bool starts_with(const fs::path& file, const char* prefix) {
  return file.filename().string().rfind(prefix, 0) == 0;
}

/// A file descriptor; closing it releases its lock.
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

/// Whether `file` is still the file that was opened.
bool is_same_file(const Descriptor& descriptor, const fs::path& file) {
  struct stat opened, found;
  return ::fstat(descriptor.number(), &opened) == 0 && ::stat(file.c_str(), &found) == 0 &&
         opened.st_ino == found.st_ino && opened.st_dev == found.st_dev;
}

/// Locks the folder of shards, creating it if needed; ranks start and finish one at a time.  The last rank to
/// finish removes the folder and the lock file, so after waiting for it a new folder is created.
Descriptor lock_folder(const fs::path& output) {
  const fs::path file = folder_of(output) / "lock";
  for (;;) {
    if (::mkdir(folder_of(output).c_str(), 0777) != 0 && errno != EEXIST) cannot_write(folder_of(output));
    Descriptor lock(file, O_RDWR | O_CREAT);
    if (lock.number() < 0 && errno == ENOENT) continue;  // another rank has just removed the folder
    if (lock.number() < 0) cannot_write(file);
    while (::flock(lock.number(), LOCK_EX) != 0)
      if (errno != EINTR) cannot_write(file);
    if (is_same_file(lock, file)) return lock;
  }
}

/// Whether no process holds the lock of a shard, because the one that wrote it no longer runs.
bool is_abandoned(const fs::path& shard) {
  const Descriptor descriptor(shard, O_RDWR);
  return descriptor.number() >= 0 && ::flock(descriptor.number(), LOCK_EX | LOCK_NB) == 0;
}

struct Shards {
  std::vector<fs::path> abandoned;  // sorted
  bool others_run = false;          // some are being written by other ranks
};

/// Lists the shards of `output`.  InputError when one belongs to another job than `run`.
Shards find_shards(const fs::path& output, const json& run) {
  Shards shards;
  for (const auto& entry : fs::directory_iterator(folder_of(output))) {
    const fs::path& file = entry.path();
    if (!starts_with(file, "rank-") || file.extension() != ".jsonl") continue;
    if (fs::exists(run_file_of(file))) check_same_job(file, run);
    if (is_abandoned(file))
      shards.abandoned.push_back(file);
    else
      shards.others_run = true;
  }
  std::sort(shards.abandoned.begin(), shards.abandoned.end());
  return shards;
}

/// Adds the records of the shards that `whole` does not have, then removes the shards.  If it is killed
/// before that, the next process repeats it.
void merge(const std::vector<fs::path>& shards, BatchOutput& whole) {
  for (const fs::path& shard : shards) {
    LineReader reader(shard, BatchOutput::record_limit);
    for (std::string text; reader.next(text);) {
      if (!reader.ended()) break;  // cut off by a kill
      const json record = parse_record(text, shard.string() + ", line " + std::to_string(reader.number()));
      const int64_t line = line_of_record(record);
      if (line > 0 && !whole.done(line)) whole.write_text(line, text, is_error_record(record));
    }
  }
  whole.sync();
  for (const fs::path& shard : shards) {
    fs::remove(shard);  // before its settings, because a shard without settings could not be merged
    fs::remove(run_file_of(shard));
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

/// Removes the folder of shards, the lock file last: a rank that starts meanwhile waits for the lock, finds
/// that the file is gone and creates a new folder.
void remove_folder(const fs::path& output) {
  remove_claims(output);
  remove_files(folder_of(output), "rank-");
  fs::remove(folder_of(output) / "lock");
  ::rmdir(folder_of(output)
              .c_str());  // fails when a new rank has started, or when the user keeps other files there
}

RankOutput::MergeResult merge_all(const fs::path& output, const json& run,
                                  const std::vector<fs::path>& shards) {
  BatchOutput whole(output, run, false);
  merge(shards, whole);
  return {true, whole.done_count(), whole.failed_count()};
}

}  // namespace

RankOutput::RankOutput(fs::path output, Rank rank, json run, bool retry_errors)
    : output_(std::move(output)),
      run_(std::move(run)),
      chunk_lines_(lines_of_a_chunk(run_["input"]["lines"].get<int64_t>())) {
  const bool existed = fs::is_directory(folder_of(output_));
  const Descriptor lock = lock_folder(output_);
  try {
    const Shards shards = find_shards(output_, run_);
    if (!shards.abandoned.empty()) merge_all(output_, run_, shards.abandoned);
    const BatchOutput whole(output_, run_, retry_errors && !shards.others_run);
    done_ = whole.done_lines();
    if (!shards.others_run) remove_claims(output_);
  } catch (...) {
    if (!existed) remove_folder(output_);
    throw;
  }
  shard_ = std::make_unique<BatchOutput>(shard_file(output_, rank.number), run_, false);
}

bool RankOutput::claim(int64_t line) {
  if (done_.count(line) || shard_->done(line)) return false;
  const int64_t chunk = (line - 1) / chunk_lines_;
  if (mine_.count(chunk)) return true;
  if (others_.count(chunk)) return false;
  const fs::path file = folder_of(output_) / ("chunk-" + std::to_string(chunk));
  const Descriptor claimed(file, O_WRONLY | O_CREAT | O_EXCL);
  if (claimed.number() < 0 && errno != EEXIST) cannot_write(file);
  (claimed.number() < 0 ? others_ : mine_).insert(chunk);
  return claimed.number() >= 0;
}

RankOutput::MergeResult RankOutput::finish() {
  const Descriptor lock = lock_folder(output_);
  shard_.reset();
  const Shards shards = find_shards(output_, run_);
  if (shards.others_run) return {};
  const MergeResult result = merge_all(output_, run_, shards.abandoned);
  remove_folder(output_);
  return result;
}

void RankOutput::merge_abandoned_shards(const fs::path& output, const json& run) {
  if (!fs::is_directory(folder_of(output))) return;
  const Descriptor lock = lock_folder(output);
  const Shards shards = find_shards(output, run);
  if (shards.others_run) {
    throw data::InputError(folder_of(output).string() +
                           ": ranks of this job are still at work; wait for them, or choose another output");
  }
  merge_all(output, run, shards.abandoned);
  remove_folder(output);
}

}  // namespace clover::infer
