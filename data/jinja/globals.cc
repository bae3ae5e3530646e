#include "data/jinja/globals.h"

#include <ctime>

namespace clover::data::jinja {

Value new_dict(const Arguments& arguments) {
  json dict = arguments.values.empty() ? json::object() : *arguments.values[0];
  if (!dict.is_object()) throw InputError("a dict of " + type_of(dict));
  for (const auto& [name, value] : arguments.named) dict[name] = *value;
  return made_of_parts(std::move(dict));
}

Value new_range(const Arguments& arguments) {
  constexpr int64_t most = 100'000;
  int64_t bounds[3] = {0, 0, 1};
  for (size_t i = 0; i < 3 && i < arguments.values.size(); ++i) {
    if (!arguments.values[i]->is_number_integer())
      throw InputError("a range of " + type_of(*arguments.values[i]));
    bounds[i] = arguments.values[i]->get<int64_t>();
  }
  if (arguments.values.size() == 1) std::swap(bounds[0], bounds[1]);
  const auto& [begin, end, step] = bounds;
  json all = json::array();
  if (step == 0) throw InputError("a range with a step of 0");
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (std::ssize(all) == most) throw InputError("a range of more than 100000 numbers");
    all.push_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return made(std::move(all));
}

std::string date(const std::string& format) {
  std::tm day{};
  day.tm_year = 2024 - 1900, day.tm_mon = 6, day.tm_mday = 26, day.tm_wday = 5, day.tm_yday = 207;
  char text[256];
  return {text, std::strftime(text, sizeof text, format.c_str(), &day)};
}

}  // namespace clover::data::jinja
