#include "infer/cost/cost_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/files/error.h"
#include "data/files/files.h"
#include "data/files/hash.h"
#include "infer/program/machine.h"

namespace clover::infer {
namespace {

using nlohmann::json;

constexpr int format_version = 1;
constexpr size_t max_points = 512;
constexpr int64_t max_count = 1 << 20;                   // of rows, and of tokens of context
constexpr double min_seconds = 1e-9, max_seconds = 1e4;  // of a pass
constexpr double min_timings = 0.5, max_timings = 1e6;
// Older costs would be wrong: the load and the clocks of a shared machine change.
constexpr std::chrono::hours lifetime{7 * 24};

/// Seconds since the epoch.
int64_t now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// The folder for files of this program that may be deleted at any time; empty when there is none.
std::filesystem::path cache_folder() {
  const auto folder_from = [](const char* variable) -> std::filesystem::path {
    const char* value = std::getenv(variable);
    return value != nullptr && value[0] == '/' ? value : "";
  };
  if (const auto folder = folder_from("XDG_CACHE_HOME"); !folder.empty()) return folder / "clover";
  if (const auto home = folder_from("HOME"); !home.empty()) return home / ".cache" / "clover";
  return {};
}

/// Identifies the build of this program, whose kernels may be faster than another's, by the file's size and
/// time.
std::string program_id() {
  struct stat file {};
  if (::stat("/proc/self/exe", &file) != 0) return "";
  return std::to_string(file.st_size) + "-" + std::to_string(file.st_mtim.tv_sec) + "." +
         std::to_string(file.st_mtim.tv_nsec);
}

bool is_number(const json& value, double min, double max) {
  return value.is_number() && value.get<double>() >= min && value.get<double>() <= max;
}
bool is_integer(const json& value, int64_t min, int64_t max) {
  return value.is_number_integer() && is_number(value, double(min), double(max));
}

struct Contents {
  PassCost costs;
  int64_t since;  // when the file was first written, in seconds since the epoch
};

/// nullopt where anything in the file is invalid.
std::optional<Contents> parse_contents(const json& file) {
  if (!file.is_object() || file.value("format", json()) != format_version) return std::nullopt;
  const json since = file.value("since", json()),
             per_attended_token = file.value("seconds_per_position", json()),
             context = file.value("attention_context", json()), rows = file.value("rows", json());
  const int64_t now_seconds = now(), oldest = now_seconds - std::chrono::seconds(lifetime).count();
  if (!is_integer(since, oldest, now_seconds) || !is_number(per_attended_token, 0, max_seconds) ||
      !is_integer(context, 0, max_count) || !rows.is_array() || rows.size() > max_points)
    return std::nullopt;
  std::vector<CostCurve::Point> points;
  for (const json& point : rows) {
    if (!point.is_array() || point.size() != 3 || !is_integer(point[0], 1, max_count) ||
        !is_number(point[1], min_seconds, max_seconds) || !is_number(point[2], min_timings, max_timings))
      return std::nullopt;
    const int64_t count = point[0].get<int64_t>();
    if (!points.empty() && count <= points.back().count) return std::nullopt;
    points.push_back({count, point[1].get<double>(), point[2].get<double>()});
  }
  return Contents{PassCost(CostCurve(points), per_attended_token.get<double>(), context.get<int64_t>()),
                  since.get<int64_t>()};
}

/// nullopt also where the file is missing or cannot be read.
std::optional<Contents> read_contents(const std::filesystem::path& file) {
  constexpr size_t max_bytes = size_t{1} << 20;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) return std::nullopt;
  try {
    return parse_contents(data::parse_json(data::read_file(file, max_bytes), file.string()));
  } catch (const data::InputError&) {
    return std::nullopt;
  }
}

/// Removes expired files of other builds and models.
void remove_expired(const std::filesystem::path& folder) {
  const auto oldest = std::filesystem::file_time_type::clock::now() - lifetime;
  std::vector<std::filesystem::path> expired;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.is_regular_file() && entry.path().extension() == ".json" && entry.last_write_time() < oldest)
      expired.push_back(entry.path());
  for (const auto& file : expired) std::filesystem::remove(file);
}

}  // namespace

CostFile CostFile::for_target(const model::Target& target, bool graphs, bool typical) {
  const std::filesystem::path folder = cache_folder();
  const std::string program = program_id();
  if (folder.empty() || program.empty() || target.fingerprint() == "random") return {};
  json key = {
      {"machine", describe_machine(target.device())}, {"program", program}, {"target", target.fingerprint()},
      {"dtype", c10::toString(target.dtype())},       {"graphs", graphs},   {"typical", typical}};
  key["machine"].erase("memory_bytes");
  return CostFile(folder / "costs" / (data::hex(data::fnv1a(key.dump())) + ".json"));
}

PassCost CostFile::read() const {
  const std::optional<Contents> contents = read_contents(file_);
  return contents ? contents->costs : PassCost();
}

void CostFile::write(const PassCost& costs) const {
  if (file_.empty() || costs.timed_row_counts() == 0) return;
  std::vector<CostCurve::Point> points = costs.by_rows().means();
  std::erase_if(points, [](const CostCurve::Point& point) { return point.timings < min_timings; });
  if (points.size() > max_points) {  // keeps the points timed most often
    std::ranges::nth_element(points, points.begin() + max_points, std::greater{}, &CostCurve::Point::timings);
    points.resize(max_points);
    std::ranges::sort(points, {}, &CostCurve::Point::count);
  }
  json rows = json::array();
  for (const CostCurve::Point& point : points) rows.push_back({point.count, point.seconds, point.timings});
  const std::optional<Contents> old_contents =
      read_contents(file_);  // the file's age counts from its first write
  const json file = {{"format", format_version},
                     {"since", old_contents ? old_contents->since : now()},
                     {"seconds_per_position", costs.per_attended_token()},
                     {"attention_context", std::min(costs.attention_context(), max_count)},
                     {"rows", rows}};
  try {
    std::filesystem::create_directories(file_.parent_path());
    if (!old_contents) remove_expired(file_.parent_path());
    data::write_file_atomically(file_, file.dump() + "\n");
  } catch (const std::exception&) {  // a full or read-only disk is no reason to fail
  }
}

}  // namespace clover::infer
