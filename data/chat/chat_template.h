#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace clover::data {

/// One message of a conversation.
struct Message {
  std::string
      role;  // system, user or assistant; others, such as tool, if the model folder's template has them
  std::string content;
  /// Other fields of the message, for the folder's template: reasoning_content, tool_calls, ..; null: none.
  std::shared_ptr<const nlohmann::ordered_json> fields = nullptr;
};

/// Arguments of a model folder's own template beside the messages, by name: tools, documents,
/// enable_thinking, ..; null: none.
using TemplateArguments = std::shared_ptr<const nlohmann::ordered_json>;

class JinjaChat;

/// The text of a conversation, and the byte ranges [begin, end) of the assistant's answers with their end
/// tokens.
struct RenderedChat {
  std::string text;
  std::vector<std::pair<size_t, size_t>> assistant_spans;
};

/// The text of a conversation whose last message is an answer.
struct RenderedAnswer {
  std::string text;
  /// The answer with its end token is bytes [begin, end) of the text.  `begin` is npos when the text does not
  /// begin with the prompt.
  size_t begin, end;
  bool by_generation_tag;  // the template marks the answer with {% generation %}
};

/// A chat template: one of the built-in formats (chat_formats.cc), or `jinja`, the template of the model's
/// folder, which our Jinja engine runs (jinja_chat.h, jinja/jinja_template.h).  Built-in formats: chatml
/// (with the folder's default system prompt, if it has one), qwen3 (earlier answers lose their reasoning),
/// qwen3-no-think (prompts end with an empty <think> block), llama-2, llama-3, vicuna, none (contents alone).
class ChatTemplate {
 public:
  /// `name`: a built-in format or "jinja".  Empty: the folder's template, from `chat_template.jinja` or the
  /// `chat_template` of tokenizer_config.json; a built-in format takes its place if the template's text is
  /// one that the format was verified against (proved_templates.h).  InputError for an unknown name, and when
  /// the folder has no template or one that we do not support.
  static ChatTemplate load(const std::filesystem::path& folder, const std::string& name = "");
  static std::vector<std::string> known_names();
  static std::string joined_names();  // with commas between them

  /// With `generation_prompt` the text ends with the header of the assistant's next answer.  InputError for a
  /// role or an order of messages that the format cannot express, and for fields and arguments that it does
  /// not use.
  RenderedChat render(const std::vector<Message>& messages, bool generation_prompt,
                      const TemplateArguments& arguments = nullptr) const;
  /// The text of `render` alone.  It is faster: `render` runs a Jinja template twice for each answer, to find
  /// the assistant's spans.
  std::string text(const std::vector<Message>& messages, bool generation_prompt,
                   const TemplateArguments& arguments = nullptr) const;
  /// Renders `messages`, whose last one is an answer.  `prompt`: the text of the other messages with the
  /// generation prompt.
  RenderedAnswer answer(const std::vector<Message>& messages, std::string_view prompt,
                        const TemplateArguments& arguments = nullptr) const;

  const std::string& name() const { return name_; }
  /// Whether the rendered text already has its BOS token, so that the tokenizer must not add one.
  bool text_has_bos() const { return text_has_bos_; }
  std::string hash() const;  // 16 hex digits over everything that decides the text

 private:
  /// `config`: tokenizer_config.json, completed by the special tokens of the folder's other files.
  static ChatTemplate make_format(const std::string& name, const nlohmann::json& config);
  /// Renders a few sample conversations; jinja::Unsupported when the folder's template uses what we do not
  /// support.
  void try_sample_conversations() const;
  /// The model folder's Jinja template if it has to render this conversation: always for the format jinja,
  /// else if there are arguments, or fields or roles that the built-in format lacks.  Null: the built-in
  /// format renders it.  InputError when there is no such template and a field or argument would be ignored.
  const JinjaChat* folder_template_for(const std::vector<Message>& messages,
                                       const TemplateArguments& arguments) const;
  /// Reads from the folder's Jinja text what differs between templates of one format.
  void read_format_details(const std::string& jinja);

  void render_chatml(const std::vector<Message>& messages, bool generation_prompt, RenderedChat& chat) const;
  void render_qwen3(const std::vector<Message>& messages, bool generation_prompt, RenderedChat& chat) const;
  void render_llama2(const std::vector<Message>& messages, RenderedChat& chat) const;
  void render_llama3(const std::vector<Message>& messages, bool generation_prompt, RenderedChat& chat) const;
  void render_vicuna(const std::vector<Message>& messages, bool generation_prompt, RenderedChat& chat) const;

  std::string name_;
  std::string default_system_;  // system prompt when the first message is not the system's
  /// llama-3.1: the text at the beginning of the system message, which this format always writes.
  std::optional<std::string> preamble_;
  std::string bos_, eos_;                   // texts of the BOS and EOS tokens
  bool writes_bos_ = false;                 // the text begins with bos_
  bool trims_ = false;                      // whitespace around contents is removed
  bool text_has_bos_ = true;                // as text_has_bos()
  std::shared_ptr<const JinjaChat> jinja_;  // the folder's template, for the format jinja
  std::shared_ptr<const JinjaChat>
      folder_template_;  // the folder's template, which a built-in format replaces
};

}  // namespace clover::data
