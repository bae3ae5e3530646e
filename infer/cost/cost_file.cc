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
constexpr size_t most_points = 512;
constexpr int64_t largest_count = 1 << 20;        // of rows, and of tokens of context
constexpr double shortest = 1e-9, longest = 1e4;  // seconds of a pass
constexpr double fewest_timings = 0.5, most_timings = 1e6;
// Longer-lived costs would be wrong: a shared machine's load and clocks change.
constexpr std::chrono::hours kept_for{7 * 24};

int64_t now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::filesystem::path cache_folder() {
  const auto set = [](const char* name) -> std::filesystem::path {
    const char* value = std::getenv(name);
    return value != nullptr && value[0] == '/' ? value : "";
  };
  if (const auto folder = set("XDG_CACHE_HOME"); !folder.empty()) return folder / "clover";
  if (const auto home = set("HOME"); !home.empty()) return home / ".cache" / "clover";
  return {};
}

/// Identifies the build of this program, whose kernels may be faster than another's, by the file's size and
/// time.
std::string this_program() {
  struct stat about {};
  if (::stat("/proc/self/exe", &about) != 0) return "";
  return std::to_string(about.st_size) + "-" + std::to_string(about.st_mtim.tv_sec) + "." +
         std::to_string(about.st_mtim.tv_nsec);
}

bool is_number(const json& value, double least, double most) {
  return value.is_number() && value.get<double>() >= least && value.get<double>() <= most;
}
bool is_whole(const json& value, int64_t least, int64_t most) {
  return value.is_number_integer() && is_number(value, double(least), double(most));
}

struct Contents {
  PassCost costs;
  int64_t since;  // seconds of the epoch
};

/// nullopt where anything in it is invalid.
std::optional<Contents> contents_of(const json& file) {
  if (!file.is_object() || file.value("format", json()) != format_version) return std::nullopt;
  const json since = file.value("since", json()), attended_token = file.value("seconds_per_position", json()),
             context = file.value("attention_context", json()), rows = file.value("rows", json());
  const int64_t today = now(), oldest = today - std::chrono::seconds(kept_for).count();
  if (!is_whole(since, oldest, today) || !is_number(attended_token, 0, longest) ||
      !is_whole(context, 0, largest_count) || !rows.is_array() || rows.size() > most_points)
    return std::nullopt;
  std::vector<CostCurve::Point> points;
  for (const json& point : rows) {
    if (!point.is_array() || point.size() != 3 || !is_whole(point[0], 1, largest_count) ||
        !is_number(point[1], shortest, longest) || !is_number(point[2], fewest_timings, most_timings))
      return std::nullopt;
    const int64_t count = point[0].get<int64_t>();
    if (!points.empty() && count <= points.back().count) return std::nullopt;
    points.push_back({count, point[1].get<double>(), point[2].get<double>()});
  }
  return Contents{PassCost(CostCurve(points), attended_token.get<double>(), context.get<int64_t>()),
                  since.get<int64_t>()};
}

/// nullopt as well where the file is missing or cannot be read.
std::optional<Contents> contents_of(const std::filesystem::path& file) {
  constexpr size_t largest = size_t{1} << 20;
  std::error_code none;
  if (!std::filesystem::is_regular_file(file, none)) return std::nullopt;
  try {
    return contents_of(data::parse_json(data::read_file(file, largest), file.string()));
  } catch (const data::InputError&) {
    return std::nullopt;
  }
}

/// Removes expired files of other builds and models.
void remove_old(const std::filesystem::path& folder) {
  const auto oldest = std::filesystem::file_time_type::clock::now() - kept_for;
  std::vector<std::filesystem::path> old;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.is_regular_file() && entry.path().extension() == ".json" && entry.last_write_time() < oldest)
      old.push_back(entry.path());
  for (const auto& file : old) std::filesystem::remove(file);
}

}  // namespace

CostFile CostFile::of(const model::Target& target, bool graphs, bool typical) {
  const std::filesystem::path folder = cache_folder();
  const std::string program = this_program();
  if (folder.empty() || program.empty() || target.fingerprint() == "random") return {};
  json about = {
      {"machine", describe_machine(target.device())}, {"program", program}, {"target", target.fingerprint()},
      {"dtype", c10::toString(target.dtype())},       {"graphs", graphs},   {"typical", typical}};
  about["machine"].erase("memory_bytes");
  return CostFile(folder / "costs" / (data::hex(data::fnv1a(about.dump())) + ".json"));
}

PassCost CostFile::read() const {
  const std::optional<Contents> contents = contents_of(file_);
  return contents ? contents->costs : PassCost();
}

void CostFile::write(const PassCost& costs) const {
  if (file_.empty() || costs.points() == 0) return;
  std::vector<CostCurve::Point> points = costs.by_rows().known();
  std::erase_if(points, [](const CostCurve::Point& point) { return point.timings < fewest_timings; });
  if (points.size() > most_points) {  // those timed most often
    std::ranges::nth_element(points, points.begin() + most_points, std::greater{},
                             &CostCurve::Point::timings);
    points.resize(most_points);
    std::ranges::sort(points, {}, &CostCurve::Point::count);
  }
  json rows = json::array();
  for (const CostCurve::Point& point : points) rows.push_back({point.count, point.seconds, point.timings});
  const std::optional<Contents> before = contents_of(file_);  // its age counts from the first write
  const json file = {{"format", format_version},
                     {"since", before ? before->since : now()},
                     {"seconds_per_position", costs.per_attended_token()},
                     {"attention_context", std::min(costs.attention_context(), largest_count)},
                     {"rows", rows}};
  try {
    std::filesystem::create_directories(file_.parent_path());
    if (!before) remove_old(file_.parent_path());
    data::write_file_atomically(file_, file.dump() + "\n");
  } catch (const std::exception&) {  // a full or read-only disk is no reason to fail
  }
}

}  // namespace clover::infer
