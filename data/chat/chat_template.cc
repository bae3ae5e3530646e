#include "data/chat/chat_template.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "data/chat/jinja/values/values.h"
#include "data/chat/jinja_chat.h"
#include "data/chat/proved_templates.h"
#include "data/files/error.h"
#include "data/files/files.h"
#include "data/files/hash.h"
#include "data/tokenizer/files/added_token_sources.h"
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

/// What the folder's files say of its tokenizer, for templates.
struct TokenizerTexts {
  json stated;  // tokenizer_config.json
  json config;  // the same with `special_tokens` in it
  /// By role, as all files have them together.
  JinjaTemplate::json special_tokens = JinjaTemplate::json::object();
};

TokenizerTexts read_texts(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "tokenizer_config.json";
  TokenizerTexts texts;
  texts.stated = std::filesystem::exists(file) ? read_json(file) : json::object();
  if (!texts.stated.is_object()) throw InputError(file.string() + ": expected a JSON object");
  texts.config = texts.stated;
  for (const auto& [role, token] : AddedTokenSources::load(folder).roles)
    texts.config[role] = texts.special_tokens[role] = token.content;
  return texts;
}

/// The special tokens that tell templates apart: what the template names, and else what tokenizer_config.json
/// alone says, in the order of the records of before other files were read, which stores and jobs hold.
JinjaTemplate::json telling_tokens(const TokenizerTexts& texts, std::string_view jinja) {
  auto merged = texts.special_tokens;
  JinjaTemplate::json tokens = JinjaTemplate::json::object();
  for (const char* role :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    if (contains(jinja, role)) {
      if (merged.contains(role)) tokens[role] = merged[role];
    } else if (const auto text = read_token_text(texts.stated.value(role, json()))) {
      tokens[role] = *text;
    }
    merged.erase(role);
  }
  for (const auto& [role, text] : merged.items())
    if (contains(jinja, role)) tokens[role] = text;
  return tokens;
}

// The format whose marks a template bears: where that format is asked for by name, its details are taken from
// the template.
std::optional<std::string> recognise(const std::string& jinja) {
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

// Whether a format's code writes what the template does.  Without a BOS token the template writes none.
bool stands_for(const std::string& jinja, const json& config) {
  return is_proved(jinja) &&
         (!contains(jinja, "bos_token") || read_token_text(config.value("bos_token", json())).has_value());
}

}  // namespace

std::vector<std::string> ChatTemplate::known_names() {
  return {"chatml", "qwen3", "qwen3-no-think", "llama-2", "llama-3", "vicuna", "none", "jinja"};
}

std::string ChatTemplate::joined_names() {
  std::string all;
  for (const std::string& name : known_names()) all += (all.empty() ? "" : ", ") + name;
  return all;
}

ChatTemplate ChatTemplate::of_format(const std::string& name, const json& config) {
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
  const std::vector<std::string> known = known_names();
  if (!name.empty() && std::find(known.begin(), known.end(), name) == known.end()) {
    throw InputError("template: expected one of " + joined_names() + ", found \"" + name + "\"");
  }
  const TokenizerTexts texts = read_texts(folder);
  const json& config = texts.config;
  const std::optional<std::string> jinja = read_template(folder, config);
  const std::string recognised = jinja ? recognise(*jinja).value_or("") : "";
  const std::string wanted = !name.empty()                         ? name
                             : jinja && stands_for(*jinja, config) ? recognised
                                                                   : "jinja";
  if (wanted != "jinja") {
    ChatTemplate format = of_format(wanted, config);
    if (wanted == recognised) format.read_details(*jinja);
    // For what the format has no words for: tools, other roles.
    if (name.empty()) format.own_ = std::make_shared<const JinjaChat>(*jinja, texts.special_tokens, "");
    return format;
  }
  if (!jinja) {
    throw InputError(folder.string() +
                     ": expected a chat template, found none; name the format to use, one of " +
                     joined_names());
  }
  try {
    ChatTemplate own = of_format("jinja", config);
    own.jinja_ = std::make_shared<const JinjaChat>(*jinja, texts.special_tokens,
                                                   *jinja + telling_tokens(texts, *jinja).dump());
    own.try_conversations();
    return own;
  } catch (const InputError& error) {
    throw InputError(folder.string() + ": the chat template cannot be read (" + error.what() +
                     "); name the format to use, one of " + joined_names());
  }
}

void ChatTemplate::try_conversations() const {
  const Message system{"system", "s"}, user{"user", " u\n"},
      assistant{"assistant", "<think>\nt\n</think>\n\na"};
  for (const auto& messages : {std::vector{user}, {system, user}, {system, user, assistant, user}}) {
    try {
      text(messages, true);
    } catch (const jinja::Unsupported&) {
      throw;
    } catch (const InputError&) {  // it has no system message, say
    }
  }
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

std::string ChatTemplate::hash() const {
  uint64_t hash = fnv_start;
  if (jinja_) hash = fnv1a(jinja_->source() + '\0', hash);
  for (const std::string& part :
       {name_, default_system_, preamble_.value_or(""), writes_bos_ ? bos_ : "",
        name_ == "llama-2" || name_ == "vicuna" ? eos_ : "", std::string(trims_ ? "t" : "")}) {
    hash = fnv1a(part + '\0', hash);
  }
  return hex(hash);
}

}  // namespace clover::data
