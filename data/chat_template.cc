#include "data/chat_template.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "data/error.h"
#include "data/files.h"
#include "data/hash.h"
#include "data/tokenizer_settings.h"
#include "data/utf8.h"

namespace clover::data {
namespace {

using nlohmann::json;

constexpr std::string_view vicuna_system =
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, "
    "detailed, "
    "and polite answers to the user's questions.";
constexpr std::string_view llama31_preamble =
    "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";

std::string joined_names() {
  std::string all;
  for (const std::string& name : ChatTemplate::known_names()) all += (all.empty() ? "" : ", ") + name;
  return all;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Python's str.isspace for one character: what Jinja's trim and strip() drop.
bool is_python_space(char32_t code_point) {
  const auto c = static_cast<UChar32>(code_point);
  const auto direction = u_charDirection(c);
  return u_charType(c) == U_SPACE_SEPARATOR || direction == U_WHITE_SPACE_NEUTRAL ||
         direction == U_BLOCK_SEPARATOR || direction == U_SEGMENT_SEPARATOR;
}

std::string_view trimmed(std::string_view text) {
  size_t begin = text.size();
  size_t end = 0;
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = decode_utf8(text, i);
    if (!step.valid || !is_python_space(step.code_point)) {
      begin = std::min(begin, i);
      end = i + step.length;
    }
    i += step.length;
  }
  return begin < end ? text.substr(begin, end - begin) : std::string_view();
}

// The Jinja text of the folder's template; nothing when it has none.
std::optional<std::string> read_template(const std::filesystem::path& folder, const json& config) {
  if (std::filesystem::exists(folder / "chat_template.jinja"))
    return read_file(folder / "chat_template.jinja");
  const json entry = config.value("chat_template", json());
  if (entry.is_string()) return entry.get<std::string>();
  if (!entry.is_array()) return std::nullopt;
  for (const json& named : entry) {
    if (named.is_object() && named.value("name", json()) == "default" && named.contains("template") &&
        named["template"].is_string()) {
      return named["template"].get<std::string>();
    }
  }
  return std::nullopt;
}

// Formats are told by the marks they write.  A template that does more than the format (thinking, dates) is
// not one of it.
std::optional<std::string> recognise(const std::string& jinja) {
  if (contains(jinja, "<think>") || contains(jinja, "reasoning_content")) return std::nullopt;
  if (contains(jinja, "<|im_start|>") && contains(jinja, "<|im_end|>") && !contains(jinja, "<|im_sep|>") &&
      !contains(jinja, "strftime_now")) {
    return "chatml";
  }
  if (contains(jinja, "<|start_header_id|>") && contains(jinja, "<|eot_id|>")) return "llama-3";
  if (contains(jinja, "[INST]") && contains(jinja, "<<SYS>>")) return "llama-2";
  if (contains(jinja, "USER:") && contains(jinja, "ASSISTANT:") && !contains(jinja, "\\nASSISTANT") &&
      !contains(jinja, "\\nUSER")) {
    return "vicuna";
  }
  return std::nullopt;
}

// The text of a Jinja string literal from `position` (inside it) to `terminator`; nothing when the literal
// ends before.
std::optional<std::string> literal_until(std::string_view jinja, size_t position,
                                         std::string_view terminator) {
  std::string text;
  while (position < jinja.size() && !jinja.substr(position).starts_with(terminator)) {
    const char c = jinja[position++];
    if (c == '\'' || c == '"') return std::nullopt;
    if (c != '\\' || position == jinja.size()) {
      text += c;
      continue;
    }
    const char escaped = jinja[position++];
    text += escaped == 'n' ? '\n' : escaped == 't' ? '\t' : escaped == 'r' ? '\r' : escaped;
  }
  return position < jinja.size() ? std::optional(text) : std::nullopt;
}

// A system message that the template writes by itself: '<|im_start|>system\n...<|im_end|>' in one literal.
std::string default_chatml_system(std::string_view jinja) {
  constexpr std::string_view header = "<|im_start|>system";
  for (size_t at = jinja.find(header); at != std::string_view::npos; at = jinja.find(header, at + 1)) {
    const std::optional<std::string> message = literal_until(jinja, at + header.size(), "<|im_end|>");
    if (message && message->size() > 1 && message->front() == '\n') return message->substr(1);
  }
  return {};
}

void check_roles(const std::vector<Message>& messages, const std::string& name) {
  if (messages.empty()) throw InputError("messages: expected at least one message, found none");
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    if (role == "system" || role == "user" || role == "assistant") continue;
    throw InputError("messages[" + std::to_string(i) +
                     "].role: expected system, user or assistant for the template " + name + ", found \"" +
                     role.substr(0, 100) + "\"");
  }
}

// Index of the first message of the dialogue; behind it user and assistant must alternate, the user first.
size_t check_alternation(const std::vector<Message>& messages, const std::string& name) {
  const size_t first = messages.front().role == "system" ? 1 : 0;
  for (size_t i = first; i < messages.size(); ++i) {
    const std::string expected = (i - first) % 2 == 0 ? "user" : "assistant";
    if (messages[i].role == expected) continue;
    throw InputError("messages[" + std::to_string(i) + "].role: expected \"" + expected +
                     "\", since user and assistant alternate in the template " + name + ", found \"" +
                     messages[i].role + "\"");
  }
  return first;
}

void append_answer(RenderedChat& chat, std::string_view answer) {
  const size_t begin = chat.text.size();
  chat.text += answer;
  chat.assistant_spans.emplace_back(begin, chat.text.size());
}

}  // namespace

