#include "infer/controls/control_fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "data/files/error.h"
#include "data/files/json_fields.h"
#include "data/text/utf8.h"

namespace clover::infer {
namespace {

using nlohmann::json;
using Ids = std::vector<int64_t>;

constexpr double max_bias = 100, max_penalty = 2;

// The functions *_in read the value of field `name`.  InputError when it is not what `expected` says.

double number_in(const json& value, const std::string& name, const char* expected) {
  if (!value.is_number()) data::fail_value(name, expected, value);
  return value.get<double>();
}

/// The JSON number as an integer; 4.0 is one.
int64_t integer_in(const json& value, const std::string& name, const char* expected) {
  constexpr double limit = 9007199254740992.0;  // 2^53: a double beyond it has no fraction
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::abs(number) > limit || number != std::trunc(number)) data::fail_value(name, expected, value);
    return static_cast<int64_t>(number);
  }
  const bool fits = value.is_number_integer() &&
                    !(value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX));
  if (!fits) data::fail_value(name, expected, value);
  return value.get<int64_t>();
}

constexpr const char* expected_ids = "a list of token ids";

Ids ids_in(const json& value, const std::string& name, const char* expected = expected_ids) {
  if (!value.is_array()) data::fail_value(name, expected, value);
  Ids ids;
  for (const json& id : value) ids.push_back(integer_in(id, name, expected));
  return ids;
}

std::vector<Ids> lists_of_ids_in(const json& value, const std::string& name) {
  const char* expected = "a list of lists of token ids, none of them empty";
  if (!value.is_array()) data::fail_value(name, expected, value);
  std::vector<Ids> lists;
  for (const json& list : value) {
    lists.push_back(ids_in(list, name, expected));
    if (lists.back().empty()) data::fail_value(name, expected, value);
  }
  return lists;
}

std::vector<std::string> words_in(const json& value, const std::string& name) {
  std::vector<std::string> words;
  for (const json& word : value.is_array() ? value : json::array({value})) {
    if (!word.is_string()) data::fail_value(name, "a text or a list of texts, none of them empty", value);
    words.push_back(word.get<std::string>());
  }
  return words;
}

/// The token id that is a key of the object in field `name`.
int64_t id_of(const std::string& text, const std::string& name) {
  int64_t id = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size())
    data::fail_value(name, "token ids as names", text);
  return id;
}

std::vector<std::pair<int64_t, double>> biases_in(const json& value, const std::string& name) {
  const char* expected = "an object of token ids and numbers from -100 to 100";
  if (!value.is_object()) data::fail_value(name, expected, value);
  std::vector<std::pair<int64_t, double>> biases;
  for (const auto& [id, bias] : value.items())
    biases.emplace_back(id_of(id, name), number_in(bias, name, expected));
  return biases;
}

/// How a field of a request is read into the controls.
struct Field {
  void (*read)(const json& value, const std::string& name, ControlFields& controls);
};

/// The fields by name.
const std::map<std::string, Field>& control_fields() {
  using Value = const json&;
  using Name = const std::string&;
  using Controls = ControlFields&;
  static const Field min_tokens = {
      [](Value v, Name n, Controls to) { to.min_tokens = integer_in(v, n, "an integer >= 0"); }};
  static const std::map<std::string, Field> fields = {
      {"repetition_penalty",
       {[](Value v, Name n, Controls to) { to.repetition_penalty = number_in(v, n, "a number above 0"); }}},
      {"presence_penalty", {[](Value v, Name n, Controls to) {
         to.presence_penalty = number_in(v, n, "a number from -2 to 2");
       }}},
      {"frequency_penalty", {[](Value v, Name n, Controls to) {
         to.frequency_penalty = number_in(v, n, "a number from -2 to 2");
       }}},
      {"no_repeat_ngram_size", {[](Value v, Name n, Controls to) {
         to.no_repeat_ngram = integer_in(v, n, "an integer >= 0 (0: off)");
       }}},
      {"min_tokens", min_tokens},
      {"min_new_tokens", min_tokens},
      {"min_length",
       {[](Value v, Name n, Controls to) { to.min_length = integer_in(v, n, "an integer >= 0"); }}},
      {"logit_bias", {[](Value v, Name n, Controls to) { to.bias = biases_in(v, n); }}},
      {"bad_words", {[](Value v, Name n, Controls to) { to.bad_words = words_in(v, n); }}},
      {"bad_words_ids", {[](Value v, Name n, Controls to) { to.bad_words_ids = lists_of_ids_in(v, n); }}},
      {"suppress_tokens", {[](Value v, Name n, Controls to) { to.suppressed = ids_in(v, n); }}},
      {"begin_suppress_tokens", {[](Value v, Name n, Controls to) { to.suppressed_first = ids_in(v, n); }}},
  };
  return fields;
}

/// Adds the tokens of a bad word to `words`: without and with a space before it.
void add_word(const std::string& word, const data::Tokenizer& tokenizer, std::vector<Ids>& words) {
  const size_t first = word.find_first_not_of(' ');
  const std::string bare = first == std::string::npos ? word : word.substr(first);
  const Ids alone = tokenizer.encode(bare), after_space = tokenizer.encode(" " + bare);
  if (!alone.empty()) words.push_back(alone);
  if (!after_space.empty() && after_space != alone) words.push_back(after_space);
}

