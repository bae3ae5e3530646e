#include "data/jinja/functions.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string_view>

#include "data/error.h"
#include "data/jinja/texts.h"

namespace clover::data::jinja {
namespace {

std::string indented(const std::string& text, const Arguments& arguments) {
  const Value &width = arguments.at(0, "width"), &first = arguments.at(1, "first"),
              &blank = arguments.at(2, "blank");
  std::string by = width->is_string() ? text_of(*width)
                                      : std::string(std::clamp<int64_t>(whole_or(width, 4), 0, 100), ' ');
  std::string all = is_true(*first) ? by : "";
  for (size_t i = 0; i < text.size(); ++i) {
    all += text[i];
    const bool empty_line = i + 1 == text.size() || text[i + 1] == '\n';
    if (text[i] == '\n' && (!empty_line || is_true(*blank))) all += by;
    check_size(all);
  }
  return all;
}

/// json.dumps with Hugging Face's defaults.
std::string as_json(const json& value, const Arguments& arguments) {
  if (is_true(*arguments.at(3, "sort_keys"))) lack("tojson(sort_keys=true)");
  const Value& separators = arguments.at(2, "separators");
  JsonStyle style{whole_or(arguments.at(1, "indent"), -1), is_true(*arguments.at(0, "ensure_ascii"))};
  if (separators->is_array() && separators->size() == 2) {
    style.between_items = text_in((*separators)[0]);
    style.after_key = text_in((*separators)[1]);
  }
  return dumped(value, style);
}

std::string escaped(const std::string& text) {
  std::string all;
  for (const char c : text) {
    const std::string_view from = "&<>'\"";
    static constexpr const char* to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    const size_t at = from.find(c);
    at == std::string_view::npos ? void(all += c) : void(all += to[at]);
  }
  return all;
}

// Filters over the items of a list.

/// Items, or an attribute of theirs, that pass a test (truth where none is named), or that do not.
Value chosen(const Value& list, const Arguments& arguments, bool by_attribute, bool wanted) {
  const size_t own = by_attribute ? 1 : 0;
  std::vector<Value> kept;
  Arguments rest;
  for (size_t i = own + 1; i < arguments.values.size(); ++i) rest.values.push_back(arguments.values[i]);
  const Value& test = arguments.at(own);
  for (const Value& item : items_of(list)) {
    const Value looked_at = by_attribute ? item_of(item, *arguments.at(0)) : item;
    const bool passes =
        is_undefined(test) ? is_true(*looked_at) : apply_test(text_in(*test), looked_at, rest);
    if (passes == wanted) kept.push_back(item);
  }
  return list_of(kept);
}

Value mapped_items(const Value& list, const Arguments& arguments) {
  const Value &attribute = arguments.at(1000, "attribute"), &fallback = arguments.at(1000, "default");
  Arguments rest;
  for (size_t i = 1; i < arguments.values.size(); ++i) rest.values.push_back(arguments.values[i]);
  std::vector<Value> all;
  for (const Value& item : items_of(list)) {
    if (is_undefined(attribute)) {
      all.push_back(apply_filter(text_in(*arguments.at(0)), item, rest));
    } else {
      const Value part = item_of(item, *attribute);
      all.push_back(is_undefined(part) ? fallback : part);
    }
  }
  return list_of(all);
}

Value sorted(const Value& list, const Arguments& arguments) {
  std::vector<Value> all = items_of(list);
  spend(32 * std::ssize(all));
  const Value& attribute = arguments.at(2, "attribute");
  const auto key = [&](const Value& item) {
    const Value part = is_undefined(attribute) ? item : item_of(item, *attribute);
    return part->is_string() ? made(in_lower(text_of(*part))) : part;
  };
  std::stable_sort(all.begin(), all.end(), [&](const Value& one, const Value& other) {
    return compare("<", *key(one), *key(other));
  });
  if (is_true(*arguments.at(0, "reverse"))) std::reverse(all.begin(), all.end());
  return list_of(all);
}

Value unique(const Value& list) {
  std::vector<Value> kept;
  for (const Value& item : items_of(list)) {
    spend(std::ssize(kept));
    const auto same = [&](const Value& other) {
      const bool texts = item->is_string() && other->is_string();
      return texts ? in_lower(text_of(*item)) == in_lower(text_of(*other)) : equal(*item, *other);
    };
    if (std::none_of(kept.begin(), kept.end(), same)) kept.push_back(item);
  }
  return list_of(kept);
}

Value edge(const Value& list, bool front) {
  const std::vector<Value> items = items_of(list);
  return items.empty() ? undefined() : front ? items.front() : items.back();
}

Value reversed(const Value& list) {
  std::vector<Value> items = items_of(list);
  std::reverse(items.begin(), items.end());
  if (!list->is_string()) return list_of(items);
  return made(joined(list_of(items), "", undefined()));
}

Value number_of(const Value& value, const Arguments& arguments, bool whole) {
  const Value& fallback = arguments.at(0, "default");
  const Value otherwise = !is_undefined(fallback) ? fallback : whole ? made(0) : made(0.0);
  double number = 0;
  if (value->is_string()) {
    const std::string text(stripped(value->get_ref<const std::string&>(), true, true));
    char* end = nullptr;
    number = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0') return otherwise;
  } else if (value->is_number()) {
    number = value->get<double>();
  } else if (value->is_boolean()) {
    number = value->get<bool>();
  } else {
    return otherwise;
  }
  if (!whole) return made(number);
  return std::abs(number) < 9e15 ? made(static_cast<int64_t>(number)) : otherwise;
}

using Filter = Value (*)(const Value&, const Arguments&);

/// A filter that makes one text of another.
template <std::string (*Make)(const std::string&)>
Value of_text(const Value& value, const Arguments&) {
  return made(Make(text_of(*value)));
}

const std::map<std::string, Filter>& filters() {
  static const std::map<std::string, Filter> all{
      {"upper", of_text<in_upper>},
      {"lower", of_text<in_lower>},
      {"capitalize", of_text<capitalized>},
      {"title", of_text<with_titles>},
      {"escape", of_text<escaped>},
      {"e", of_text<escaped>},
      {"string", [](const Value& value, const Arguments&) { return made(text_of(*value)); }},
      {"safe", [](const Value& value, const Arguments&) { return value; }},
      {"trim",
       [](const Value& value, const Arguments& arguments) {
         return call_method("strip", made(text_of(*value)), arguments);
       }},
      {"replace", [](const Value& value,
                     const Arguments& arguments) { return made(with_replaced(text_of(*value), arguments)); }},
      {"indent", [](const Value& value,
                    const Arguments& arguments) { return made(indented(text_of(*value), arguments)); }},
      {"tojson",
       [](const Value& value, const Arguments& arguments) { return made(as_json(*value, arguments)); }},
      {"length", [](const Value& value, const Arguments&) { return made(length_of(*value)); }},
      {"count", [](const Value& value, const Arguments&) { return made(length_of(*value)); }},
      {"first", [](const Value& value, const Arguments&) { return edge(value, true); }},
      {"last", [](const Value& value, const Arguments&) { return edge(value, false); }},
      {"list", [](const Value& value, const Arguments&) { return list_of(items_of(value)); }},
      {"items", [](const Value& value, const Arguments&) { return pairs_of(value); }},
      {"reverse", [](const Value& value, const Arguments&) { return reversed(value); }},
      {"unique", [](const Value& value, const Arguments&) { return unique(value); }},
      {"sort", sorted},
      {"map", mapped_items},
      {"dictsort",
       [](const Value& value, const Arguments&) {
         return sorted(pairs_of(value), {{}, {{"attribute", made(0)}}});
       }},
      {"join",
       [](const Value& value, const Arguments& arguments) {
         return made(joined(value, text_of(*arguments.at(0, "d")), arguments.at(1, "attribute")));
       }},
      {"default",
       [](const Value& value, const Arguments& arguments) {
         const bool absent =
             is_undefined(value) || (is_true(*arguments.at(1, "boolean")) && !is_true(*value));
         const Value& fallback = arguments.at(0, "default_value");
         return !absent ? value : is_undefined(fallback) ? made("") : fallback;
       }},
      {"int",
       [](const Value& value, const Arguments& arguments) { return number_of(value, arguments, true); }},
      {"float",
       [](const Value& value, const Arguments& arguments) { return number_of(value, arguments, false); }},
      {"abs",
       [](const Value& value, const Arguments&) {
         return compare("<", *value, json(0)) ? calculate("-", json(0), *value) : value;
       }},
      {"selectattr", [](const Value& value, const Arguments& a) { return chosen(value, a, true, true); }},
      {"rejectattr", [](const Value& value, const Arguments& a) { return chosen(value, a, true, false); }},
      {"select", [](const Value& value, const Arguments& a) { return chosen(value, a, false, true); }},
      {"reject", [](const Value& value, const Arguments& a) { return chosen(value, a, false, false); }},
  };
  return all;
}

}  // namespace

Value apply_filter(const std::string& name, const Value& value, const Arguments& arguments) {
  const auto found = filters().find(name == "d" ? "default" : name);
  if (found == filters().end()) lack("the filter \"" + name + "\"");
  return found->second(value, arguments);
}

}  // namespace clover::data::jinja