std::vector<std::string> ChatTemplate::known_names() {
  return {"chatml", "llama-2", "llama-3", "vicuna", "none"};
}

ChatTemplate ChatTemplate::load(const std::filesystem::path& folder, const std::string& name) {
  const std::vector<std::string> known = known_names();
  if (!name.empty() && std::find(known.begin(), known.end(), name) == known.end()) {
    throw InputError("template: expected one of " + joined_names() + ", found \"" + name + "\"");
  }
  const std::filesystem::path config_file = folder / "tokenizer_config.json";
  const json config = std::filesystem::exists(config_file) ? read_json(config_file) : json::object();
  if (!config.is_object()) throw InputError(config_file.string() + ": expected a JSON object");
  const std::optional<std::string> jinja = read_template(folder, config);
  const std::optional<std::string> recognised = jinja ? recognise(*jinja) : std::nullopt;
  if (name.empty() && !recognised) {
    throw InputError(folder.string() + ": expected a chat template of one of the formats " + joined_names() +
                     ", found " + (jinja ? "another one" : "none") + "; name the format to use");
  }
  ChatTemplate format;
  format.name_ = name.empty() ? *recognised : name;
  const bool llama3 = format.name_ == "llama-3";
  format.bos_ =
      read_token_text(config.value("bos_token", json())).value_or(llama3 ? "<|begin_of_text|>" : "<s>");
  format.eos_ = read_token_text(config.value("eos_token", json())).value_or("</s>");
  format.trims_ = llama3 || format.name_ == "llama-2";
  format.writes_bos_ = format.trims_;
  format.text_has_bos_ = format.name_ != "vicuna" && format.name_ != "none";
  if (format.name_ == "vicuna") format.default_system_ = vicuna_system;
  if (recognised == format.name_) format.read_details(*jinja);
  return format;
}

void ChatTemplate::read_details(const std::string& jinja) {
  if (name_ == "chatml") {
    default_system_ = default_chatml_system(jinja);
    writes_bos_ = contains(jinja, "bos_token");
    trims_ = contains(jinja, "| trim") || contains(jinja, "|trim") || contains(jinja, ".strip()");
  } else if (name_ == "llama-3") {
    // Newer templates ask for today's date; the date they fall back to keeps a job repeatable.
    if (contains(jinja, "Cutting Knowledge Date")) preamble_ = llama31_preamble;
  } else if (name_ == "vicuna") {
    if (!contains(jinja, "A chat between a curious user")) default_system_.clear();
    writes_bos_ = text_has_bos_ = contains(jinja, "bos_token");
  }
}

