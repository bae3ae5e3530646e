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

/// select, reject, selectattr, rejectattr: the items that pass a test (truth without a named test), or that
/// fail it.
Value select_items(const Value& list, const BoundArguments& bound, bool by_attribute, bool wanted) {
  const std::vector<Value>& given = bound.varargs();
  Arguments rest{{}, bound.kwargs()};
  for (size_t i = 1 + by_attribute; i < given.size(); ++i) rest.values.push_back(given[i]);
  return as_generator(list, [=, items = std::optional<Items>()]() mutable -> std::optional<Value> {
    if (!is_true(list)) return std::nullopt;
    if (!items) items.emplace(list);
    if (by_attribute && given.empty()) throw_error("expected the name of an attribute");
    while (std::optional<Value> item = items->next()) {
      const Value looked_at = by_attribute ? attribute_at_path(*item, given[0]) : *item;
      const bool passes = given.size() > static_cast<size_t>(by_attribute)
                              ? apply_test(text_in(given[by_attribute]), looked_at, rest)
                              : is_true(looked_at);
      if (passes == wanted) return item;
    }
    return std::nullopt;
  });
}

Value mapped_items(const Value& list, const BoundArguments& bound) {
  Arguments rest{{}, bound.kwargs()};
  const std::vector<Value>& given = bound.varargs();
  Value attribute, fallback;
  const bool by_attribute =
      given.empty() && std::any_of(rest.named.begin(), rest.named.end(),
                                   [](const auto& one) { return one.first == "attribute"; });
  if (!by_attribute) {
    for (size_t i = 1; i < given.size(); ++i) rest.values.push_back(given[i]);
  } else {
    const BoundArguments own("attribute default=", "the filter \"map\"", rest);
    attribute = own.at(0);
    fallback = own.is_absent(1) ? Value() : own.at(1);
  }
  return as_generator(list, [=, items = std::optional<Items>()]() mutable -> std::optional<Value> {
    if (!is_true(list)) return std::nullopt;
    if (!items) items.emplace(list);
    if (!by_attribute && given.empty()) throw_error("expected the name of a filter");
    const std::optional<Value> item = items->next();
    if (!item) return std::nullopt;
    if (!by_attribute) return apply_filter(text_in(given[0]), *item, rest);
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

/// The sort key of a filter: an attribute of the items, or several separated by commas.
Key key_of(const Value& attribute, bool with_case, bool several) {
  return [=](const Value& item) {
    const auto one = [&](const Value& path) {
      const Value part = attribute_at_path(item, path);
      return with_case ? part : lowercased(part);
    };
    if (!several) return one(attribute);
    if (!attribute.is_text()) return Value::list({one(attribute)});
    std::vector<Value> parts;
    for (const std::string& path : split_at(attribute.text(), ",", -1)) parts.push_back(one(Value::of(path)));
    return Value::list(std::move(parts));
  };
}
Value path_of(const BoundArguments& bound, size_t at) {
  return bound.given(at) ? bound.at(at) : Value::none();
}

std::vector<Value> sorted(const std::vector<Value>& items, const Key& key, bool reverse) {
  std::vector<std::pair<Value, size_t>> keys;
  for (const Value& item : items) keys.emplace_back(key(item), keys.size());
  std::stable_sort(keys.begin(), keys.end(), [&](const auto& one, const auto& other) {
    return reverse ? less(other.first, one.first) : less(one.first, other.first);
  });
  std::vector<Value> all;
  for (const auto& [own, at] : keys) all.push_back(items[at]);
  return all;
}

Value sorted_filter(const Value& list, const BoundArguments& bound) {
  return Value::list(sorted(items_of(list), key_of(path_of(bound, 2), bound.truth(1), true), bound.truth(0)));
}

Value sorted_pairs(const Value& dict, const BoundArguments& bound) {
  const std::string by = bound.text(1, "key");
  if (by != "key" && by != "value") throw_error("a dict is sorted by \"key\" or \"value\"");
  if (!dict.is_dict()) throw_error("expected a dict, found " + type_of(dict));
  const Key key = key_of(Value::of(Integer{by == "value"}), bound.truth(0), false);
  return Value::list(sorted(items_of(call_method(dict, "items", {})), key, bound.truth(2)));
}

Value grouped(const Value& list, const BoundArguments& bound) {
  const auto part = [&](bool with_case) {
    return [&, with_case](const Value& item) {
      Value found = attribute_at_path(item, bound.at(0));
      if (found.is_undefined() && !bound.is_absent(1)) found = bound.at(1);
      return with_case ? found : lowercased(found);
    };
  };
  const Key key = part(bound.truth(2)), own = part(true);
  std::vector<Value> groups, now;
  const auto close = [&] {
    if (now.empty()) return;
    groups.push_back(Value::group(own(now[0]), Value::list(now)));
    now.clear();
  };
  for (const Value& item : sorted(items_of(list), key, false)) {
    if (!now.empty() && !equal(key(now.back()), key(item))) close();
    now.push_back(item);
  }
  close();
  return Value::list(std::move(groups));
}

Value unique(const Value& list, const BoundArguments& bound) {
  const Key key = key_of(path_of(bound, 1), bound.truth(0), false);
  return as_generator(
      list,
      [=, items = std::optional<Items>(), seen = std::vector<Value>()]() mutable -> std::optional<Value> {
        if (!items) items.emplace(list);
        while (std::optional<Value> item = items->next()) {
          const Value own = key(*item);
          check_hashable(own);
          if (std::any_of(seen.begin(), seen.end(), [&](const Value& other) { return equal(own, other); }))
            continue;
          seen.push_back(own);
          return item;
        }
        return std::nullopt;
      });
}

Value extreme(const Value& list, const BoundArguments& bound, bool most) {
  const Key key = key_of(path_of(bound, 1), bound.truth(0), false);
  std::optional<Value> best;
  Value best_key;
  Items items(list);
  while (const std::optional<Value> item = items.next()) {
    const Value own = key(*item);
    if (best && !(most ? less(best_key, own) : less(own, best_key))) continue;
    best = item;
    best_key = own;
  }
  return best.value_or(Value());
}

Value sum_of(const Value& list, const BoundArguments& bound) {
  Value all = bound.given(1) ? bound.at(1) : Value::of(Integer{0});
  if (all.is_text()) throw_error("texts are joined, not summed");
  Items items(list);
  while (const std::optional<Value> item = items.next())
    all = calculate("+", all, bound.is_absent(0) ? *item : attribute_at_path(*item, bound.at(0)));
  return all;
}

Value batches(const Value& list, const BoundArguments& bound) {
  const int64_t count = bound.integer(0, 0);
  return as_generator(
      list,
      [=, items = std::optional<Items>(), ahead = std::optional<Value>()]() mutable -> std::optional<Value> {
        if (!items) {
          items.emplace(list);
          ahead = items->next();
          if (ahead && count == 0) return Value::list({});
        }
        if (!ahead) return std::nullopt;
        std::vector<Value> batch;
        do batch.push_back(*std::exchange(ahead, items->next()));
        while (ahead && std::ssize(batch) != count);
        if (!bound.is_absent(1) && std::ssize(batch) < count) {
          check_size(static_cast<size_t>(count) * sizeof(Value));
          batch.resize(static_cast<size_t>(count), bound.at(1));
        }
        return Value::list(std::move(batch));
      });
}

Value slices(const Value& list, const BoundArguments& bound) {
  const int64_t count = bound.integer(0, 0);
  return as_generator(
      list,
      [=, all = std::optional<std::vector<Value>>(), at = int64_t{0}]() mutable -> std::optional<Value> {
        if (!all) all = items_of(list);
        if (count == 0) throw_error("division by zero");
        if (at >= count) return std::nullopt;
        charge_work(1);
        const int64_t each = std::ssize(*all) / count, longer = std::ssize(*all) % count;
        const int64_t begin = at * each + std::min(at, longer), end = begin + each + (at < longer);
        std::vector<Value> slice(all->begin() + begin, all->begin() + end);
        if (!bound.is_absent(1) && at >= longer) slice.push_back(bound.at(1));
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
  static const Callables all{
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
  return all;
}

}  // namespace clover::data::jinja
