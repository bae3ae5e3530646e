#include "infer/batch/stats_file.h"

#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "data/files/error.h"
#include "data/files/files.h"
#include "data/files/hash.h"
#include "data/files/json_fields.h"
#include "infer/batch/batch_output.h"
#include "infer/requests/line_reader.h"

namespace clover::infer {
namespace {

using nlohmann::json;

/// Whether a record is one of --stats.  Answers have a line number too, but also a text.
bool is_stats_record(const json& record) {
  return line_of_record(record) > 0 && record.contains("accepted_histogram") && !record.contains("text");
}

/// A hash of what an answer and its --stats record have in common: the token ids or, for an OpenAI response,
/// which has none, its "usage".
struct AnswerHash {
  bool openai = false;
  uint64_t hash = 0;
  static AnswerHash of_answer(const json& record) {
    const json::json_pointer usage("/response/body/usage");
    if (!record.contains("token_ids") && record.contains(usage))
      return {true, data::fnv1a(data::to_json_line(record[usage]))};
    return {false, data::fnv1a(data::to_json_line(record.value("token_ids", json())))};
  }
  bool matches(const json& stats_record) const {
    return hash ==
           data::fnv1a(data::to_json_line(stats_record.value(openai ? "usage" : "token_ids", json())));
  }
};

/// The job that has written an output file, if there is one.  Tells whether a --stats record belongs to it.
class ExistingJob {
 public:
  /// `output`: the file of answers, which may not exist.  `stats`: the file of --stats records.
  ExistingJob(const std::filesystem::path& output, const std::filesystem::path& stats) {
    const std::filesystem::path run_file = run_file_of(output);
    std::error_code ignored;
    if (!std::filesystem::exists(output, ignored) || !std::filesystem::exists(run_file, ignored)) return;
    const json run_info = data::read_json(run_file);
    if (!run_info.is_object() || !run_info.value("settings", json()).is_object()) return;
    exists_ = true;
    job_hash_ = job_hash_of(run_info);
    const json stats_setting = run_info["settings"].value("stats", json());
    wrote_this_stats_file_ = stats_setting.is_string() && stats_setting != "" &&
                             data::same_file(stats_setting.get<std::string>(), stats);
    LineReader reader(output, BatchOutput::max_record_bytes);
    for (std::string text; reader.next(text);) {
      const json record = parse_record_or_null(text, output);
      if (line_of_record(record) < 1) continue;
      if (is_error_record(record))
        failed_lines_.insert(line_of_record(record));
      else
        answers_.emplace(line_of_record(record), AnswerHash::of_answer(record));
    }
  }

  /// Whether the --stats record may be of this job.  `last`: it is the last record of its file.  Its answer
  /// may be missing, because the job may have been killed between writing the two.
  bool owns(const json& record, bool last) const {
    if (!exists_) return false;
    const json hash = record.value("job", json());
    const auto answer = answers_.find(line_of_record(record));
    if (answer != answers_.end() && !answer->second.matches(record)) return false;
    if (!hash.is_null()) return hash == job_hash_;
    // Early versions wrote no hash into the record.
    return answer != answers_.end() ||
           (last && wrote_this_stats_file_ && !failed_lines_.contains(line_of_record(record)));
  }

 private:
  bool exists_ = false;
  bool wrote_this_stats_file_ = false;  // its --stats option named the file that is checked
  std::string job_hash_;
  std::unordered_map<int64_t, AnswerHash> answers_;  // by line number
  std::unordered_set<int64_t> failed_lines_;         // line numbers
};

}  // namespace

void check_stats_file(const std::filesystem::path& file, const std::filesystem::path& output) {
  std::error_code ignored;
  if (file.empty()) return;
  if (!std::filesystem::exists(file, ignored)) return data::check_writable(file);
  const std::string advice = "; choose another file or remove it";
  if (!std::filesystem::is_regular_file(file, ignored))
    throw data::InputError("--stats " + file.string() + ": expected a regular file" + advice);
  const ExistingJob job(output, file);
  LineReader reader(file, BatchOutput::max_record_bytes);
  std::string text;
  for (bool has_line = reader.next(text);
       has_line && reader.has_line_feed();) {  // a kill may have cut off the last record
    const int64_t number = reader.number();
    const json record = parse_record_or_null(text, file);
    has_line = reader.next(text);
    const bool last = !has_line || !reader.has_line_feed(), is_stats = is_stats_record(record);
    if (!is_stats || !job.owns(record, last)) {
      throw data::InputError("--stats " + file.string() + ", line " + std::to_string(number) +
                             ": expected records of the job that is continued, found " +
                             (is_stats ? "those of another job" : "something else") + advice);
    }
  }
}

}  // namespace clover::infer
