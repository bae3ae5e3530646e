#include "infer/batch/batch_output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "data/files/error.h"
#include "data/files/files.h"
#include "data/files/hash.h"
#include "data/files/json_fields.h"
#include "data/files/lossless_json.h"
#include "infer/program/rank.h"

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

/// Rewrites a file: lines go to a temporary file beside it, which commit() renames.  So the file is replaced
/// as a whole or not at all, and need not fit into memory.
class Rewrite {
 public:
  explicit Rewrite(const std::filesystem::path& file) : file_(data::resolve_links(file)), temporary_(file_) {
    temporary_ += ".rewrite";
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (descriptor_ < 0) {
      throw data::InputError(temporary_.string() + ": expected to be able to create this file, found " +
                             std::strerror(errno));
    }
    data::copy_permissions(file_, temporary_);
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

/// Removes everything after the last line feed: a kill may leave half a record there, a system crash zeros.
void remove_partial_line(int descriptor, const std::filesystem::path& file) {
  off_t size = ::lseek(descriptor, 0, SEEK_END);
  const off_t size_before = size;
  std::vector<char> chunk(1 << 16);
  while (size > 0) {
    const off_t begin = std::max<off_t>(0, size - static_cast<off_t>(chunk.size()));
    const ssize_t got = ::pread(descriptor, chunk.data(), static_cast<size_t>(size - begin), begin);
    if (got != size - begin) throw std::runtime_error(file.string() + ": reading its end failed");
    const auto* line_feed = static_cast<const char*>(::memrchr(chunk.data(), '\n', static_cast<size_t>(got)));
    size = line_feed ? begin + (line_feed - chunk.data()) + 1 : begin;
    if (line_feed) break;
  }
  if (size != size_before && ::ftruncate(descriptor, size) != 0) {
    throw std::runtime_error(file.string() + ": cutting its torn last line failed: " + std::strerror(errno));
  }
}

/// A setting's value as an error message shows it.
std::string value_text(const json& value) {
  return value.is_null() ? "nothing" : data::to_json_line(value);
}

/// What a job took that was stopped before its first answer.
AnsweringCost cost_before_answers(const std::filesystem::path& file, const std::string& job_hash) {
  std::error_code ignored;
  if (!std::filesystem::exists(run_file_of(file), ignored)) return {};
  try {
    const json run_info = data::read_json(run_file_of(file));
    if (!run_info.is_object() || job_hash_of(run_info) != job_hash) return {};
    return recorded_cost(run_info).value_or(AnsweringCost{});
  } catch (const std::exception&) {
    return {};  // the file is written anew
  }
}

}  // namespace

std::filesystem::path run_file_of(const std::filesystem::path& output) {
  return output.string() + ".run.json";
}

AnsweringCost AnsweringCost::operator+(const AnsweringCost& other) const {
  const auto is_known = [](const AnsweringCost& cost) { return cost.seconds == 0 || cost.joules > 0; };
  return {seconds + other.seconds, tokens + other.tokens,
          is_known(*this) && is_known(other) ? joules + other.joules : 0};
}

json to_json(const AnsweringCost& cost) {
  json object = {{"seconds", cost.seconds}, {"tokens", cost.tokens}};
  if (cost.joules > 0) object["joules"] = cost.joules;
  return object;
}

std::optional<AnsweringCost> recorded_cost(const json& run_info) {
  const auto cost = run_info.find("took");
  if (cost == run_info.end() || !cost->is_object()) return std::nullopt;
  const json seconds = cost->value("seconds", json()), tokens = cost->value("tokens", json());
  constexpr double most = 1e15;  // more is nonsense, and could not be added up
  if (!seconds.is_number() || !tokens.is_number_integer() || seconds < 0 || tokens < 0 || seconds > most ||
      tokens > most)
    return std::nullopt;
  const json joules = cost->value("joules", json());
  return AnsweringCost{seconds, tokens, joules.is_number() && joules > 0 ? joules.get<double>() : 0};
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
  return data::parse_json(data::LosslessJson(text).parseable(), where);
}

json parse_record_or_null(const std::string& text, const std::filesystem::path& file) {
  try {
    return parse_record(text, file.string());
  } catch (const data::InputError&) {
    return nullptr;
  }
}

bool is_error_record(const json& record) {
  const auto error = record.find("error");
  // A request's own "error" field is copied to its record, so only a record without an answer is an error.
  return error != record.end() && !error->is_null() && !record.contains("token_ids");
}

void check_same_job(const std::filesystem::path& file, const json& run_info) {
  const std::filesystem::path run_file = run_file_of(file);
  std::error_code ignored;
  if (!std::filesystem::exists(run_file, ignored)) {
    throw data::InputError(
        file.string() + ": this file exists, but " + run_file.string() +
        ", which a batch job writes beside it, does not; choose another output or remove it");
  }
  const json info_before = data::read_json(run_file);
  if (!info_before.is_object() || info_before.value("format_version", json()) != 1) {
    throw data::InputError(
        run_file.string() +
        ": expected the settings of a batch job with format_version 1, found something else");
  }
  const std::string advice =
      "; continue with the settings of " + run_file.string() + ", or choose another output";
  const json input_before = info_before.value("input", json::object());
  if (input_before.value("hash", json()) != run_info["input"]["hash"]) {
    throw data::InputError(file.string() + ": it was begun with another input (its bytes differ)" + advice);
  }
  const json settings_before = info_before.value("affects_output", json::object());
  for (const auto& [name, value] : run_info["affects_output"].items()) {
    const json value_before = settings_before.value(name, json());
    if (name == fingerprint_setting && value_before.is_null()) continue;
    if (value_before != value) {
      throw data::InputError(file.string() + ": it was begun with " + name + " " + value_text(value_before) +
                             ", not " + value_text(value) + advice);
    }
  }
  for (const auto& [name, value] : settings_before.items()) {
    // Jobs of early versions also recorded a CPU as the device.
    if (run_info["affects_output"].contains(name) || (name == "device" && value == "cpu")) continue;
    throw data::InputError(file.string() + ": it was begun with " + name + " " + value_text(value) +
                           ", not without" + advice);
  }
}

std::string job_hash_of(const json& run_info) {
  const json input = run_info.value("input", json::object());
  return data::hex(data::fnv1a(
      data::to_json_line({run_info.value("affects_output", json()), input.value("hash", json())})));
}

BatchOutput::BatchOutput(std::filesystem::path file, json run_info, bool retry_errors)
    : file_(std::move(file)), last_sync_(std::chrono::steady_clock::now()) {
  std::error_code ignored;
  const bool existed = std::filesystem::exists(file_, ignored);
  if (existed && !std::filesystem::is_regular_file(file_, ignored)) {
    throw data::InputError(file_.string() + ": expected a file to write answers to, found something else");
  }
  // Locked before its size is read, because another process may be writing its last record.
  descriptor_.number = open_and_lock(file_);
  const bool has_answers = std::filesystem::file_size(file_) > 0;
  if (has_answers) check_same_job(file_, run_info);
  job_hash_ = job_hash_of(run_info);
  run_info_ = std::move(run_info);
  run_info_["format_version"] = 1;
  if (has_answers) {
    earlier_cost_ = recorded_cost(data::read_json(run_file_of(file_))).value_or(AnsweringCost{});
  } else if (existed) {
    earlier_cost_ = cost_before_answers(file_, job_hash_);
  }
  write_run_info();
  if (!has_answers) return;
  remove_partial_line(descriptor_.number, file_);
  read_records(retry_errors, run_info_["input"]["lines"].get<int64_t>());
}

void BatchOutput::write_run_info() const {
  json run_info = run_info_;
  if (cost().seconds > 0) run_info["took"] = to_json(cost());
  data::write_file_atomically(run_file_of(file_),
                              run_info.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

void BatchOutput::save_cost() {
  if (own_cost_.seconds == 0) return;
  write_run_info();
}

BatchOutput::Descriptor::~Descriptor() {
  if (number < 0) return;
  ::fsync(number);
  ::close(number);
}

void BatchOutput::read_records(bool retry_errors, int64_t input_lines) {
  std::unordered_set<int64_t> errors;
  LineReader reader(file_, max_record_bytes);
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
  // keep_records has replaced the file, so the old descriptor leads to the removed one.
  const int new_descriptor = open_and_lock(file_);
  ::close(std::exchange(descriptor_.number, new_descriptor));
}

void BatchOutput::write(int64_t line, const json& record) {
  write_text(line, data::to_json_line(record), is_error_record(record));
}

void BatchOutput::write_text(int64_t line, const std::string& record, bool failed) {
  write_all(descriptor_.number, record + "\n", file_);
  done_.insert(line);
  failed_ += failed;
  if (std::chrono::steady_clock::now() - last_sync_ > sync_interval) sync();
}

void BatchOutput::sync() {
  if (::fsync(descriptor_.number) != 0 && errno != EINVAL && errno != EROFS) {
    throw std::runtime_error(file_.string() + ": putting it on disk failed: " + std::strerror(errno));
  }
  save_cost();
  last_sync_ = std::chrono::steady_clock::now();
}

void keep_records(const std::filesystem::path& file, const std::unordered_set<int64_t>& lines) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return;
  LineReader reader(file, BatchOutput::max_record_bytes);
  std::unordered_set<int64_t> kept;
  Rewrite rewrite(file);
  bool changed = false;
  for (std::string text; reader.next(text);) {
    const int64_t line = reader.has_line_feed() ? line_of_record(parse_record_or_null(text, file)) : 0;
    if (lines.count(line) && kept.insert(line).second) {
      rewrite.add(text);
    } else {
      changed = true;
    }
  }
  if (changed) rewrite.commit();
}

CostMeter::CostMeter(BatchOutput& output, at::Device device)
    : output_(output), energy_(EnergyMeter::of_only_rank(device, Rank::from_environment().count)) {}

double CostMeter::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

void CostMeter::tell(int64_t tokens, std::chrono::seconds max_energy_age) {
  const double now = seconds();
  output_.set_cost({now, tokens, energy_ ? energy_->joules(max_energy_age) : 0});
  if (now - saved_at_ < 10) return;
  output_.save_cost();
  saved_at_ = now;
}

}  // namespace clover::infer
