#include <algorithm>

#include "data/chat/jinja/functions/filters.h"
#include "data/chat/jinja/functions/functions.h"
#include "data/chat/jinja/values/printing.h"
#include "data/chat/jinja/values/texts.h"

// Filters of lists and other iterables.
namespace clover::data::jinja {
namespace {

using Next = std::function<std::optional<Value>()>;

Value as_generator(const Value& source, Next next) {
  return Value::of(std::make_shared<Generator>("generator", source.depth(), std::move(next)));
}
Value as_generator(std::vector<Value> items, const char* name = "generator") {
  const int depth = Value::list(items).depth();
  return Value::of(std::make_shared<Generator>(
      name, depth - 1, [items = std::move(items), at = size_t{0}]() mutable -> std::optional<Value> {
        return at < items.size() ? std::optional(items[at++]) : std::nullopt;
      }));
}

/// select, reject, selectattr, rejectattr: the items for which a test gives `expected`.  Without the name of
/// a test it is whether the item is true.
Value select_items(const Value& list, const BoundArguments& bound, bool by_attribute, bool expected) {
  const std::vector<Value>& arguments = bound.varargs();
  Arguments test_arguments{{}, bound.kwargs()};
  for (size_t i = 1 + by_attribute; i < arguments.size(); ++i) test_arguments.values.push_back(arguments[i]);
  return as_generator(list, [=, items = std::optional<Items>()]() mutable -> std::optional<Value> {
    if (!is_true(list)) return std::nullopt;
    if (!items) items.emplace(list);
    if (by_attribute && arguments.empty()) throw_error("expected the name of an attribute");
    while (std::optional<Value> item = items->next()) {
      const Value tested = by_attribute ? attribute_at_path(*item, arguments[0]) : *item;
      const bool passes = arguments.size() > static_cast<size_t>(by_attribute)
                              ? apply_test(text_in(arguments[by_attribute]), tested, test_arguments)
                              : is_true(tested);
      if (passes == expected) return item;
    }
    return std::nullopt;
  });
}

Value mapped_items(const Value& list, const BoundArguments& bound) {
  Arguments filter_arguments{{}, bound.kwargs()};
  const std::vector<Value>& arguments = bound.varargs();
  Value attribute, fallback;
  const bool by_attribute =
      arguments.empty() && std::any_of(filter_arguments.keywords.begin(), filter_arguments.keywords.end(),
                                       [](const auto& keyword) { return keyword.first == "attribute"; });
  if (!by_attribute) {
    for (size_t i = 1; i < arguments.size(); ++i) filter_arguments.values.push_back(arguments[i]);
  } else {
    const BoundArguments map_arguments("attribute default=", "the filter \"map\"", filter_arguments);
    attribute = map_arguments.at(0);
    fallback = map_arguments.is_absent(1) ? Value() : map_arguments.at(1);
  }
  return as_generator(list, [=, items = std::optional<Items>()]() mutable -> std::optional<Value> {
    if (!is_true(list)) return std::nullopt;
    if (!items) items.emplace(list);
    if (!by_attribute && arguments.empty()) throw_error("expected the name of a filter");
    const std::optional<Value> item = items->next();
    if (!item) return std::nullopt;
    if (!by_attribute) return apply_filter(text_in(arguments[0]), *item, filter_arguments);
    if (fallback.is_undefined()) return attribute_at_path(*item, attribute);
    Value part = *item;
    if (!attribute.is_text()) {
      part = attribute_at_path(part, attribute);
      return part.is_undefined() ? fallback : part;
    }
    for (const std::string& key : split_at(attribute.text(), ".", -1)) {
      part = attribute_at_path(part, Value::of(key));
      if (part.is_undefined()) part = fallback;
    }
    return part;
  });
}

using Key = std::function<Value(const Value&)>;

/// The sort key of a filter: an attribute of the items, or (`is_list`) a list of attributes with commas
/// between them.
Key key_of(const Value& attribute, bool with_case, bool is_list) {
  return [=](const Value& item) {
    const auto key_part = [&](const Value& path) {
      const Value part = attribute_at_path(item, path);
      return with_case ? part : lowercased(part);
    };
    if (!is_list) return key_part(attribute);
    if (!attribute.is_text()) return Value::list({key_part(attribute)});
    std::vector<Value> parts;
    for (const std::string& path : split_at(attribute.text(), ",", -1))
      parts.push_back(key_part(Value::of(path)));
    return Value::list(std::move(parts));
  };
}
Value path_of(const BoundArguments& bound, size_t at) {
  return bound.is_given(at) ? bound.at(at) : Value::none();
}

std::vector<Value> sorted(const std::vector<Value>& items, const Key& key, bool reverse) {
  std::vector<std::pair<Value, size_t>> keys;
  for (const Value& item : items) keys.emplace_back(key(item), keys.size());
  std::stable_sort(keys.begin(), keys.end(), [&](const auto& a, const auto& b) {
    return reverse ? less(b.first, a.first) : less(a.first, b.first);
  });
  std::vector<Value> result;
  for (const auto& [item_key, at] : keys) result.push_back(items[at]);
  return result;
}

Value sorted_filter(const Value& list, const BoundArguments& bound) {
  return Value::list(
      sorted(items_of(list), key_of(path_of(bound, 2), bound.boolean(1), true), bound.boolean(0)));
}

Value sorted_pairs(const Value& dict, const BoundArguments& bound) {
  const std::string by = bound.text(1, "key");
  if (by != "key" && by != "value") throw_error("a dict is sorted by \"key\" or \"value\"");
  if (!dict.is_dict()) throw_error("expected a dict, found " + type_of(dict));
  const Key key = key_of(Value::of(Integer{by == "value"}), bound.boolean(0), false);
  return Value::list(sorted(items_of(call_method(dict, "items", {})), key, bound.boolean(2)));
}

Value grouped(const Value& list, const BoundArguments& bound) {
  const auto key_function = [&](bool with_case) {
    return [&, with_case](const Value& item) {
      Value found = attribute_at_path(item, bound.at(0));
      if (found.is_undefined() && !bound.is_absent(1)) found = bound.at(1);
      return with_case ? found : lowercased(found);
    };
  };
  const Key key = key_function(bound.boolean(2)), grouper = key_function(true);
  std::vector<Value> groups, group;
  const auto finish_group = [&] {
    if (group.empty()) return;
    groups.push_back(Value::group(grouper(group[0]), Value::list(group)));
    group.clear();
  };
  for (const Value& item : sorted(items_of(list), key, false)) {
    if (!group.empty() && !equal(key(group.back()), key(item))) finish_group();
    group.push_back(item);
  }
  finish_group();
  return Value::list(std::move(groups));
}

Value unique(const Value& list, const BoundArguments& bound) {
  const Key key = key_of(path_of(bound, 1), bound.boolean(0), false);
  return as_generator(
      list,
      [=, items = std::optional<Items>(), seen = std::vector<Value>()]() mutable -> std::optional<Value> {
        if (!items) items.emplace(list);
        while (std::optional<Value> item = items->next()) {
          const Value item_key = key(*item);
          check_hashable(item_key);
          if (std::any_of(seen.begin(), seen.end(),
                          [&](const Value& other) { return equal(item_key, other); }))
            continue;
          seen.push_back(item_key);
          return item;
        }
        return std::nullopt;
      });
}

Value extreme(const Value& list, const BoundArguments& bound, bool maximum) {
  const Key key = key_of(path_of(bound, 1), bound.boolean(0), false);
  std::optional<Value> best;
  Value best_key;
  Items items(list);
  while (const std::optional<Value> item = items.next()) {
    const Value item_key = key(*item);
    if (best && !(maximum ? less(best_key, item_key) : less(item_key, best_key))) continue;
    best = item;
    best_key = item_key;
  }
  return best.value_or(Value());
}

Value sum_of(const Value& list, const BoundArguments& bound) {
  Value sum = bound.is_given(1) ? bound.at(1) : Value::of(Integer{0});
  if (sum.is_text()) throw_error("texts are joined, not summed");
  Items items(list);
  while (const std::optional<Value> item = items.next())
    sum = calculate("+", sum, bound.is_absent(0) ? *item : attribute_at_path(*item, bound.at(0)));
  return sum;
}

Value batches(const Value& list, const BoundArguments& bound) {
  const int64_t count = bound.integer(0, 0);
  return as_generator(list,
                      [=, items = std::optional<Items>(),
                       next_item = std::optional<Value>()]() mutable -> std::optional<Value> {
                        if (!items) {
                          items.emplace(list);
                          next_item = items->next();
                          if (next_item && count == 0) return Value::list({});
                        }
                        if (!next_item) return std::nullopt;
                        std::vector<Value> batch;
                        do batch.push_back(*std::exchange(next_item, items->next()));
                        while (next_item && std::ssize(batch) != count);
                        if (!bound.is_absent(1) && std::ssize(batch) < count) {
                          check_size(static_cast<size_t>(count) * sizeof(Value));
                          batch.resize(static_cast<size_t>(count), bound.at(1));
                        }
                        return Value::list(std::move(batch));
                      });
}

Value slices(const Value& list, const BoundArguments& bound) {
  const int64_t count = bound.integer(0, 0);
  return as_generator(list,
                      [=, whole_list = std::optional<std::vector<Value>>(),
                       at = int64_t{0}]() mutable -> std::optional<Value> {
                        if (!whole_list) whole_list = items_of(list);
                        if (count == 0) throw_error("division by zero");
                        if (at >= count) return std::nullopt;
                        charge_template_work(1);
                        const int64_t slice_length = std::ssize(*whole_list) / count,
                                      longer_count = std::ssize(*whole_list) % count;
                        const int64_t begin = at * slice_length + std::min(at, longer_count),
                                      end = begin + slice_length + (at < longer_count);
                        std::vector<Value> slice(whole_list->begin() + begin, whole_list->begin() + end);
                        if (!bound.is_absent(1) && at >= longer_count) slice.push_back(bound.at(1));
                        ++at;
                        return Value::list(std::move(slice));
                      });
}

std::vector<Value> backwards(const Value& list) {
  std::vector<Value> items = items_of(list);
  std::reverse(items.begin(), items.end());
  return items;
}

Value reversed(const Value& list, const BoundArguments&) {
  if (list.is_text()) return slice_of(list, Value::none(), Value::none(), Value::of(Integer{-1}));
  if (list.as<Generator>()) return Value::list(backwards(list));
  return as_generator(backwards(list), "list_reverseiterator");
}

Value last_of(const Value& list, const BoundArguments&) {
  if (list.as<Generator>()) throw_error("the last item of a " + list.object()->type());
  if (list.is_text() && !list.text().empty()) return item_of(Value::of(list.text()), Value::of(Integer{-1}));
  if (list.is_sequence() && !list.items().empty()) return list.items().back();
  const std::vector<Value> items = items_of(list);
  return items.empty() ? Value() : items.back();
}

Value pairs(const Value& dict, const BoundArguments&) {
  if (dict.is_undefined()) return as_generator({});
  return as_generator(dict, [=, items = std::optional<Items>()]() mutable -> std::optional<Value> {
    if (!dict.is_dict()) throw_error("the items of " + type_of(dict));
    if (!items) items.emplace(call_method(dict, "items", {}));
    return items->next();
  });
}

Value length(const Value& value, const BoundArguments&) {
  return Value::of(Integer{length_of(value)});
}

}  // namespace

const Callables& list_filters() {
  static const Callables filters{
      {"length", {"", length}},
      {"count", {"", length}},
      {"first",
       {"", [](const Value& v, const BoundArguments&) { return Items(v).next().value_or(Value()); }}},
      {"last", {"", last_of}},
      {"list", {"", [](const Value& v, const BoundArguments&) { return Value::list(items_of(v)); }}},
      {"items", {"", pairs}},
      {"reverse", {"", reversed}},
      {"unique", {"case_sensitive= attribute=", unique}},
      {"sort", {"reverse= case_sensitive= attribute=", sorted_filter}},
      {"dictsort", {"case_sensitive= by= reverse=", sorted_pairs}},
      {"groupby", {"attribute default= case_sensitive=", grouped}},
      {"map", {"* **", mapped_items}},
      {"select",
       {"* **", [](const Value& v, const BoundArguments& b) { return select_items(v, b, false, true); }}},
      {"reject",
       {"* **", [](const Value& v, const BoundArguments& b) { return select_items(v, b, false, false); }}},
      {"selectattr",
       {"* **", [](const Value& v, const BoundArguments& b) { return select_items(v, b, true, true); }}},
      {"rejectattr",
       {"* **", [](const Value& v, const BoundArguments& b) { return select_items(v, b, true, false); }}},
      {"min",
       {"case_sensitive= attribute=",
        [](const Value& v, const BoundArguments& b) { return extreme(v, b, false); }}},
      {"max",
       {"case_sensitive= attribute=",
        [](const Value& v, const BoundArguments& b) { return extreme(v, b, true); }}},
      {"sum", {"attribute= start=", sum_of}},
      {"batch", {"linecount fill_with=", batches}},
      {"slice", {"slices fill_with=", slices}},
  };
  return filters;
}

}  // namespace clover::data::jinja
