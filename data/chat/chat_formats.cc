#include "data/chat/chat_template.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "data/chat/jinja/values/texts.h"
#include "data/chat/jinja_chat.h"
#include "data/files/error.h"

// The built-in chat formats of ChatTemplate: how each one writes a conversation.
namespace clover::data {
namespace {

std::string_view trimmed(std::string_view text) {
  return jinja::stripped(text, true, true);
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

// Index of the first message that is not the system's.  InputError unless user and assistant alternate from
// there, beginning with the user.
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

constexpr std::string_view empty_reasoning = "<think>\n\n</think>\n\n";

std::string_view without_newlines(std::string_view text, bool at_begin, bool at_end) {
  while (at_begin && text.starts_with('\n')) text.remove_prefix(1);
  while (at_end && text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

// An assistant's reasoning and answer, cut as Qwen3's template does it: the reasoning ends at the first
// "</think>", the answer begins behind the last one, and what is between them is dropped.
struct AnswerParts {
  std::string_view reasoning, answer;
};
AnswerParts split_reasoning(std::string_view content) {
  constexpr std::string_view open_tag = "<think>", close_tag = "</think>";
  const size_t first_close = content.find(close_tag);
  if (first_close == std::string_view::npos) return {{}, content};
  std::string_view reasoning = without_newlines(content.substr(0, first_close), false, true);
  if (const size_t begin = reasoning.rfind(open_tag); begin != std::string_view::npos)
    reasoning.remove_prefix(begin + open_tag.size());
  return {without_newlines(reasoning, true, false),
          without_newlines(content.substr(content.rfind(close_tag) + close_tag.size()), true, false)};
}

// Whether this is a user's question, and not the response of a tool, which also has the role user.
bool is_question(const Message& message) {
  return message.role == "user" &&
         !(message.content.starts_with("<tool_response>") && message.content.ends_with("</tool_response>"));
}

void append_answer(RenderedChat& chat, std::string_view answer) {
  const size_t begin = chat.text.size();
  chat.text += answer;
  chat.assistant_spans.emplace_back(begin, chat.text.size());
}

/// Appends what a message says; an assistant's is an answer.
void append_body(RenderedChat& chat, const std::string& role, std::string_view body) {
  if (role == "assistant")
    append_answer(chat, body);
  else
    chat.text += body;
}

}  // namespace

const JinjaChat* ChatTemplate::folder_template_for(const std::vector<Message>& messages,
                                                   const TemplateArguments& arguments) const {
  if (jinja_) return jinja_.get();
  const auto is_plain = [&](const Message& message) {
    const bool known_role = message.role == "system" || message.role == "user" || message.role == "assistant";
    return known_role && !(folder_template_ ? folder_template_->reads_fields_of(message)
                                            : JinjaChat::reasoning_or_call_field(message).has_value());
  };
  const bool plain = !arguments && std::all_of(messages.begin(), messages.end(), is_plain);
  if (plain) return nullptr;
  if (folder_template_) return folder_template_.get();
  if (arguments)
    throw InputError(arguments->begin().key() + ": the chat template " + name_ + " does not use it");
  for (size_t i = 0; i < messages.size(); ++i) {
    if (JinjaChat::reasoning_or_call_field(messages[i]))
      throw InputError("messages[" + std::to_string(i) + "]." +
                       *JinjaChat::reasoning_or_call_field(messages[i]) + ": the chat template " + name_ +
                       " does not use it");
  }
  return nullptr;  // render checks the roles
}

RenderedChat ChatTemplate::render(const std::vector<Message>& messages, bool generation_prompt,
                                  const TemplateArguments& arguments) const {
  if (const JinjaChat* folder_template = folder_template_for(messages, arguments))
    return folder_template->render(messages, generation_prompt, arguments);
  check_roles(messages, name_);
  RenderedChat chat;
  if (writes_bos_ && name_ != "llama-2") chat.text = bos_;  // llama-2 writes it before each question
  if (name_ == "chatml") {
    render_chatml(messages, generation_prompt, chat);
  } else if (name_.starts_with("qwen3")) {
    render_qwen3(messages, generation_prompt, chat);
  } else if (name_ == "llama-2") {
    render_llama2(messages, chat);
  } else if (name_ == "llama-3") {
    render_llama3(messages, generation_prompt, chat);
  } else if (name_ == "vicuna") {
    render_vicuna(messages, generation_prompt, chat);
  } else {  // none: the contents alone
    for (const Message& message : messages) append_body(chat, message.role, message.content);
  }
  return chat;
}

std::string ChatTemplate::text(const std::vector<Message>& messages, bool generation_prompt,
                               const TemplateArguments& arguments) const {
  const JinjaChat* folder_template = folder_template_for(messages, arguments);
  return folder_template ? folder_template->text(messages, generation_prompt, arguments)
                         : render(messages, generation_prompt).text;
}

RenderedAnswer ChatTemplate::answer(const std::vector<Message>& messages, std::string_view prompt,
                                    const TemplateArguments& arguments) const {
  if (const JinjaChat* folder_template = folder_template_for(messages, arguments))
    return folder_template->answer(messages, prompt, arguments);
  RenderedChat chat = render(messages, false);
  const auto [begin, end] = chat.assistant_spans.back();
  const bool continues_prompt = std::string_view(chat.text).substr(0, begin) == prompt;
  return {std::move(chat.text), continues_prompt ? begin : std::string::npos, end, false};
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
    append_body(chat, message.role, body);
    chat.text += "\n";
  }
  if (generation_prompt) chat.text += "<|im_start|>assistant\n";
}

// As Qwen3's template: answers after the last question keep their reasoning.  Such an answer that ends the
// conversation has a <think> block even without reasoning.  Without a question no answer keeps its reasoning.
void ChatTemplate::render_qwen3(const std::vector<Message>& messages, bool generation_prompt,
                                RenderedChat& chat) const {
  size_t last_question = messages.size() - 1;
  for (size_t i = 0; i < messages.size(); ++i)
    if (is_question(messages[i])) last_question = i;
  for (size_t i = 0; i < messages.size(); ++i) {
    chat.text += "<|im_start|>" + messages[i].role + "\n";
    if (messages[i].role != "assistant") {
      chat.text += messages[i].content + "<|im_end|>\n";
      continue;
    }
    const AnswerParts parts = split_reasoning(messages[i].content);
    std::string answer(parts.answer);
    if (i > last_question && (i + 1 == messages.size() || !parts.reasoning.empty())) {
      const std::string reasoning =
          "<think>\n" + std::string(without_newlines(parts.reasoning, true, true)) + "\n</think>\n\n";
      answer = std::string(without_newlines(parts.answer, true, false));
      // "qwen3-no-think" writes an empty block as part of the prompt, else the block is part of the answer.
      const bool is_in_prompt = parts.reasoning.empty() && name_ == "qwen3-no-think";
      if (is_in_prompt)
        chat.text += reasoning;
      else
        answer = reasoning + answer;
    }
    append_answer(chat, answer + "<|im_end|>");
    chat.text += "\n";
  }
  if (!generation_prompt) return;
  chat.text += "<|im_start|>assistant\n";
  if (name_ == "qwen3-no-think") chat.text += empty_reasoning;
}

void ChatTemplate::render_llama2(const std::vector<Message>& messages, RenderedChat& chat) const {
  const size_t first = check_alternation(messages, name_);
  for (size_t i = first; i < messages.size(); ++i) {
    std::string content = messages[i].content;
    if (i == 1 && first == 1) content = "<<SYS>>\n" + messages[0].content + "\n<</SYS>>\n\n" + content;
    const std::string trimmed_content(trimmed(content));
    if (messages[i].role == "user") {
      chat.text += bos_ + "[INST] " + trimmed_content + " [/INST]";
    } else {
      append_answer(chat, " " + trimmed_content + " " + eos_);
    }
  }
}

void ChatTemplate::render_llama3(const std::vector<Message>& messages, bool generation_prompt,
                                 RenderedChat& chat) const {
  const auto write_header = [&](const std::string& role) {
    chat.text += "<|start_header_id|>" + role + "<|end_header_id|>\n\n";
  };
  if (preamble_ && messages.front().role != "system") {
    write_header("system");
    chat.text += *preamble_ + "<|eot_id|>";
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    write_header(messages[i].role);
    if (i == 0 && preamble_ && messages[i].role == "system") chat.text += *preamble_;
    const std::string body = std::string(trimmed(messages[i].content)) + "<|eot_id|>";
    append_body(chat, messages[i].role, body);
  }
  if (generation_prompt) write_header("assistant");
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

}  // namespace clover::data
