#include "infer/batch/batch_output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <unordered_map>

#include "data/files/error.h"
#include "data/files/files.h"
#include "data/files/hash.h"
#include "data/files/written_json.h"

namespace clover::infer {
namespace {

using nlohmann::json;

constexpr auto sync_interval = std::chrono::seconds(2);

void write_all(int descriptor, const std::string& bytes, const std::filesystem::path& file) {
  size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t count = ::write(descriptor, bytes.data() + written, bytes.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw std::runtime_error(file.string() + ": writing failed: " + std::strerror(errno));
    written += static_cast<size_t>(count);
  }
}

std::string dumped(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// Writes the kept lines beside the file and renames: whole or untouched, in bounded memory.
class Rewrite {
 public:
  explicit Rewrite(const std::filesystem::path& file) : file_(data::behind_links(file)), temporary_(file_) {
    temporary_ += ".rewrite";
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (descriptor_ < 0) {
      throw data::InputError(temporary_.string() + ": expected to be able to create this file, found " +
                             std::strerror(errno));
    }
    data::keep_permissions(file_, temporary_);
  }
  ~Rewrite() {
    if (descriptor_ < 0) return;
    ::close(descriptor_);
    ::unlink(temporary_.c_str());
  }
  void add(const std::string& line) {
    pending_ += line + "\n";
    if (pending_.size() > (size_t{1} << 20)) flush();
  }
  void commit() {
    flush();
    if (::fsync(descriptor_) != 0 || ::rename(temporary_.c_str(), file_.c_str()) != 0) {
      throw std::runtime_error(file_.string() + ": replacing it failed: " + std::strerror(errno));
    }
    ::close(std::exchange(descriptor_, -1));
  }

 private:
  void flush() {
    write_all(descriptor_, pending_, temporary_);
    pending_.clear();
  }
  std::filesystem::path file_, temporary_;
  std::string pending_;
  int descriptor_ = -1;
};

int open_and_lock(const std::filesystem::path& file) {
  const int descriptor = ::open(file.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor < 0) {
    throw data::InputError(file.string() + ": expected a file that can be written, found " +
                           std::strerror(errno) + "; choose a folder that exists and can be written");
  }
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    ::close(descriptor);
    throw data::InputError(file.string() +
                           ": another process is writing this file; wait for it, or choose "
                           "another output");
  }
  return descriptor;
}

// A kill may leave half a record, or the system a tail of zeros: everything behind the last line feed goes.
void cut_torn_tail(int descriptor, const std::filesystem::path& file) {
  off_t size = ::lseek(descriptor, 0, SEEK_END);
  const off_t before = size;
  std::vector<char> chunk(1 << 16);
  while (size > 0) {
    const off_t begin = std::max<off_t>(0, size - static_cast<off_t>(chunk.size()));
    const ssize_t got = ::pread(descriptor, chunk.data(), static_cast<size_t>(size - begin), begin);
    if (got != size - begin) throw std::runtime_error(file.string() + ": reading its end failed");
    const auto* feed = static_cast<const char*>(::memrchr(chunk.data(), '\n', static_cast<size_t>(got)));
    size = feed ? begin + (feed - chunk.data()) + 1 : begin;
    if (feed) break;
  }
  if (size != before && ::ftruncate(descriptor, size) != 0) {
    throw std::runtime_error(file.string() + ": cutting its torn last line failed: " + std::strerror(errno));
  }
}

std::string or_nothing(const json& value) {
  return value.is_null() ? "nothing" : dumped(value);
}

}  // namespace

std::filesystem::path run_file_of(const std::filesystem::path& output) {
  return output.string() + ".run.json";
}

int64_t line_of_record(const json& record) {
  if (!record.is_object()) return 0;
  const auto line = record.find("line");
  if (line != record.end() && line->is_number_integer()) return line->get<int64_t>();
  const std::string prefix = "batch_req_";
  const auto id = record.find("id");
  if (id == record.end() || !id->is_string() || !record.contains("custom_id")) return 0;
  const std::string& text = id->get_ref<const std::string&>();
  return text.compare(0, prefix.size(), prefix) == 0 ? std::atoll(text.c_str() + prefix.size()) : 0;
}

json parse_record(const std::string& text, const std::string& where) {
  return data::parse_json(data::WrittenJson(text).readable(), where);
}

bool is_error_record(const json& record) {
  const auto error = record.find("error");
  // A short form's own "error" field travels along; only records without an answer are errors.
  return error != record.end() && !error->is_null() && !record.contains("token_ids");
}

void check_same_job(const std::filesystem::path& file, const json& run) {
  const std::filesystem::path run_file = run_file_of(file);
  std::error_code ignored;
  if (!std::filesystem::exists(run_file, ignored)) {
    throw data::InputError(
        file.string() + ": this file exists, but " + run_file.string() +
        ", which a batch job writes beside it, does not; choose another output or remove it");
  }
  const json before = data::read_json(run_file);
  if (!before.is_object() || before.value("format_version", json()) != 1) {
    throw data::InputError(
        run_file.string() +
        ": expected the settings of a batch job with format_version 1, found something else");
  }
  const std::string advice =
      "; continue with the settings of " + run_file.string() + ", or choose another output";
  const json input_before = before.value("input", json::object());
  if (input_before.value("hash", json()) != run["input"]["hash"]) {
    throw data::InputError(file.string() + ": it was begun with another input (its bytes differ)" + advice);
  }
  const json settings_before = before.value("affects_output", json::object());
  for (const auto& [name, value] : run["affects_output"].items()) {
    const json had = settings_before.value(name, json());
    if (name == fingerprint_setting && had.is_null()) continue;
    if (had != value) {
      throw data::InputError(file.string() + ": it was begun with " + name + " " + or_nothing(had) +
                             ", not " + or_nothing(value) + advice);
    }
  }
  for (const auto& [name, value] : settings_before.items()) {
    // Jobs on the CPU used to say so.
    if (run["affects_output"].contains(name) || (name == "device" && value == "cpu")) continue;
    throw data::InputError(file.string() + ": it was begun with " + name + " " + or_nothing(value) +
                           ", not without" + advice);
  }
}

namespace {

std::string mark_of(const json& run) {
  const json input = run.value("input", json::object());
  return data::hex(data::fnv1a(dumped({run.value("affects_output", json()), input.value("hash", json())})));
}

}  // namespace

BatchOutput::BatchOutput(std::filesystem::path file, json run, bool retry_errors)
    : file_(std::move(file)), synced_(std::chrono::steady_clock::now()) {
  std::error_code ignored;
  if (std::filesystem::exists(file_, ignored) && !std::filesystem::is_regular_file(file_, ignored)) {
    throw data::InputError(file_.string() + ": expected a file to write answers to, found something else");
  }
  descriptor_.number = open_and_lock(file_);  // before looking: another job may be about to finish
  const bool has_answers = std::filesystem::file_size(file_) > 0;
  if (has_answers) check_same_job(file_, run);
  mark_ = mark_of(run);
  run["format_version"] = 1;
  data::write_file_atomically(run_file_of(file_),
                              run.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
  if (!has_answers) return;
  cut_torn_tail(descriptor_.number, file_);
  read_done(retry_errors, run["input"]["lines"].get<int64_t>());
}

BatchOutput::Descriptor::~Descriptor() {
  if (number < 0) return;
  ::fsync(number);
  ::close(number);
}

void BatchOutput::read_done(bool retry_errors, int64_t input_lines) {
  std::unordered_set<int64_t> errors;
  LineReader reader(file_, record_limit);
  for (std::string text; reader.next(text);) {
    const std::string where = file_.string() + ", line " + std::to_string(reader.number());
    const json record = parse_record(text, where);
    const int64_t line = line_of_record(record);
    if (line < 1 || line > input_lines || !done_.insert(line).second) {
      throw data::InputError(where +
                             ": expected the only answer to a line of the input, found something else; "
                             "repair the file or choose another output");
    }
    if (is_error_record(record)) errors.insert(line);
  }
  failed_ = static_cast<int64_t>(errors.size());
  if (!retry_errors || errors.empty()) return;
  for (const int64_t line : errors) done_.erase(line);
  failed_ = 0;
  keep_records(file_, done_);
  const int replaced = open_and_lock(file_);
  ::close(std::exchange(descriptor_.number, replaced));
}

void BatchOutput::write(int64_t line, const json& record) {
  write_text(line, dumped(record), is_error_record(record));
}

void BatchOutput::write_text(int64_t line, const std::string& record, bool failed) {
  write_all(descriptor_.number, record + "\n", file_);
  done_.insert(line);
  failed_ += failed;
  if (std::chrono::steady_clock::now() - synced_ > sync_interval) sync();
}

void BatchOutput::sync() {
  if (::fsync(descriptor_.number) != 0 && errno != EINVAL && errno != EROFS) {
    throw std::runtime_error(file_.string() + ": putting it on disk failed: " + std::strerror(errno));
  }
  synced_ = std::chrono::steady_clock::now();
}

namespace {

// Null when the line is no JSON.
json record_of_text(const std::string& text, const std::filesystem::path& file) {
  try {
    return parse_record(text, file.string());
  } catch (const data::InputError&) {
    return nullptr;
  }
}

/// Whether it is a record of `--stats`, not an answer, which has a line number, too.
bool is_statistics(const json& record) {
  return line_of_record(record) > 0 && record.contains("accepted_histogram") && !record.contains("text");
}

/// What an answer and its statistics have in common; of an OpenAI response, which names no tokens, their
/// number.
struct AnswerMark {
  bool openai = false;
  uint64_t hash = 0;
  static AnswerMark of_answer(const json& record) {
    const json::json_pointer usage("/response/body/usage");
    if (!record.contains("token_ids") && record.contains(usage))
      return {true, data::fnv1a(dumped(record[usage]))};
    return {false, data::fnv1a(dumped(record.value("token_ids", json())))};
  }
  bool fits(const json& statistics) const {
    return hash == data::fnv1a(dumped(statistics.value(openai ? "usage" : "token_ids", json())));
  }
};

/// What --stats records are held against.
class JobInProgress {
 public:
  /// `stats`: the file of theirs.
  JobInProgress(const std::filesystem::path& output, const std::filesystem::path& stats) {
    const std::filesystem::path run_file = run_file_of(output);
    std::error_code ignored;
    if (!std::filesystem::exists(output, ignored) || !std::filesystem::exists(run_file, ignored)) return;
    const json run = data::read_json(run_file);
    if (!run.is_object() || !run.value("settings", json()).is_object()) return;
    begun_ = true;
    mark_ = mark_of(run);
    const json named = run["settings"].value("stats", json());
    own_file_ = named.is_string() && named != "" && data::same_file(named.get<std::string>(), stats);
    LineReader reader(output, BatchOutput::record_limit);
    for (std::string text; reader.next(text);) {
      const json record = record_of_text(text, output);
      if (line_of_record(record) < 1) continue;
      if (is_error_record(record))
        failed_.insert(line_of_record(record));
      else
        answers_.emplace(line_of_record(record), AnswerMark::of_answer(record));
    }
  }

  /// Whether the record may be of this job.  `last`: a kill may have come before its answer was written.
  bool owns(const json& record, bool last) const {
    if (!begun_) return false;
    const json mark = record.value("job", json());
    const auto answer = answers_.find(line_of_record(record));
    if (answer != answers_.end() && !answer->second.fits(record)) return false;
    if (!mark.is_null()) return mark == mark_;
    // Records that this program wrote before it marked them.
    return answer != answers_.end() || (last && own_file_ && !failed_.contains(line_of_record(record)));
  }

 private:
  bool begun_ = false, own_file_ = false;
  std::string mark_;
  std::unordered_map<int64_t, AnswerMark> answers_;
  std::unordered_set<int64_t> failed_;
};

}  // namespace

void check_stats_file(const std::filesystem::path& file, const std::filesystem::path& output) {
  std::error_code ignored;
  if (file.empty()) return;
  if (!std::filesystem::exists(file, ignored)) return data::check_can_write(file);
  const std::string advice = "; choose another file or remove it";
  if (!std::filesystem::is_regular_file(file, ignored))
    throw data::InputError("--stats " + file.string() + ": expected a regular file" + advice);
  const JobInProgress job(output, file);
  LineReader reader(file, BatchOutput::record_limit);
  std::string text;
  for (bool more = reader.next(text); more && reader.ended();) {  // the last may be torn by a kill
    const int64_t number = reader.number();
    const json record = record_of_text(text, file);
    more = reader.next(text);
    const bool last = !more || !reader.ended(), statistics = is_statistics(record);
    if (!statistics || !job.owns(record, last)) {
      throw data::InputError("--stats " + file.string() + ", line " + std::to_string(number) +
                             ": expected records of the job that is continued, found " +
                             (statistics ? "those of another job" : "something else") + advice);
    }
  }
}

void keep_records(const std::filesystem::path& file, const std::unordered_set<int64_t>& keep_line) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return;
  LineReader reader(file, BatchOutput::record_limit);
  std::unordered_set<int64_t> kept;
  Rewrite rewrite(file);
  bool changed = false;
  for (std::string text; reader.next(text);) {
    const int64_t line = reader.ended() ? line_of_record(record_of_text(text, file)) : 0;
    if (keep_line.count(line) && kept.insert(line).second) {
      rewrite.add(text);
    } else {
      changed = true;
    }
  }
  if (changed) rewrite.commit();
}

}  // namespace clover::infer
