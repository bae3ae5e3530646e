#include "infer/cost_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/error.h"
#include "data/files.h"
#include "data/hash.h"
#include "infer/machine.h"

namespace clover::infer {
namespace {

using nlohmann::json;

constexpr int format_version = 1;
constexpr size_t most_points = 512;
constexpr int64_t largest_count = 1 << 20;
// Neighbours and clocks of a shared machine change.
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

/// Kernels of another build may be faster, and versions do not tell builds apart.
std::string this_program() {
  struct stat about {};
  if (::stat("/proc/self/exe", &about) != 0) return "";
  return std::to_string(about.st_size) + "-" + std::to_string(about.st_mtim.tv_sec) + "." +
         std::to_string(about.st_mtim.tv_nsec);
}

bool is_measure(const json& value) {
  return value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() >= 0;
}

struct Kept {
  PassCost costs;
  int64_t since;  // seconds of the epoch
};

/// nullopt unless all of it makes sense.
std::optional<Kept> kept_in(const json& file) {
  if (!file.is_object() || file.value("format", json()) != format_version) return std::nullopt;
  const json since = file.value("since", json()), position = file.value("seconds_per_position", json()),
             context = file.value("attention_context", json()), rows = file.value("rows", json());
  if (!since.is_number_integer() || !is_measure(position) || !is_measure(context) ||
      !context.is_number_integer() || !rows.is_array() || rows.size() > most_points)
    return std::nullopt;
  const int64_t age = now() - since.get<int64_t>();
  if (age < 0 || age > std::chrono::seconds(kept_for).count()) return std::nullopt;
  std::vector<CostCurve::Point> points;
  for (const json& point : rows) {
    if (!point.is_array() || point.size() != 3 || !point[0].is_number_integer() ||
        !std::all_of(point.begin(), point.end(), is_measure))
      return std::nullopt;
    points.push_back({point[0].get<int64_t>(), point[1].get<double>(), point[2].get<double>()});
    const CostCurve::Point& last = points.back();
    if (last.count < 1 || last.count > largest_count || last.seconds == 0 || last.weight < 1 ||
        (points.size() > 1 && last.count <= points[points.size() - 2].count))
      return std::nullopt;
  }
  return Kept{PassCost(CostCurve(points), position.get<double>(), context.get<int64_t>()),
              since.get<int64_t>()};
}

/// nullopt as well where there is no file that could be read.
std::optional<Kept> kept_in(const std::filesystem::path& file) {
  constexpr size_t largest = size_t{1} << 20;
  std::error_code none;
  if (!std::filesystem::is_regular_file(file, none)) return std::nullopt;
  try {
    return kept_in(data::parse_json(data::read_file(file, largest), file.string()));
  } catch (const data::InputError&) {
    return std::nullopt;
  }
}

}  // namespace

CostFile CostFile::of(const model::Target& target, bool graphs) {
  const std::filesystem::path folder = cache_folder();
  const std::string program = this_program();
  if (folder.empty() || program.empty() || target.fingerprint() == "random") return {};
  json about = {{"machine", describe_machine(target.device())},
                {"program", program},
                {"target", target.fingerprint()},
                {"dtype", c10::toString(target.dtype())},
                {"graphs", graphs}};
  about["machine"].erase("memory_bytes");
  return CostFile(folder / "costs" / (data::hex(data::fnv1a(about.dump())) + ".json"));
}

PassCost CostFile::read() const {
  const std::optional<Kept> kept = kept_in(file_);
  return kept ? kept->costs : PassCost();
}

void CostFile::write(const PassCost& costs) const {
  if (file_.empty() || costs.points() == 0) return;
  std::vector<CostCurve::Point> points = costs.by_rows().known();
  if (points.size() > most_points) {  // the best known
    std::ranges::nth_element(points, points.begin() + most_points, std::greater{}, &CostCurve::Point::weight);
    points.resize(most_points);
    std::ranges::sort(points, {}, &CostCurve::Point::count);
  }
  json rows = json::array();
  for (const CostCurve::Point& point : points) rows.push_back({point.count, point.seconds, point.weight});
  const std::optional<Kept> before = kept_in(file_);  // what it holds ages, however often it is written
  const json file = {{"format", format_version},
                     {"since", before ? before->since : now()},
                     {"seconds_per_position", costs.per_position()},
                     {"attention_context", costs.attention_context()},
                     {"rows", rows}};
  try {
    std::filesystem::create_directories(file_.parent_path());
    data::write_file_atomically(file_, file.dump() + "\n");
  } catch (const std::exception&) {  // a full or read-only disk is no reason to fail
  }
}

}  // namespace clover::infer