void check_penalty(const char* name, std::optional<double> penalty) {
  if (penalty && !(std::abs(*penalty) <= max_penalty))
    data::fail_value(name, "a number from -2 to 2", *penalty);
}

void check_count(const char* name, std::optional<int64_t> count) {
  if (count && *count < 0) data::fail_value(name, "an integer >= 0", *count);
}

}  // namespace

void ControlFields::fill_from(const ControlFields& defaults) {
  const auto fill = [](auto& field, const auto& value) {
    if (!field) field = value;
  };
  fill(repetition_penalty, defaults.repetition_penalty);
  fill(presence_penalty, defaults.presence_penalty);
  fill(frequency_penalty, defaults.frequency_penalty);
  fill(no_repeat_ngram, defaults.no_repeat_ngram);
  fill(min_tokens, defaults.min_tokens);
  fill(min_length, defaults.min_length);
  fill(bias, defaults.bias);
  fill(bad_words, defaults.bad_words);
  fill(bad_words_ids, defaults.bad_words_ids);
  fill(suppressed, defaults.suppressed);
  fill(suppressed_first, defaults.suppressed_first);
}

json ControlFields::to_json() const {
  json fields = json::object();
  const auto number = [&](const char* name, const auto& value, double no_effect) {
    if (value && static_cast<double>(*value) != no_effect) fields[name] = *value;
  };
  const auto list = [&](const char* name, const auto& value) {
    if (value && !value->empty()) fields[name] = *value;
  };
  number("repetition_penalty", repetition_penalty, 1);
  number("presence_penalty", presence_penalty, 0);
  number("frequency_penalty", frequency_penalty, 0);
  number("no_repeat_ngram_size", no_repeat_ngram, 0);
  number("min_tokens", min_tokens, 0);
  number("min_length", min_length, 0);
  list("logit_bias", bias);
  list("bad_words", bad_words);
  list("bad_words_ids", bad_words_ids);
  list("suppress_tokens", suppressed);
  list("begin_suppress_tokens", suppressed_first);
  return fields;
}

bool is_control_field(const std::string& name) {
  return control_fields().contains(name);
}

void read_controls(const json& fields, ControlFields& controls) {
  for (const auto& [name, field] : control_fields()) {
    const auto value = fields.find(name);
    if (value != fields.end() && !value->is_null()) field.read(*value, name, controls);
  }
  check_controls(controls);
}

void check_controls(const ControlFields& controls) {
  if (const auto& penalty = controls.repetition_penalty;
      penalty && !(std::isfinite(*penalty) && *penalty > 0 && static_cast<float>(*penalty) > 0))
    data::fail_value("repetition_penalty", "a number above 0", *penalty);
  check_penalty("presence_penalty", controls.presence_penalty);
  check_penalty("frequency_penalty", controls.frequency_penalty);
  check_count("no_repeat_ngram_size", controls.no_repeat_ngram);
  check_count("min_tokens", controls.min_tokens);
  check_count("min_length", controls.min_length);
  if (controls.bias) {
    for (const auto& [id, bias] : *controls.bias)
      if (!(std::abs(bias) <= max_bias)) data::fail_value("logit_bias", "numbers from -100 to 100", bias);
  }
  if (controls.bad_words) {
    for (const std::string& word : *controls.bad_words) {
      if (word.empty()) data::fail_value("bad_words", "a text or a list of texts, none of them empty", word);
      if (!data::is_utf8(word)) throw data::InputError("bad_words: expected UTF-8");
    }
  }
}

std::shared_ptr<const LogitControls> resolve_controls(const ControlFields& fields,
                                                      const data::Tokenizer& tokenizer) {
  if (fields == ControlFields{}) return nullptr;
  auto controls = std::make_shared<LogitControls>();
  controls->repetition_penalty = fields.repetition_penalty.value_or(1);
  controls->presence_penalty = fields.presence_penalty.value_or(0);
  controls->frequency_penalty = fields.frequency_penalty.value_or(0);
  controls->no_repeat_ngram = fields.no_repeat_ngram.value_or(0);
  controls->min_tokens = fields.min_tokens.value_or(0);
  // As in transformers' `generate`, min_tokens takes precedence over min_length.
  if (!fields.min_tokens) controls->min_length = fields.min_length.value_or(0);
  std::map<int64_t, double> bias;  // a JSON object may name one id twice, as "7" and "07"
  for (const auto& [id, value] : fields.bias.value_or(std::vector<std::pair<int64_t, double>>{}))
    bias[id] = value;
  controls->bias.assign(bias.begin(), bias.end());
  controls->bad_words = fields.bad_words_ids.value_or(std::vector<Ids>{});
  for (const std::string& word : fields.bad_words.value_or(std::vector<std::string>{}))
    add_word(word, tokenizer, controls->bad_words);
  controls->suppressed = fields.suppressed.value_or(Ids{});
  controls->suppressed_first = fields.suppressed_first.value_or(Ids{});
  return controls->have_effect() ? controls : nullptr;
}

}  // namespace clover::infer
