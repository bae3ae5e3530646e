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

// Input lines per chunk: few enough that all ranks finish at about the same time, enough that claiming takes
// no noticeable time.  It does not depend on the number of ranks, so that another number can continue the
// job.
int64_t chunk_size(int64_t input_lines) {
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

[[noreturn]] void throw_cannot_write(const fs::path& file) {
  throw data::InputError(file.string() + ": expected a file that can be written, found " +
                         std::strerror(errno));
}

/// Whether the path `file` still leads to the file that was opened.
bool is_same_file(const Descriptor& descriptor, const fs::path& file) {
  struct stat opened, found;
  return ::fstat(descriptor.number(), &opened) == 0 && ::stat(file.c_str(), &found) == 0 &&
         opened.st_ino == found.st_ino && opened.st_dev == found.st_dev;
}

/// Locks the folder of shards, so that ranks start and finish one at a time; creates the folder if needed.
/// The last rank to finish removes it with the lock file: a rank that waited for that lock creates a new
/// folder.
Descriptor lock_folder(const fs::path& output) {
  const fs::path file = folder_of(output) / "lock";
  for (;;) {
    if (::mkdir(folder_of(output).c_str(), 0777) != 0 && errno != EEXIST)
      throw_cannot_write(folder_of(output));
    Descriptor lock(file, O_RDWR | O_CREAT);
    if (lock.number() < 0 && errno == ENOENT) continue;  // another rank has just removed the folder
    if (lock.number() < 0) throw_cannot_write(file);
    while (::flock(lock.number(), LOCK_EX) != 0)
      if (errno != EINTR) throw_cannot_write(file);
    if (is_same_file(lock, file)) return lock;
  }
}

/// Whether the process that wrote a shard no longer runs: nobody holds the shard's lock.
bool is_abandoned(const fs::path& shard) {
  const Descriptor descriptor(shard, O_RDWR);
  return descriptor.number() >= 0 && ::flock(descriptor.number(), LOCK_EX | LOCK_NB) == 0;
}

struct Shards {
  std::vector<fs::path> abandoned;  // sorted
  bool others_running = false;      // other ranks are writing shards
};

/// Lists the shards of `output`.  InputError when one belongs to another job than `run_info`.
Shards find_shards(const fs::path& output, const json& run_info) {
  Shards shards;
  for (const auto& entry : fs::directory_iterator(folder_of(output))) {
    const fs::path& file = entry.path();
    if (!starts_with(file, "rank-") || file.extension() != ".jsonl") continue;
    if (fs::exists(run_file_of(file))) check_same_job(file, run_info);
    if (is_abandoned(file))
      shards.abandoned.push_back(file);
    else
      shards.others_running = true;
  }
  std::sort(shards.abandoned.begin(), shards.abandoned.end());
  return shards;
}

/// Copies records of the shards to `merged` unless it has them, adds up what answering took in all of them,
/// then removes the shards.  If the process is killed before it removes them, the next one repeats the merge;
/// only what answering took is then counted twice.
void merge(const std::vector<fs::path>& shards, BatchOutput& merged) {
  AnsweringCost cost;
  for (const fs::path& shard : shards) {
    LineReader reader(shard, BatchOutput::max_record_bytes);
    for (std::string text; reader.next(text);) {
      if (!reader.has_line_feed()) break;  // cut off by a kill
      const json record = parse_record(text, shard.string() + ", line " + std::to_string(reader.number()));
      const int64_t line = line_of_record(record);
      if (line > 0 && !merged.done(line)) merged.write_text(line, text, is_error_record(record));
    }
  }
  for (const fs::path& shard : shards) {
    if (!fs::exists(run_file_of(shard))) continue;
    cost = cost + recorded_cost(data::read_json(run_file_of(shard))).value_or(AnsweringCost{});
  }
  merged.set_cost(cost);
  merged.sync();
  for (const fs::path& shard : shards) {
    fs::remove(shard);  // before its run file, because a shard without one could not be merged
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

/// Removes the folder of shards, the lock file last.  A rank that starts meanwhile waits for the lock, then
/// finds the file gone and creates a new folder.
void remove_folder(const fs::path& output) {
  remove_claims(output);
  remove_files(folder_of(output), "rank-");
  fs::remove(folder_of(output) / "lock");
  ::rmdir(folder_of(output)
              .c_str());  // fails when a new rank has started, or when the user keeps other files there
}

RankOutput::MergeResult merge_all(const fs::path& output, const json& run_info,
                                  const std::vector<fs::path>& shards) {
  BatchOutput merged(output, run_info, false);
  merge(shards, merged);
  return {true, merged.done_count(), merged.failed_count()};
}

}  // namespace

RankOutput::RankOutput(fs::path output, Rank rank, json run_info, bool retry_errors)
    : output_(std::move(output)),
      run_info_(std::move(run_info)),
      chunk_lines_(chunk_size(run_info_["input"]["lines"].get<int64_t>())) {
  const bool folder_existed = fs::is_directory(folder_of(output_));
  const Descriptor lock = lock_folder(output_);
  try {
    const Shards shards = find_shards(output_, run_info_);
    if (!shards.abandoned.empty()) merge_all(output_, run_info_, shards.abandoned);
    const BatchOutput merged(output_, run_info_, retry_errors && !shards.others_running);
    done_ = merged.done_lines();
    if (!shards.others_running) remove_claims(output_);
  } catch (...) {
    if (!folder_existed) remove_folder(output_);
    throw;
  }
  shard_ = std::make_unique<BatchOutput>(shard_file(output_, rank.number), run_info_, false);
}

bool RankOutput::claim(int64_t line) {
  if (done_.count(line) || shard_->done(line)) return false;
  const int64_t chunk = (line - 1) / chunk_lines_;
  if (own_chunks_.count(chunk)) return true;
  if (other_chunks_.count(chunk)) return false;
  const fs::path file = folder_of(output_) / ("chunk-" + std::to_string(chunk));
  const Descriptor claim_file(file, O_WRONLY | O_CREAT | O_EXCL);
  if (claim_file.number() < 0 && errno != EEXIST) throw_cannot_write(file);
  (claim_file.number() < 0 ? other_chunks_ : own_chunks_).insert(chunk);
  return claim_file.number() >= 0;
}

RankOutput::MergeResult RankOutput::finish() {
  const Descriptor lock = lock_folder(output_);
  shard_.reset();
  const Shards shards = find_shards(output_, run_info_);
  if (shards.others_running) return {};
  const MergeResult result = merge_all(output_, run_info_, shards.abandoned);
  remove_folder(output_);
  return result;
}

void RankOutput::merge_abandoned_shards(const fs::path& output, const json& run_info) {
  if (!fs::is_directory(folder_of(output))) return;
  const Descriptor lock = lock_folder(output);
  const Shards shards = find_shards(output, run_info);
  if (shards.others_running) {
    throw data::InputError(folder_of(output).string() +
                           ": ranks of this job are still at work; wait for them, or choose another output");
  }
  merge_all(output, run_info, shards.abandoned);
  remove_folder(output);
}

}  // namespace clover::infer
