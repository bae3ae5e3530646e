#include "infer/requests/batch_input.h"

#include <filesystem>

#include "data/chat/beside_chat.h"
#include "data/chat/messages.h"
#include "data/files/error.h"
#include "data/files/files.h"
#include "data/files/hash.h"
#include "data/files/json_fields.h"
#include "data/files/mapped_file.h"
#include "data/files/written_json.h"
#include "data/training/record_texts.h"
#include "infer/requests/line_reader.h"

namespace clover::infer {
namespace {

using nlohmann::json;

constexpr const char* shapes_of_lines =
    "expected an object with \"prompt\", \"messages\" or \"turns\", or an OpenAI batch request with \"body\"";

std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  return text.size() > 60 ? text.substr(0, 60) + "..." : text;
}

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
    throw data::InputError("turns: expected a list of texts that is not empty, found " + shown(turns));
  }
  std::vector<std::string> read;
  for (size_t i = 0; i < turns.size(); ++i) {
    read.push_back(text_field(turns[i], "turns[" + std::to_string(i) + "]", false));
  }
  return read;
}

void read_id(const json& record, const char* name, json& id) {
  const auto at = record.find(name);
  if (at == record.end() || at->is_null()) return;
  if (!at->is_string() && !at->is_number())
    throw data::InputError(std::string(name) + ": expected a string or a number, found " + shown(*at));
  id = *at;
}

/// Whether a column holds something: tables of mixed lines fill them all, with null.
bool has(const json& record, const char* name) {
  const auto at = record.find(name);
  return at != record.end() && !at->is_null();
}

/// What is given to the template beside the messages of a request, each read by data::put_beside.
const std::vector<std::string> template_fields = {"tools", "functions", "documents", "chat_template_kwargs"};

std::vector<int64_t> token_ids(const json& list, const std::string& name) {
  std::vector<int64_t> ids;
  for (const json& item : list) {
    const auto id = as_integer(item);
    if (!id || *id < 0)
      throw data::InputError(name + "[" + std::to_string(ids.size()) + "]: expected a token's id, found " +
                             shown(item));
    ids.push_back(*id);
  }
  if (ids.empty())
    throw data::InputError(name + ": expected a text or the ids of tokens, found an empty list");
  return ids;
}

/// A text, ids of tokens, or a list of texts or of lists of ids, as OpenAI's completions take it.
void read_prompt(const json& value, BatchLine& line, bool may_be_empty) {
  if (!value.is_array()) {
    line.prompt = text_field(value, "prompt", may_be_empty);
  } else if (value.size() == 1 && value[0].is_string()) {
    line.prompt = text_field(value[0], "prompt[0]", may_be_empty);
  } else if (value.empty() || value[0].is_number()) {
    line.prompts = {{"", token_ids(value, "prompt")}};
  } else {
    for (const json& one : value) {
      const std::string name = "prompt[" + std::to_string(line.prompts.size()) + "]";
      if (one.type() != value[0].type() || !(one.is_string() || one.is_array()))
        throw data::InputError(name +
                               ": expected texts or lists of token ids (messages stand in \"messages\"), "
                               "found " +
                               shown(one));
      line.prompts.push_back(one.is_string() ? ListedPrompt{text_field(one, name, false), {}}
                                             : ListedPrompt{"", token_ids(one, name)});
    }
  }
}

void read_openai(BatchLine& line, std::string_view text, const SamplingFields& defaults) {
  const json& record = line.record;
  const json method = record.value("method", json());
  if (!method.is_null() && method != "POST")
    throw data::InputError("method: expected \"POST\", found " + shown(method));
  const json url = record.value("url", json());
  if (url == "/v1/completions") {
    line.shape = LineShape::completion;
  } else if (url != "/v1/chat/completions") {
    throw data::InputError("url: expected \"/v1/chat/completions\" or \"/v1/completions\", found " +
                           shown(url));
  }
  const json body = record.value("body", json());
  for (const auto& [key, value] : record.items())
    if (is_sampling_field(key)) throw data::InputError(key + ": expected within \"body\", found beside it");
  if (!body.is_object()) {
    throw data::InputError("body: expected an object, found " + std::string(body.type_name()));
  }
  const std::string source = line.shape == LineShape::chat ? "messages" : "prompt";
  if (!body.contains(source)) throw data::InputError("body: expected \"" + source + "\", found none");
  const bool chat = line.shape == LineShape::chat;
  // An answer that calls a tool would have to be told in OpenAI's form, so tools stay refused here.
  line.sampling = read_sampling_fields(
      body, defaults, true,
      chat ? std::vector<std::string>{source, "documents", "chat_template_kwargs"} : std::vector{source});
  if (chat) {
    data::OrderedLine ordered(text, "/body");
    line.messages = data::read_messages(body["messages"], "messages", ordered);
    data::put_beside(body, ordered, line.messages, line.arguments);
  } else {
    read_prompt(body["prompt"], line, false);
  }
}

