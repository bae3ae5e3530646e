#include "data/chat/chat_template.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "data/chat/jinja/values/values.h"
#include "data/chat/jinja_chat.h"
#include "data/chat/proved_templates.h"
#include "data/chat/template_source.h"
#include "data/files/error.h"
#include "data/files/hash.h"
#include "data/tokenizer/files/tokenizer_settings.h"

namespace clover::data {
namespace {

using nlohmann::json;

constexpr std::string_view vicuna_system =
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, "
    "detailed, "
    "and polite answers to the user's questions.";
constexpr std::string_view llama31_preamble =
    "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// The special tokens that enter the hash of a chat template: those that the template names, and others that
/// tokenizer_config.json states.  Token stores and unfinished batch jobs record the hash, so neither the
/// choice nor the order of the tokens may change.
JinjaTemplate::json hashed_special_tokens(const TemplateSource& source, std::string_view jinja) {
  auto remaining = source.special_tokens;
  JinjaTemplate::json tokens = JinjaTemplate::json::object();
  for (const char* role :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    if (contains(jinja, role)) {
      if (remaining.contains(role)) tokens[role] = remaining[role];
    } else if (const auto text = read_token_text(source.tokenizer_config.value(role, json()))) {
      tokens[role] = *text;
    }
    remaining.erase(role);
  }
  for (const auto& [role, text] : remaining.items())
    if (contains(jinja, role)) tokens[role] = text;
  return tokens;
}

// The built-in format that a template looks like, if any.  Where that format is used,
// `read_format_details` reads what differs between templates of the format.
std::optional<std::string> recognise_format(const std::string& jinja) {
  if (contains(jinja, "<|im_start|>") && contains(jinja, "enable_thinking")) return "qwen3";
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

// The unescaped text of a Jinja string literal, from `position` inside the literal up to `terminator`;
// nothing when the literal ends before `terminator`.
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

// The template's default system message: a literal '<|im_start|>system\n...<|im_end|>'.
std::string default_chatml_system(std::string_view jinja) {
  constexpr std::string_view header = "<|im_start|>system";
  for (size_t at = jinja.find(header); at != std::string_view::npos; at = jinja.find(header, at + 1)) {
    const std::optional<std::string> message = literal_until(jinja, at + header.size(), "<|im_end|>");
    if (message && message->size() > 1 && message->front() == '\n') return message->substr(1);
  }
  return {};
}

// Whether a built-in format writes the same text as the template.  If the template names bos_token, the
// folder must have one.
bool is_equivalent_format(const std::string& jinja, const json& config) {
  return is_verified_template(jinja) &&
         (!contains(jinja, "bos_token") || read_token_text(config.value("bos_token", json())).has_value());
}

}  // namespace

std::vector<std::string> ChatTemplate::known_names() {
  return {"chatml", "qwen3", "qwen3-no-think", "llama-2", "llama-3", "vicuna", "none", "jinja"};
}

std::string ChatTemplate::joined_names() {
  std::string list;
  for (const std::string& name : known_names()) list += (list.empty() ? "" : ", ") + name;
  return list;
}

ChatTemplate ChatTemplate::make_format(const std::string& name, const json& config) {
  ChatTemplate format;
  format.name_ = name;
  const bool llama3 = name == "llama-3";
  format.bos_ =
      read_token_text(config.value("bos_token", json())).value_or(llama3 ? "<|begin_of_text|>" : "<s>");
  format.eos_ = read_token_text(config.value("eos_token", json())).value_or("</s>");
  format.trims_ = llama3 || name == "llama-2";
  format.writes_bos_ = format.trims_;
  format.text_has_bos_ = name != "vicuna" && name != "none";
  if (name == "vicuna") format.default_system_ = vicuna_system;
  return format;
}

ChatTemplate ChatTemplate::load(const std::filesystem::path& folder, const std::string& name) {
  const std::vector<std::string> names = known_names();
  if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) {
    throw InputError("template: expected one of " + joined_names() + ", found \"" + name + "\"");
  }
  const TemplateSource source = read_template_source(folder);
  const std::optional<std::string>& jinja = source.jinja;
  json config = source.tokenizer_config;
  for (const auto& [role, text] : source.special_tokens.items()) config[role] = text;
  const std::string recognised_format = jinja ? recognise_format(*jinja).value_or("") : "";
  const std::string chosen_name = !name.empty()                                   ? name
                                  : jinja && is_equivalent_format(*jinja, config) ? recognised_format
                                                                                  : "jinja";
  if (chosen_name != "jinja") {
    ChatTemplate format = make_format(chosen_name, config);
    if (chosen_name == recognised_format) format.read_format_details(*jinja);
    // The folder's template renders what the format cannot express: tools, other roles.
    if (name.empty())
      format.folder_template_ = std::make_shared<const JinjaChat>(*jinja, source.special_tokens, "");
    return format;
  }
  if (!jinja) {
    throw InputError(folder.string() +
                     ": expected a chat template, found none; name the format to use, one of " +
                     joined_names());
  }
  try {
    ChatTemplate from_jinja = make_format("jinja", config);
    from_jinja.jinja_ = std::make_shared<const JinjaChat>(
        *jinja, source.special_tokens, *jinja + hashed_special_tokens(source, *jinja).dump());
    from_jinja.try_sample_conversations();
    return from_jinja;
  } catch (const InputError& error) {
    throw InputError(folder.string() + ": the chat template cannot be read (" + error.what() +
                     "); name the format to use, one of " + joined_names());
  }
}

void ChatTemplate::try_sample_conversations() const {
  const Message system{"system", "s"}, user{"user", " u\n"},
      assistant{"assistant", "<think>\nt\n</think>\n\na"};
  for (const auto& messages : {std::vector{user}, {system, user}, {system, user, assistant, user}}) {
    try {
      text(messages, true);
    } catch (const jinja::Unsupported&) {
      throw;
    } catch (const InputError&) {  // a template may refuse, say, a system message
    }
  }
}

void ChatTemplate::read_format_details(const std::string& jinja) {
  if (name_ == "chatml") {
    default_system_ = default_chatml_system(jinja);
    writes_bos_ = contains(jinja, "bos_token");
    trims_ = contains(jinja, "| trim") || contains(jinja, "|trim") || contains(jinja, ".strip()");
  } else if (name_ == "llama-3") {
    // Newer templates write today's date; their default date makes a job repeatable.
    if (contains(jinja, "Cutting Knowledge Date")) preamble_ = llama31_preamble;
  } else if (name_ == "vicuna") {
    if (!contains(jinja, "A chat between a curious user")) default_system_.clear();
    writes_bos_ = text_has_bos_ = contains(jinja, "bos_token");
  }
}

std::string ChatTemplate::hash() const {
  uint64_t hash = fnv1a_offset_basis;
  if (jinja_) hash = fnv1a(jinja_->source() + '\0', hash);
  for (const std::string& part :
       {name_, default_system_, preamble_.value_or(""), writes_bos_ ? bos_ : "",
        name_ == "llama-2" || name_ == "vicuna" ? eos_ : "", std::string(trims_ ? "t" : "")}) {
    hash = fnv1a(part + '\0', hash);
  }
  return hex(hash);
}

}  // namespace clover::data