RenderedChat ChatTemplate::render(const std::vector<Message>& messages, bool generation_prompt) const {
  check_roles(messages, name_);
  RenderedChat chat;
  if (writes_bos_ && name_ != "llama-2") chat.text = bos_;
  if (name_ == "chatml") {
    render_chatml(messages, generation_prompt, chat);
  } else if (name_ == "llama-2") {
    render_llama2(messages, chat);
  } else if (name_ == "llama-3") {
    render_llama3(messages, generation_prompt, chat);
  } else if (name_ == "vicuna") {
    render_vicuna(messages, generation_prompt, chat);
  } else {
    for (const Message& message : messages) {
      message.role == "assistant" ? append_answer(chat, message.content) : void(chat.text += message.content);
    }
  }
  return chat;
}

void ChatTemplate::render_chatml(const std::vector<Message>& messages, bool generation_prompt,
                                 RenderedChat& chat) const {
  if (!default_system_.empty() && messages.front().role != "system") {
    chat.text += "<|im_start|>system\n" + default_system_ + "<|im_end|>\n";
  }
  for (const Message& message : messages) {
    const std::string_view content = trims_ ? trimmed(message.content) : std::string_view(message.content);
    chat.text += "<|im_start|>" + message.role + "\n";
    const std::string body = std::string(content) + "<|im_end|>";
    message.role == "assistant" ? append_answer(chat, body) : void(chat.text += body);
    chat.text += "\n";
  }
  if (generation_prompt) chat.text += "<|im_start|>assistant\n";
}

void ChatTemplate::render_llama2(const std::vector<Message>& messages, RenderedChat& chat) const {
  const size_t first = check_alternation(messages, name_);
  for (size_t i = first; i < messages.size(); ++i) {
    std::string content = messages[i].content;
    if (i == 1 && first == 1) content = "<<SYS>>\n" + messages[0].content + "\n<</SYS>>\n\n" + content;
    const std::string kept(trimmed(content));
    if (messages[i].role == "user") {
      chat.text += bos_ + "[INST] " + kept + " [/INST]";
    } else {
      append_answer(chat, " " + kept + " " + eos_);
    }
  }
}

void ChatTemplate::render_llama3(const std::vector<Message>& messages, bool generation_prompt,
                                 RenderedChat& chat) const {
  const auto begin = [&](const std::string& role) {
    chat.text += "<|start_header_id|>" + role + "<|end_header_id|>\n\n";
  };
  if (preamble_ && messages.front().role != "system") {
    begin("system");
    chat.text += *preamble_ + "<|eot_id|>";
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    begin(messages[i].role);
    if (i == 0 && preamble_ && messages[i].role == "system") chat.text += *preamble_;
    const std::string body = std::string(trimmed(messages[i].content)) + "<|eot_id|>";
    messages[i].role == "assistant" ? append_answer(chat, body) : void(chat.text += body);
  }
  if (generation_prompt) begin("assistant");
}

void ChatTemplate::render_vicuna(const std::vector<Message>& messages, bool generation_prompt,
                                 RenderedChat& chat) const {
  const size_t first = check_alternation(messages, name_);
  const std::string& system = first == 1 ? messages[0].content : default_system_;
  if (!system.empty()) chat.text += system + " ";
  for (size_t i = first; i < messages.size(); ++i) {
    if (messages[i].role == "user") {
      chat.text += "USER: " + messages[i].content + " ";
    } else {
      chat.text += "ASSISTANT:";
      append_answer(chat, " " + messages[i].content + eos_);
    }
  }
  if (generation_prompt) chat.text += "ASSISTANT:";
}

std::string ChatTemplate::hash() const {
  uint64_t hash = fnv_start;
  for (const std::string& part :
       {name_, default_system_, preamble_.value_or(""), writes_bos_ ? bos_ : "",
        name_ == "llama-2" || name_ == "vicuna" ? eos_ : "", std::string(trims_ ? "t" : "")}) {
    hash = fnv1a(part + '\0', hash);
  }
  return hex(hash);
}

}  // namespace clover::data
