#include "infer/requests/batch_input.h"

#include <filesystem>

#include "data/chat/chat_fields.h"
#include "data/chat/messages.h"
#include "data/files/error.h"
#include "data/files/files.h"
#include "data/files/hash.h"
#include "data/files/json_fields.h"
#include "data/files/lossless_json.h"
#include "data/files/mapped_file.h"
#include "data/training/record_texts.h"
#include "infer/requests/line_reader.h"

namespace clover::infer {
namespace {

using nlohmann::json;

constexpr const char* expected_line =
    "expected an object with \"prompt\", \"messages\" or \"turns\", or an OpenAI batch request with \"body\"";

/// The value of the field `name` as a text.
std::string text_field(const json& value, const std::string& name, bool may_be_empty) {
  if (!value.is_string()) {
    throw data::InputError(name + ": expected a string, found " + std::string(value.type_name()));
  }
  std::string text = value.get<std::string>();
  if (text.empty() && !may_be_empty)
    throw data::InputError(name + ": expected a text, found an empty string");
  return text;
}

std::vector<std::string> read_turns(const json& turns) {
  if (!turns.is_array() || turns.empty()) {
    throw data::InputError("turns: expected a list of texts that is not empty, found " +
                           data::excerpt(turns, 60));
  }
  std::vector<std::string> texts;
  for (size_t i = 0; i < turns.size(); ++i) {
    texts.push_back(text_field(turns[i], "turns[" + std::to_string(i) + "]", false));
  }
  return texts;
}

/// Reads the field `name` into `id`, which stays null where the field is absent or null.
void read_id(const json& record, const char* name, json& id) {
  const auto at = record.find(name);
  if (at == record.end() || at->is_null()) return;
  if (!at->is_string() && !at->is_number())
    throw data::InputError(std::string(name) + ": expected a string or a number, found " +
                           data::excerpt(*at, 60));
  id = *at;
}

/// Whether the field is present and not null.  Files converted from tables hold null in unused columns.
bool has_value(const json& record, const char* name) {
  const auto at = record.find(name);
  return at != record.end() && !at->is_null();
}

/// The fields besides the messages that a chat template can use; data::read_chat_fields reads them.
const std::vector<std::string> template_fields = {"tools", "functions", "documents", "chat_template_kwargs"};

/// The token ids in the field `name`.
std::vector<int64_t> token_ids(const json& list, const std::string& name) {
  std::vector<int64_t> ids;
  for (const json& item : list) {
    const auto id = as_integer(item);
    if (!id || *id < 0)
      throw data::InputError(name + "[" + std::to_string(ids.size()) + "]: expected a token's id, found " +
                             data::excerpt(item, 60));
    ids.push_back(*id);
  }
  if (ids.empty())
    throw data::InputError(name + ": expected a text or the ids of tokens, found an empty list");
  return ids;
}

/// Reads a "prompt" in the forms of OpenAI's completions: a text, a list of token ids, a list of texts, or a
/// list of lists of token ids.
void read_prompt(const json& value, BatchLine& line, bool may_be_empty) {
  if (!value.is_array()) {
    line.prompt = text_field(value, "prompt", may_be_empty);
  } else if (value.size() == 1 && value[0].is_string()) {
    line.prompt = text_field(value[0], "prompt[0]", may_be_empty);
  } else if (value.empty() || value[0].is_number()) {
    line.prompts = {{"", token_ids(value, "prompt")}};
  } else {
    for (const json& item : value) {
      const std::string name = "prompt[" + std::to_string(line.prompts.size()) + "]";
      if (item.type() != value[0].type() || !(item.is_string() || item.is_array()))
        throw data::InputError(name +
                               ": expected texts or lists of token ids (messages stand in \"messages\"), "
                               "found " +
                               data::excerpt(item, 60));
      line.prompts.push_back(item.is_string() ? ListedPrompt{text_field(item, name, false), {}}
                                              : ListedPrompt{"", token_ids(item, name)});
    }
  }
}

/// Reads the rest of an OpenAI batch request into `line`, whose `record` is already parsed.  `text`: the
/// line.
void read_openai(BatchLine& line, std::string_view text, const SamplingParams& defaults) {
  const json& record = line.record;
  const json method = record.value("method", json());
  if (!method.is_null() && method != "POST")
    throw data::InputError("method: expected \"POST\", found " + data::excerpt(method, 60));
  const json url = record.value("url", json());
  if (url == "/v1/completions") {
    line.shape = LineShape::completion;
  } else if (url != "/v1/chat/completions") {
    throw data::InputError("url: expected \"/v1/chat/completions\" or \"/v1/completions\", found " +
                           data::excerpt(url, 60));
  }
  const json body = record.value("body", json());
  for (const auto& [key, value] : record.items())
    if (is_sampling_param(key)) throw data::InputError(key + ": expected within \"body\", found beside it");
  if (!body.is_object()) {
    throw data::InputError("body: expected an object, found " + std::string(body.type_name()));
  }
  const std::string source = line.shape == LineShape::chat ? "messages" : "prompt";
  if (!body.contains(source)) throw data::InputError("body: expected \"" + source + "\", found none");
  const bool chat = line.shape == LineShape::chat;
  // Tools are refused: an answer that calls one would have to be written in OpenAI's form, which is not
  // supported.
  line.sampling = read_sampling_params(
      body, defaults, true,
      chat ? std::vector<std::string>{source, "documents", "chat_template_kwargs"} : std::vector{source});
  if (chat) {
    data::OrderedJsonLine ordered(text, "/body");
    line.messages = data::read_messages(body["messages"], "messages", ordered);
    data::read_chat_fields(body, ordered, line.messages, line.arguments);
  } else {
    read_prompt(body["prompt"], line, false);
  }
}

/// Reads the rest of a line that is no OpenAI batch request.
void read_own_form(BatchLine& line, std::string_view text, const SamplingParams& defaults, bool tokenize) {
  const json& record = line.record;
  std::vector<std::string> sources;
  for (const char* name : {"prompt", "messages", "turns"}) {
    if (has_value(record, name)) sources.push_back(name);
  }
  if (sources.empty() && tokenize && has_value(record, "text")) sources.push_back("text");
  if (sources.size() != 1) {
    const std::string expected =
        tokenize ? "expected an object with \"prompt\", \"messages\" or \"text\", or an OpenAI batch request"
                 : expected_line;
    throw data::InputError(expected + ", found " +
                           (sources.empty() ? "none of them" : sources[0] + " and " + sources[1]));
  }
  const json& source = record[sources[0]];
  data::OrderedJsonLine ordered(text);
  if (sources[0] == "messages") {
    line.shape = LineShape::messages;
    line.messages = data::read_messages(source, "messages", ordered);
  } else if (sources[0] == "turns") {
    if (tokenize)
      throw data::InputError("turns: expected a line that is one text, found a conversation to be answered");
    line.shape = LineShape::turns;
    line.turns = read_turns(source);
    line.messages = {{"user", line.turns[0]}};
  } else {
    line.shape = sources[0] == "text" ? LineShape::text : LineShape::prompt;
    if (sources[0] == "prompt")
      read_prompt(source, line, tokenize);
    else
      line.prompt = text_field(source, sources[0], tokenize);
  }
  if (line.conversation()) {
    data::refuse_question_fields(record, sources[0]);
    data::read_chat_fields(record, ordered, line.messages, line.arguments);
  } else if (line.shape == LineShape::prompt) {
    data::refuse_chat_fields(record, "prompt");
  }
  line.sampling = tokenize ? defaults : read_sampling_params(record, defaults, false, template_fields);
}

/// Fills `line` from line.record.  `text`: the line.
void read_line(BatchLine& line, std::string_view text, const SamplingParams& defaults, bool tokenize) {
  const json& record = line.record;
  if (!record.is_object())
    throw data::InputError(std::string(expected_line) + ", found " + data::excerpt(record, 60));
  const bool openai = has_value(record, "custom_id") || has_value(record, "body");
  if (openai) line.shape = LineShape::chat;
  read_id(record, openai ? "custom_id" : "id", line.id);
  line.category = data::category_of(record);
  if (openai) {
    read_openai(line, text, defaults);
  } else {
    read_own_form(line, text, defaults, tokenize);
  }
}

const char* id_name(bool openai) {
  return openai ? "custom_id" : "id";
}

/// The id as JSON text.  Numbers are as the line writes them: 1.0 and 1 are different ids.
std::string id_as_json(const json& id, bool openai, const VerbatimFields& verbatim) {
  const auto at = verbatim.find(id_name(openai));
  return at == verbatim.end() ? id.dump() : at->second;
}

/// The id as a text; without one the line number.
std::string id_text(const BatchLine& line) {
  if (line.id.is_null()) return std::to_string(line.number);
  return line.id.is_string() && !line.verbatim.contains(id_name(line.openai()))
             ? line.id.get<std::string>()
             : id_as_json(line.id, line.openai(), line.verbatim);
}

}  // namespace

VerbatimFields verbatim_id(const BatchLine& line) {
  const auto id = line.verbatim.find(id_name(line.openai()));
  return id == line.verbatim.end() ? VerbatimFields() : VerbatimFields{*id};
}

RandomKey BatchLine::random_key(size_t prompt_index) const {
  if (sampling.has_own_seed) return {sampling.seed, 0};
  const uint64_t key = data::fnv1a(id_text(*this));
  return {sampling.seed,
          prompt_index == 0 ? key : data::fnv1a(" prompt " + std::to_string(prompt_index), key)};
}

std::string record_to_text(const json& record, const VerbatimFields& verbatim) {
  if (verbatim.empty()) return data::to_json_line(record);
  std::string text;
  for (const auto& [name, value] : record.items()) {
    const auto as_written = verbatim.find(name);
    text += text.empty() ? "{" : ",";
    text += data::to_json_line(name) + ":";
    text += as_written != verbatim.end() ? as_written->second : data::to_json_line(value);
  }
  return text + "}";
}

json BadLine::record() const {
  if (openai) {
    return {{"id", "batch_req_" + std::to_string(number)},
            {"custom_id", id},
            {"response", nullptr},
            {"error", {{"code", "invalid_request"}, {"message", message}, {"line", number}}}};
  }
  return {{"line", number}, {"id", id}, {"error", {{"message", message}}}};
}

namespace {

/// Whether a message has a field besides its content that is an object or a list, such as tool calls.  A chat
/// template prints the keys of such fields in their order.
bool has_structure(const json& messages) {
  if (!messages.is_array()) return false;
  for (const json& message : messages) {
    if (!message.is_object()) continue;
    for (const auto& [name, value] : message.items())
      if (value.is_structured() && name != "content") return true;
  }
  return false;
}

/// Adds the fields that a chat template prints to line.verbatim, so that the output keeps the order of their
/// keys. A model that is trained on the output then reads the same prompt as this one.
void keep_order_of_keys(BatchLine& line, std::string_view text) {
  data::OrderedJsonLine ordered(text);
  for (const char* name : {"messages", "tools", "functions", "documents", "chat_template_kwargs"}) {
    const auto field = line.record.find(name);
    if (field == line.record.end() || !field->is_structured() || line.verbatim.contains(name)) continue;
    if (std::string_view(name) == "messages" && !has_structure(*field)) continue;
    line.verbatim[name] = ordered.at("/" + std::string(name)).dump();
  }
}

}  // namespace

std::variant<BatchLine, BadLine> parse_batch_line(int64_t number, std::string_view text,
                                                  const SamplingParams& defaults, bool tokenize) {
  BatchLine line;
  line.number = number;
  try {
    const data::LosslessJson lossless(text);
    line.record = data::parse_json(lossless.parseable(), "the line");
    line.verbatim = lossless.verbatim_members();
    read_line(line, lossless.parseable(), defaults, tokenize);
    if (!line.openai()) keep_order_of_keys(line, lossless.parseable());
    return line;
  } catch (const data::InputError& error) {
    return BadLine{number, line.id, line.openai(), error.what(), verbatim_id(line)};
  }
}

std::variant<BatchLine, BadLine> BatchParser::parse(int64_t number, std::string_view text) {
  auto parsed = parse_batch_line(number, text, defaults_, tokenize_);
  // For an id that an earlier line has already used.
  BadLine repeated{number, nullptr, false, ""};
  if (const BatchLine* line = std::get_if<BatchLine>(&parsed)) {
    repeated = {number, line->id, line->openai(), "", verbatim_id(*line)};
  } else {
    repeated = std::get<BadLine>(parsed);
  }
  const std::string id = id_as_json(repeated.id, repeated.openai, repeated.verbatim);
  if (repeated.id.is_null() || seen_ids_.insert(id).second) return parsed;
  repeated.message =
      "id " + id.substr(0, 60) + " stands on an earlier line already; every id must be used once";
  return repeated;
}

void refuse_json_array(const std::string& file) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored) || !data::is_json_array(data::MappedFile(file).view()))
    return;
  throw data::InputError(file +
                         ": expected one JSON object a line, found one JSON array; write each of its " +
                         "elements on a line of its own (jq -c '.[]' does)");
}

BadLine overlong_line(int64_t number, size_t limit) {
  return {number, nullptr, false,
          "line " + std::to_string(number) + ": expected at most " + std::to_string(limit) +
              " bytes, found a longer line"};
}

std::vector<BatchLine> read_batch_file(const std::string& file, const SamplingParams& defaults) {
  LineReader reader(file);
  refuse_json_array(file);
  BatchParser parser(defaults);
  std::vector<BatchLine> lines;
  for (std::string text; reader.next(text);) {
    if (is_blank(text)) continue;
    auto parsed = reader.too_long() ? overlong_line(reader.number(), reader.limit())
                                    : parser.parse(reader.number(), text);
    if (const BadLine* bad = std::get_if<BadLine>(&parsed)) {
      throw data::InputError(file + ", line " + std::to_string(bad->number) + ": " + bad->message);
    }
    lines.push_back(std::move(std::get<BatchLine>(parsed)));
  }
  if (lines.empty()) throw data::InputError(file + ": expected at least one request, found none");
  return lines;
}

}  // namespace clover::infer