void read_short_form(BatchLine& line, std::string_view text, const SamplingFields& defaults, bool tokenize) {
  const json& record = line.record;
  std::vector<std::string> sources;
  for (const char* name : {"prompt", "messages", "turns"}) {
    if (has(record, name)) sources.push_back(name);
  }
  if (sources.empty() && tokenize && has(record, "text")) sources.push_back("text");
  if (sources.size() != 1) {
    const std::string expected =
        tokenize ? "expected an object with \"prompt\", \"messages\" or \"text\", or an OpenAI batch request"
                 : shapes_of_lines;
    throw data::InputError(expected + ", found " +
                           (sources.empty() ? "none of them" : sources[0] + " and " + sources[1]));
  }
  const json& source = record[sources[0]];
  data::OrderedLine ordered(text);
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
    data::refuse_beside_messages(record, sources[0]);
    data::put_beside(record, ordered, line.messages, line.arguments);
  } else if (line.shape == LineShape::prompt) {
    data::refuse_beside_text(record, "prompt");
  }
  line.sampling = tokenize ? defaults : read_sampling_fields(record, defaults, false, template_fields);
}

void read_line(BatchLine& line, std::string_view text, const SamplingFields& defaults, bool tokenize) {
  const json& record = line.record;
  if (!record.is_object()) throw data::InputError(std::string(shapes_of_lines) + ", found " + shown(record));
  const bool openai = has(record, "custom_id") || has(record, "body");
  if (openai) line.shape = LineShape::chat;
  read_id(record, openai ? "custom_id" : "id", line.id);
  line.category = data::category_of(record);
  if (openai) {
    read_openai(line, text, defaults);
  } else {
    read_short_form(line, text, defaults, tokenize);
  }
}

const char* id_name(bool openai) {
  return openai ? "custom_id" : "id";
}

/// As JSON: an id that is a number is what is written, 1.0 not 1.
std::string written_id(const json& id, bool openai, const AsWritten& written) {
  const auto as_written = written.find(id_name(openai));
  return as_written == written.end() ? id.dump() : as_written->second;
}

std::string id_text(const BatchLine& line) {
  if (line.id.is_null()) return std::to_string(line.number);
  return line.id.is_string() && !line.written.contains(id_name(line.openai()))
             ? line.id.get<std::string>()
             : written_id(line.id, line.openai(), line.written);
}

}  // namespace

AsWritten id_as_written(const BatchLine& line) {
  const auto id = line.written.find(id_name(line.openai()));
  return id == line.written.end() ? AsWritten() : AsWritten{*id};
}

RandomKey BatchLine::random_key(size_t choice) const {
  if (sampling.own_seed) return {sampling.seed, 0};
  const uint64_t key = data::fnv1a(id_text(*this));
  return {sampling.seed, choice == 0 ? key : data::fnv1a(" prompt " + std::to_string(choice), key)};
}

std::string text_of_record(const json& record, const AsWritten& written) {
  if (written.empty()) return record.dump(-1, ' ', false, json::error_handler_t::replace);
  std::string text;
  for (const auto& [name, value] : record.items()) {
    const auto as_written = written.find(name);
    text += text.empty() ? "{" : ",";
    text += json(name).dump(-1, ' ', false, json::error_handler_t::replace) + ":";
    text += as_written != written.end() ? as_written->second
                                        : value.dump(-1, ' ', false, json::error_handler_t::replace);
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

/// Whether a message holds more than texts: calls of tools, in whose order of keys templates print them.
bool has_structure(const json& messages) {
  if (!messages.is_array()) return false;
  for (const json& message : messages) {
    if (!message.is_object()) continue;
    for (const auto& [name, value] : message.items())
      if (value.is_structured() && name != "content") return true;
  }
  return false;
}

/// What templates print goes to the output in its own order of keys: whoever learns from an answer reads the
/// prompt that the model read.
void keep_order(BatchLine& line, std::string_view text) {
  data::OrderedLine ordered(text);
  for (const char* name : {"messages", "tools", "functions", "documents", "chat_template_kwargs"}) {
    const auto field = line.record.find(name);
    if (field == line.record.end() || !field->is_structured() || line.written.contains(name)) continue;
    if (std::string_view(name) == "messages" && !has_structure(*field)) continue;
    line.written[name] = ordered.at("/" + std::string(name)).dump();
  }
}

}  // namespace

std::variant<BatchLine, BadLine> parse_batch_line(int64_t number, std::string_view text,
                                                  const SamplingFields& defaults, bool tokenize) {
  BatchLine line;
  line.number = number;
  try {
    const data::WrittenJson written(text);
    line.record = data::parse_json(written.readable(), "the line");
    line.written = written.members_as_written();
    read_line(line, written.readable(), defaults, tokenize);
    if (!line.openai()) keep_order(line, written.readable());
    return line;
  } catch (const data::InputError& error) {
    return BadLine{number, line.id, line.openai(), error.what(), id_as_written(line)};
  }
}

std::variant<BatchLine, BadLine> BatchParser::parse(int64_t number, std::string_view text) {
  auto parsed = parse_batch_line(number, text, defaults_, tokenize_);
  BadLine repeated{number, nullptr, false, ""};
  if (const BatchLine* line = std::get_if<BatchLine>(&parsed)) {
    repeated = {number, line->id, line->openai(), "", id_as_written(*line)};
  } else {
    repeated = std::get<BadLine>(parsed);
  }
  const std::string id = written_id(repeated.id, repeated.openai, repeated.written);
  if (repeated.id.is_null() || seen_.insert(id).second) return parsed;
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

std::vector<BatchLine> read_batch_file(const std::string& file, const SamplingFields& defaults) {
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
